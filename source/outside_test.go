package source

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

var readyOutside = netmodel.OutsideState{Reason: netmodel.OutsideReady, Message: "interface net1: floating addresses [192.0.2.17]"}

// TestKubeOutsideState: the state is a condition of the pod with this UID. Its time changes with its status alone, and
// the patch has no other condition.
func TestKubeOutsideState(t *testing.T) {
	refused := netmodel.OutsideState{Reason: netmodel.OutsideRefused, Message: "no pool"}
	waits := netmodel.OutsideState{Reason: netmodel.OutsideWaits, Message: "no gateway"}
	for _, tt := range []struct {
		name     string
		was, now netmodel.OutsideState
		want     string
		moment   bool // the patch has a time
	}{
		{"new", netmodel.OutsideState{}, readyOutside, "True OutsideAddressReady " + readyOutside.Message, true},
		{"new, refused", netmodel.OutsideState{}, refused, "False OutsideAddressRefused no pool", true},
		{"another status", readyOutside, refused, "False OutsideAddressRefused no pool", true},
		{"the same status", waits, refused, "False OutsideAddressRefused no pool", false},
		{"gone", readyOutside, netmodel.OutsideState{}, "deleted", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", apiPod("web-0", "u1", nil))
			pod := &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1", OutsideState: tt.was}
			if err := c.SetOutsideState(background, pod, tt.now); err != nil {
				t.Fatal(err)
			}
			a := c.core.Actions()[len(c.core.Actions())-1].(clienttesting.PatchAction)
			var patch struct {
				Metadata struct{ UID string }
				Status   struct{ Conditions []map[string]string }
			}
			if err := json.Unmarshal(a.GetPatch(), &patch); err != nil || len(patch.Status.Conditions) != 1 {
				t.Fatalf("%v: %s", err, a.GetPatch())
			}
			one := patch.Status.Conditions[0]
			got := one["status"] + " " + one["reason"] + " " + one["message"]
			if one["$patch"] == "delete" {
				got = "deleted"
			}
			if a.GetPatchType() != types.StrategicMergePatchType || a.GetSubresource() != "status" || patch.Metadata.UID != "u1" ||
				one["type"] != conf.OutsideCondition || got != tt.want || (one["lastTransitionTime"] != "") != tt.moment {
				t.Errorf("patch %s", a.GetPatch())
			}
		})
	}
}

// TestKubeOutsideStateIsKept: of a pod's conditions the informer keeps ours and that the pod is ready. A long text of
// another program is cut, and is no state of ours.
func TestKubeOutsideStateIsKept(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	pod := apiPod("web-0", "u1", map[string]string{conf.OutsideAnnotation: "[]"})
	for _, tt := range []struct{ reason, message, want string }{
		{"OutsideAddressReady", readyOutside.Message, fmt.Sprint(readyOutside)},
		{"OutsideAddressReady", long, fmt.Sprint(netmodel.OutsideState{Reason: "OutsideAddressReady", Message: long[:conf.MaxReason+1]})},
	} {
		pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/x", Message: long}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: conf.OutsideCondition, Reason: tt.reason, Message: tt.message}}
		kept := policyPod(policyPod(pod)) // an informer trims a listed pod twice
		if got := fromPod(kept); fmt.Sprint(got.OutsideState) != tt.want || !got.Ready || len(kept.Status.Conditions) != 2 {
			t.Errorf("state %v, ready %t, %d conditions", got.OutsideState, got.Ready, len(kept.Status.Conditions))
		}
	}
}

// TestManifestsOutsideState: the state is a file, which ends with the state and with the pod, and counts for the pod of
// that UID alone.
func TestManifestsOutsideState(t *testing.T) {
	f := newFolder(t)
	pod := func(uid string) { f.write("a.yaml", podYAML("web-0", uid, `[{"name":"blue"}]`)) }
	pod("u1")
	m, err := NewManifests(f.dir, Changes{
		Policy: func(string) {}, Pod: func(string, string, bool) {}, Ports: func(string) {}, PodGone: func(string, string) {},
		Namespace: func(string) {},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	start(t, m.Run)
	state := func() string {
		pods, err := m.PolicyPods(background, "shop")
		if err != nil || len(pods) != 1 {
			return fmt.Sprint(len(pods), " pods, ", err)
		}
		return fmt.Sprint(pods[0].OutsideState)
	}
	none := fmt.Sprint(netmodel.OutsideState{})
	set := func(uid string, state netmodel.OutsideState) {
		if err := m.SetOutsideState(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: uid}, state); err != nil {
			t.Fatal(err)
		}
	}
	set("u1", readyOutside)
	eventually(t, fmt.Sprint(readyOutside), state)
	set("u1", netmodel.OutsideState{})
	eventually(t, none, state)
	set("u1", readyOutside)
	eventually(t, fmt.Sprint(readyOutside), state)
	pod("u2")
	eventually(t, none, state)
	f.remove("a.yaml")
	eventually(t, "[]", func() string {
		left, err := filepath.Glob(filepath.Join(f.dir, "*"))
		return fmt.Sprint(left) + strings.TrimPrefix(fmt.Sprint(err), "<nil>")
	})
}
