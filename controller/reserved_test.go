package controller_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestNetworkWithAWarning: a network that takes the addresses of the cluster is served, and its state and an Event say
// what does not work; both go with the fault.
func TestNetworkWithAWarning(t *testing.T) {
	a := newAPI()
	a.keep = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	a.nodes = []netmodel.Node{{
		Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.1.7.7")},
		PodSubnets: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
	}}
	r := run(t, nbtest.NewWorld(t), a)
	const not, other = ", and pods on the network do not reach that by their first interface: ", "give the network another subnet"
	const services = "subnets: 10.97.0.0/24 overlaps 10.96.0.0/12, a network of --keep-on-primary" + not + other
	const pods = "subnets: 10.244.0.0/16 overlaps 10.244.1.0/24, the pods' network on node n1" + not + other
	const node = "subnets: 10.1.0.0/16 overlaps 10.1.7.7/32, the address of node n1" + not + other
	r.apply("shop/services", nbtest.Spec(`"subnets":"10.97.0.0/24"`))
	r.apply("shop/pods", nbtest.Spec(`"subnets":"10.244.0.0/16"`))
	r.apply("shop/node", nbtest.Spec(`"subnets":"10.1.0.0/16"`))
	r.apply("shop/good", nbtest.Spec(`"subnets":"10.2.0.0/16"`))
	r.wantState(t, "shop/services", "ready, but "+services+", held")
	r.wantState(t, "shop/pods", "ready, but "+pods+", held")
	r.wantState(t, "shop/node", "ready, but "+node+", held")
	r.wantState(t, "shop/good", "ready, held")
	r.wantSwitches(t, "shop/good shop/node shop/pods shop/services")
	const ready = "the network is there as described"
	r.touch(t, "shop/services") // no second Event
	r.settle(t)
	r.apply("shop/services", nbtest.Spec(`"subnets":"10.3.0.0/24"`))
	r.wantState(t, "shop/services", "ready, held")
	wantEvents(t, r.api, "shop/services", "Normal shop/services NetworkReady "+ready,
		"Warning shop/services NetworkWarning "+services+seeNetworks, "Normal shop/services NetworkReady "+ready)
}

// TestWarningWhenTheNodesAreKnown: a network that was compared without the nodes is compared again with them.
func TestWarningWhenTheNodesAreKnown(t *testing.T) {
	a := newAPI()
	a.noNodes = errors.New("the API server does not answer")
	w := nbtest.NewWorld(t)
	c := newController(w.Networks, a, leads, quiet)
	r := runController(t, w, c)
	r.apply("shop/blue", nbtest.Spec(`"subnets":"10.1.0.0/16"`))
	r.wantState(t, "shop/blue", "ready, held")
	a.with(func() {
		a.noNodes, a.nodes = nil, []netmodel.Node{{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.1.7.7")}}}
	})
	c.NodesChanged()
	r.wantState(t, "shop/blue", "ready, but subnets: 10.1.0.0/16 overlaps 10.1.7.7/32, the address of node n1, and pods on the "+
		"network do not reach that by their first interface: give the network another subnet, held")
}
