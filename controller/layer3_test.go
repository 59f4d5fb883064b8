package controller_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// To northd a restart of the controller is nothing, with all kinds of networks and nodes.
func TestRestartWithLayer3WritesNothing(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.setNodes(nil)
	a.grants = granted(t, `"p":[{"vlans":"7","namespaces":["shop"]}]`)
	n := w.Routed(t, nbtest.GwFull)
	all := map[string]string{"shop/blue": nbtest.Layer3All + nbtest.OnR1, "shop/red": nbtest.Layer3, "shop/green": `"topology":"localnet","physicalNetworkName":"p","vlanID":7`, "shop/grey": `"subnets":"10.2.0.0/24"` + nbtest.OnR1}
	nbtest.EnsureGateway(t, n, nbtest.GwFull, []gateway.Chassis{})
	for _, id := range slices.Sorted(maps.Keys(all)) {
		_, name, _ := strings.Cut(id, "/")
		nn := nbtest.Network(t, name, all[id])
		nbtest.Ensure(t, n, nn)
		if nn.Topology == netmodel.Layer3 {
			nbtest.Share(t, n, nn, "n1")
			nbtest.Share(t, n, nn, "n2")
		}
		a.apply(id, nbtest.Spec(all[id]))
	}
	before := w.Versions(t)
	w.Proxy.Reset()
	_, r := routing(t, w, a, n)
	for id := range all {
		r.wantState(t, id, "ready, held")
	}
	w.WantCommitted(t, 0)
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}
