package ovnnet_test

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestPortMTU: the router's port to a network has the MTU that the controller says. While the controller does not know, the
// port keeps what it has. Other keys of the operator stay.
func TestPortMTU(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue := nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1+`,"mtu":1400`)
	port := ovndb.RouterPortKey("shop/blue")
	nbtest.Ensure(t, w.Networks, blue)
	w.Change(t, "Logical_Router_Port", port, ovndbtest.Op{"options": ovndbtest.Map(map[string]string{"redirect-type": "bridged"})})
	for i, step := range []struct {
		mtu     int
		known   bool
		want    string
		changed bool
	}{
		{0, true, "redirect-type=bridged", false},
		{1400, false, "redirect-type=bridged", false},
		{1400, true, "gateway_mtu=1400 redirect-type=bridged", true},
		{1400, true, "gateway_mtu=1400 redirect-type=bridged", false},
		{0, false, "gateway_mtu=1400 redirect-type=bridged", false},
		{1300, true, "gateway_mtu=1300 redirect-type=bridged", true},
		{0, true, "redirect-type=bridged", true},
	} {
		w.Networks.PortMTU = func(*netmodel.Network) (int, bool) { return step.mtu, step.known }
		if changed := nbtest.Ensure(t, w.Networks, blue); changed != step.changed {
			t.Errorf("step %d: changed %v, want %v", i, changed, step.changed)
		}
		if got := w.Rows(t)["Logical_Router_Port"][port]["options"]; got != step.want {
			t.Errorf("step %d: options %q, want %q", i, got, step.want)
		}
	}
}

// TestPortMTUOfNodes: each node's port of a layer3 network has the MTU too, whether the controller or the node's agent
// makes it.
func TestPortMTUOfNodes(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue := nbtest.Network(t, "blue", nbtest.Layer3+nbtest.OnR1+`,"mtu":1400`)
	w.Networks.PortMTU = func(*netmodel.Network) (int, bool) { return 1400, true }
	nbtest.Ensure(t, w.Networks, blue)
	nbtest.Share(t, w.Networks, blue, "n1")
	wantPorts := func(want string) {
		t.Helper()
		for _, node := range []string{"n1", "n2"} {
			row := w.Rows(t)["Logical_Router_Port"][ovndb.RouterPortKey("shop/blue@"+node)]
			if row != nil && row["options"] != want {
				t.Errorf("port of %s has %q, want %q", node, row["options"], want)
			}
		}
	}
	wantPorts("gateway_mtu=1400")
	if nbtest.Ensure(t, w.Networks, blue) {
		t.Error("the controller writes what the agent has written")
	}
	other := w.Other(t) // of which the controller has just begun to lead
	if nbtest.Ensure(t, other, blue) {
		t.Error("a controller that does not know the other networks changes something")
	}
	wantPorts("gateway_mtu=1400")
	w.Networks.PortMTU = func(*netmodel.Network) (int, bool) { return 0, true }
	nbtest.Ensure(t, w.Networks, blue)
	wantPorts("")
	nbtest.Share(t, w.Networks, blue, "n2")
	wantPorts("")
}

// TestGatewayMTU: the gateway's port to the physical network has the MTU that the controller says, and keeps what it has
// while the controller does not know.
func TestGatewayMTU(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	port := func() string {
		for _, row := range w.Rows(t)["Logical_Router_Port"] {
			if row["name"] == "shop/r1:external" {
				return row["options"]
			}
		}
		return "no port"
	}
	for i, step := range []struct {
		mtu     int
		want    string
		changed bool
	}{
		{0, "", true}, {1500, "gateway_mtu=1500", true}, {1500, "gateway_mtu=1500", false}, {0, "gateway_mtu=1500", false},
		{1400, "gateway_mtu=1400", true},
	} {
		n.Gateways.SetMTU("shop/r1", step.mtu)
		if changed := nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode); changed != step.changed {
			t.Errorf("step %d: changed %v, want %v", i, changed, step.changed)
		}
		if got := port(); got != step.want {
			t.Errorf("step %d: options %q, want %q", i, got, step.want)
		}
	}
	for _, mtu := range []int{1279, 1280} {
		_, err := n.Ensure(nbtest.WithLimit(t), nbtest.Network(t, "tiny", nbtest.Net4+nbtest.OnR1+fmt.Sprintf(`,"mtu":%d`, mtu)), []string{"shop/tiny"})
		if (err != nil) != (mtu < 1280) {
			t.Errorf("mtu %d on a router with a gateway: %v", mtu, err)
		}
	}
	if _, err := w.Networks.Ensure(nbtest.WithLimit(t), nbtest.Network(t, "small", `"subnets":"10.77.0.0/24","router":"r9","mtu":600`), []string{"shop/small"}); err != nil {
		t.Errorf("mtu 600 on a router without a gateway: %v", err)
	}
}
