package controller_test

import (
	"errors"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// routing is a controller at work whose configuration has routers.
func routing(t *testing.T, w *nbtest.World, a *api, networks *nbtest.Client) (c *tested, r *running) {
	t.Helper()
	c = newController(networks, a, leads, quiet)
	return c, runController(t, w, c)
}

// The gateway follows the nodes' labels, and what their agents say.
func TestControllerFollowsTheNodes(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	yes, no := map[string]string{"gw": "yes"}, map[string]string{"gw": "no"}
	a.setNodes(nil)
	announce := func(node string) {
		if err := w.Other(t).Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: node, Chassis: node}); err != nil {
			t.Error(err)
		}
	}
	announce("a")
	announce("b")
	c, r := routing(t, w, a, w.Routed(t, nbtest.GwFull))
	wantOrder := func(want string) {
		t.Helper()
		eventually(t, want, func() string {
			names, _ := w.Order(t)
			return nbtest.Sprint("%v of %s", names, w.Rows(t)["HA_Chassis_Group"][nbtest.GwGroup]["name"])
		})
	}
	wantOrder("[] of shop/r1:gateway")
	a.setNodes(map[string]map[string]string{"a": yes, "b": no, "c": yes})
	c.NodesChanged()
	wantOrder("[a] of shop/r1:gateway")
	announce("c") // of which nobody tells the controller
	wantOrder("[a c] of shop/r1:gateway")
	a.setNodes(map[string]map[string]string{"a": yes, "b": yes, "c": yes})
	c.NodesChanged()
	wantOrder("[a c b] of shop/r1:gateway")
	a.setNodes(map[string]map[string]string{"a": no, "b": yes, "c": yes})
	c.NodesChanged()
	wantOrder("[c b] of shop/r1:gateway")

	// a list of nodes that fails changes nothing.
	a.with(func() { a.noNodes, a.nodes = errors.New("connection refused"), []netmodel.Node{} })
	c.NodesChanged()
	r.settle(t)
	wantOrder("[c b] of shop/r1:gateway")
	a.with(func() { a.noNodes = nil })
	c.NodesChanged()
	wantOrder("[] of shop/r1:gateway")
}

// A source that knows nothing of nodes leaves those that there are, and the gateway is made all the same.
func TestControllerWithoutNodes(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("a", "b"))
	want := w.Rows(t)
	_, r := routing(t, w, a, n)
	r.settle(t)
	w.WantRows(t, want)
}

// A controller whose configuration has a router no more takes its gateway away, and one that has a new one makes it.
func TestControllerFollowsItsRouters(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.OneNode)
	a.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	a.setNodes(nil)
	n := nbtest.ConnectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/r2": nbtest.GatewayConf(t, "shop/r2", nbtest.GwFull)})
	_, r := routing(t, w, a, n)
	r.touch(t, "shop/blue")
	r.wantState(t, "shop/blue", "ready, held")
	eventually(t, "shop/r1:shop/blue shop/r2:external shop/r2:gateway shop/r2:join", func() string { return w.Names(t, "Logical_Router_Port") })
	if got := w.Switches(t) + ", " + w.Names(t, "HA_Chassis_Group"); got != "shop/blue shop/r2:external shop/r2:join, shop/r2:gateway" {
		t.Errorf("switches and groups %q", got)
	}
}

// A gateway that cannot be taken away, since others use what is ours, holds up no network.
func TestControllerWithAGatewayThatStays(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.OneNode)
	w.NBCtl("lr-add", "theirs", "--", "lrp-add", "theirs", "p", "02:00:00:00:00:01", "203.0.113.1/24", "--",
		"set", "Logical_Router_Port", "p", "ha_chassis_group="+nbtest.GwGroup)
	nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", nbtest.Net4)) // of a NAD that is no more: only the look at all finds it
	r := run(t, w, a)
	r.wantSwitches(t, "shop/r1:external shop/r1:join")
	w.NBCtl("lr-del", "theirs")
	r.wantSwitches(t, "")
	eventually(t, "0", func() string { return nbtest.Sprint("%d", len(w.Rows(t))) })
}
