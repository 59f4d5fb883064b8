package ovnnet_test

import (
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestNamesOfNetworkAndRouter: a network may have the name of its router. OVN has the ports of switches and routers in one
// table, and does not connect two of one name. Two networks whose names are each other's routers are refused for this.
func TestNamesOfNetworkAndRouter(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "r1", nbtest.Net4+nbtest.OnR1))
	if switches, routers := w.Names(t, "Logical_Switch_Port"), w.Names(t, "Logical_Router_Port"); switches != "shop/r1:shop/r1:switch" ||
		routers != "shop/r1:shop/r1" {
		t.Errorf("ports %s and %s", switches, routers)
	}
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "r2", `"subnets":"10.2.0.0/24"`+nbtest.OnR1))
	w.WantRefused(t, nbtest.Network(t, "r1", nbtest.Net4+`,"router":"r2"`), "router: network shop/r2 is on a router with the name of this "+
		"network, and OVN would have two ports of one name: give one of the two routers another name")
}

// TestNameOfAnOlderVersion: the port of a network with the name of its router gets the name that OVN connects.
func TestNameOfAnOlderVersion(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := nbtest.Network(t, "r1", nbtest.Net4+nbtest.OnR1)
	nbtest.Ensure(t, w.Networks, n)
	want := w.Rows(t)
	w.Change(t, "Logical_Switch_Port", ovndb.AddressKey("shop/r1", netip.MustParseAddr("10.1.0.1")), ovndbtest.Op{"name": "shop/r1:shop/r1"})
	if !nbtest.Ensure(t, w.Networks, n) {
		t.Error("nothing has changed")
	}
	w.WantRows(t, want)
}
