package subnetsbehind

import (
	"context"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// onePod is a source of one pod.
type onePod struct{ netmodel.Pod }

func (p *onePod) PolicyPods(context.Context, string) ([]*netmodel.Pod, error) {
	return []*netmodel.Pod{&p.Pod}, nil
}

// TestBoundaryFlappingPods: a pod that keeps changing between ready and not ready does not change routes each time, which
// northd and every node would compute again. Its network is compared again when it counts as ready.
func TestBoundaryFlappingPods(t *testing.T) {
	network, err := netmodel.ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/24",`+
		`"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.5"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	pod, waits := &onePod{netmodel.Pod{Namespace: "shop", Name: "a", UID: "1"}}, 0
	k := New(pod, func(id, tenant string, after time.Duration) {
		if waits++; id != "shop/blue" || tenant != "shop" || after <= 0 {
			t.Errorf("network %s is queued for %s in %s", id, tenant, after)
		}
	})
	if err := k.QueueAll(t.Context(), map[string]*ovnnet.Listed{"shop/blue": {Config: network}}); err != nil {
		t.Fatal(err)
	}
	changes, was := 0, false
	for i := range 40 {
		pod.Ready = i%2 == 0
		ready, err := k.Ready(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		is := ready("a")
		if is && !pod.Ready || ready("b") {
			t.Fatalf("ready %t", is)
		}
		if is != was {
			changes++
		}
		was = is
	}
	if changes == 0 || changes > 8 || waits == 0 {
		t.Errorf("40 changes count %d times, and the network is queued %d times", changes, waits)
	}
}
