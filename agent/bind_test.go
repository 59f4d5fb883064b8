package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// Nobody waits for the flows of a pod that is gone: there is no ovn-controller here, so they never come.
func TestBindEndsWithThePod(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before bool // the pod is gone before the wait begins
	}{{"while it waits", false}, {"before it waits", true}} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			p, err := r.plan("c1")
			r.must(err)
			r.source.ends = tt.before
			bound := make(chan error, 1)
			go func() {
				primary := json.RawMessage(`{"cniVersion":"1.0.0"}`)
				bound <- r.call(agentapi.OpBind, agentapi.BindRequest{Sandbox: r.sandbox("c1"), Plan: *p, Primary: primary}, nil)
			}()
			if !tt.before {
				// The wait for a turn comes first, and is over when the port is in Open vSwitch.
				r.eventually("in Open vSwitch", func() bool { return r.inOVS(agentapi.HostVeth("c1", "net1")) })
				r.eventually("waiting", r.source.waiting)
				r.source.end()
			}
			err = <-bound
			if !conf.HasCode(err, conf.CodePodGone) || !strings.Contains(err.Error(), "pod shop/web") {
				t.Errorf("got %v, want code %d", err, conf.CodePodGone)
			}
			if status, events := r.source.told(); status != "" || len(events) > 0 {
				t.Errorf("the pod has status %s and events %q", status, events)
			}
			if r.source.waiting() {
				t.Error("it waits for the end of the pod still")
			}
		})
	}
}

// binding is a bind request of a pod on two networks, which runs.
type binding struct {
	*rig
	id     string
	ended  chan error
	cancel context.CancelFunc // the plugin ends
}

// bind begins a bind for which the plugin waits that long.
func (r *rig) bind(waits time.Duration) *binding { return r.bindAs("c1", waits) }

// bindAs is bind of the pod's sandbox with that ID.
func (r *rig) bindAs(id string, waits time.Duration) *binding {
	r.t.Helper()
	p, err := r.plan(id)
	r.must(err)
	ctx, cancel := context.WithTimeout(r.t.Context(), waits)
	r.t.Cleanup(cancel)
	b := &binding{rig: r, id: id, ended: make(chan error, 1), cancel: cancel}
	c := &agentapi.Client{Socket: r.conf.Socket}
	go func() {
		b.ended <- c.Call(ctx, agentapi.OpBind, agentapi.BindRequest{
			Sandbox: r.sandbox(id), Plan: *p, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`),
		}, nil)
	}()
	return b
}

// installed does what ovn-controller does when the flows of an interface are installed.
func (b *binding) installed(name string) {
	b.t.Helper()
	veth := agentapi.HostVeth(b.id, name)
	b.eventually("in Open vSwitch", func() bool { return b.inOVS(veth) })
	b.ovs.VSCtl("--no-wait", "set", "Interface", veth, "external_ids:ovn-installed=true")
}

func (r *rig) inOVS(veth string) bool {
	return strings.Contains(r.ovs.VSCtl("--bare", "--columns=name", "find", "Interface", "name="+veth), veth)
}

// wantStatus compares whether the pod has a status, and the requests.
func (b *binding) wantStatus(has bool, writes, deletes int) {
	b.t.Helper()
	status, w, d := b.source.statusCounts()
	if (status != "") != has || w != writes || d != deletes {
		b.t.Errorf("status %q after %d writes and %d deletions; want one: %t, after %d and %d", status, w, d, has, writes, deletes)
	}
}

func (b *binding) written() bool {
	status, _, _ := b.source.statusCounts()
	return status != ""
}

// The status is written beside the wait for flows, once, and the ADD succeeds when both are done.
func TestStatusBesideTheWaitForFlows(t *testing.T) {
	r := newRig(t)
	r.start()
	b := r.bind(2 * time.Minute)
	r.eventually("written without flows", b.written)
	b.installed("net1")
	select {
	case err := <-b.ended:
		t.Fatalf("it ends without the flows of its second interface: %v", err)
	default:
	}
	b.installed("net2")
	r.must(<-b.ended)
	b.wantStatus(true, 1, 0)
}

// A status that is not written fails the ADD, and nobody waits for flows any more: here they never come.
func TestStatusThatIsNotWritten(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		code    uint
		deletes int
	}{
		{"the pod is gone", source.ErrNotFound, conf.CodePodGone, 0},
		{"the API is away", errors.New("connection refused"), conf.CodeTryAgain, 1}, // the write may have come through
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.source.noStatus = tt.err
			r.start()
			b := r.bind(2 * time.Minute)
			if err := <-b.ended; !conf.HasCode(err, tt.code) || !strings.Contains(err.Error(), "network-status") {
				t.Errorf("got %v, want code %d", err, tt.code)
			}
			b.wantStatus(false, 1, tt.deletes)
		})
	}
}

// Without flows the ADD fails, and the pod's status does not name interfaces that are deleted then.
func TestStatusWithoutFlows(t *testing.T) {
	t.Run("the time is over", func(t *testing.T) {
		r := newRig(t)
		r.start()
		b := r.bind(10 * time.Second)
		if err := <-b.ended; !conf.HasCode(err, conf.CodeNoFlows) {
			t.Errorf("got %v, want code %d", err, conf.CodeNoFlows)
		}
		b.wantStatus(false, 1, 1)
	})
	t.Run("the plugin ends", func(t *testing.T) {
		r := newRig(t)
		r.start()
		b := r.bind(2 * time.Minute)
		r.eventually("written", b.written)
		b.cancel()
		r.eventually("deleted", func() bool { return !b.written() })
		<-b.ended
		b.wantStatus(false, 1, 1)
	})
	t.Run("the agent stops", func(t *testing.T) { // the plugin asks the next one
		r := newRig(t)
		r.start()
		b := r.bind(2 * time.Minute)
		r.eventually("written", b.written)
		r.must(r.stop())
		<-b.ended
		b.wantStatus(true, 1, 0)
	})
}

// TestFormerSandboxIsForgotten: the connections of an older sandbox, whose OVS ports the ADD replaces, are forgotten
// when the flows of the new ones are installed, in the zones of these ports alone. The first ADD forgets nothing, and
// the ADD succeeds also if ovs-vswitchd does not forget them.
func TestFormerSandboxIsForgotten(t *testing.T) {
	r := newRig(t)
	s := r.switchd()
	r.start()
	r.ovs.VSCtl("set", "Bridge", "br-int", "external_ids:ct-zone-shop/web/net1=5", "external_ids:ct-zone-shop/web/net2=6",
		"external_ids:ct-zone-shop/db/net1=7")
	bound := func(id, want string) {
		t.Helper()
		b := r.bindAs(id, 2*time.Minute)
		b.installed("net1")
		r.eventually("in Open vSwitch", func() bool { return b.inOVS(agentapi.HostVeth(id, "net2")) })
		if got := s.taken(); got != "" {
			t.Errorf("calls %q before the flows are installed", got)
		}
		b.installed("net2")
		r.must(<-b.ended)
		if got := s.taken(); got != want {
			t.Errorf("calls %q, want %q", got, want)
		}
	}
	bound("c1", "")
	bound("c2", "zone=5\nzone=6")
	s.fail(true)
	bound("c3", "zone=5")
}
