package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// The ADD of an older sandbox may still run after that of a newer one, when the container runtime was killed. It gets
// no port, and takes none away.
func TestOlderSandboxTakesNothing(t *testing.T) {
	r := newRig(t)
	r.start()
	dir := journal.Dir(r.conf.StateDir)
	r.must(dir.Prepare())
	for _, id := range []string{"c0", "c1"} {
		r.must(dir.Write(journal.NewEntry(r.sandbox(id), "", "")))
	}
	late, err := r.plan("c0")
	r.must(err)
	newer, err := r.plan("c1")
	r.must(err)
	const refusal = "pod shop/web: sandbox c0 is older than sandbox c1, which has the pod's ports"
	_, err = r.plan("c0")
	wantCoded(t, err, conf.CodePodGone, refusal)
	if want := map[string]string{"shop/web/net1": "c1", "shop/web/net2": "c1"}; !maps.Equal(r.ports(), want) {
		t.Errorf("ports %v, want %v", r.ports(), want)
	}
	o := ovnport.Owner{Namespace: "shop", Pod: "web", UID: "u-1", Sandbox: "c1", Node: r.conf.NodeName}
	var plugged []ovnport.OVSPort
	for i := range newer.Interfaces {
		plugged = append(plugged, ovsPortOf("c1", &newer.Interfaces[i]))
	}
	r.must(r.agent.ovs.Add(t.Context(), o, plugged, r.agent.supersedes(&o)))
	before := r.ovs.Dump(t, "Interface")
	bind := agentapi.BindRequest{Sandbox: r.sandbox("c0"), Plan: *late, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`)}
	wantCoded(t, r.call(agentapi.OpBind, bind, nil), conf.CodePodGone, refusal)
	if after := r.ovs.Dump(t, "Interface"); !reflect.DeepEqual(after, before) {
		t.Errorf("OVS ports %v, had %v", after, before)
	}
}

// oneLive is a source with one pod, or an error, as the answer to each question that is asked live.
type oneLive struct {
	*pods
	pod *netmodel.Pod
	err error
}

func (l *oneLive) LivePod(context.Context, string, string) (*netmodel.Pod, error) {
	return l.pod, l.err
}

// TestPodGoneOnlyIfItIs: code 107 says that nothing is to be done. It is for a pod that is gone or has another UID; a
// source that cannot tell is passing trouble, and no defect of ours.
func TestPodGoneOnlyIfItIs(t *testing.T) {
	gone := fmt.Errorf("shop/web: %w", source.ErrNotFound)
	down := errors.New("connection refused")
	older := ovnport.Owner{Namespace: "shop", Pod: "web", UID: "u-0"}
	for _, tt := range []struct {
		name string
		pod  *netmodel.Pod
		err  error
		code uint
		want string // "": no error
	}{
		{"the live one", &netmodel.Pod{UID: "u-1"}, nil, 0, ""},
		{"another is the live one", &netmodel.Pod{UID: "u-2"}, nil, conf.CodePodGone, "pod shop/web with UID u-1 is gone"},
		{"gone", nil, gone, conf.CodePodGone, "pod shop/web with UID u-1 is gone"},
		{"the source is away", nil, down, conf.CodeTryAgain, "pod shop/web: connection refused"},
	} {
		t.Run("takes ports over: "+tt.name, func(t *testing.T) {
			a := &node{source: &oneLive{&pods{}, tt.pod, tt.err}}
			err := a.mayTakeOver(t.Context(), &ovnport.Owner{Namespace: "shop", Pod: "web", UID: "u-1"}, &older)
			if tt.want != "" {
				wantCoded(t, err, tt.code, tt.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	pod := &netmodel.Pod{Namespace: "shop", Name: "web"}
	t.Run("status: gone", func(t *testing.T) {
		wantCoded(t, statusError(pod, gone), conf.CodePodGone, "pod shop/web: network-status: shop/web: pod not found")
	})
	t.Run("status: the source is away", func(t *testing.T) {
		wantCoded(t, statusError(pod, down), conf.CodeTryAgain, "pod shop/web: network-status: connection refused")
	})
}
