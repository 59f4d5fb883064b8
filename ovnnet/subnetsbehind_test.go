package ovnnet_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

const (
	behindBoth = `,"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.5,10.1.0.6"},{"subnet":"10.61.0.0/16","via":"10.1.0.6,10.1.0.5","standby":true}]`
	behindOne  = `,"subnetsBehind":[{"subnet":"10.62.0.0/16","via":"10.1.0.5"}]`
)

// securedPod inserts a pod's port with port security.
func securedPod(t *testing.T, w *nbtest.World, address, pod string, security ...string) {
	t.Helper()
	w.Pod(t, "blue", address, pod, "net1")
	w.Change(t, "Logical_Switch_Port", nbtest.KeyOf(address), ovndbtest.Op{"port_security": ovndbtest.Set(security...)})
}

func security(t *testing.T, w *nbtest.World, address string) string {
	t.Helper()
	return w.Rows(t)["Logical_Switch_Port"][nbtest.KeyOf(address)]["port_security"]
}

// TestSubnetsBehind: the router has a route to each subnet by the next hops that are ready, and drops packets without one;
// of a standby the first one that is ready. Ports that run may use the subnets at once, and no longer than the network says.
func TestSubnetsBehind(t *testing.T) {
	w := nbtest.NewWorld(t)
	ready := map[string]bool{"a": true, "b": true}
	w.Networks.Ready = func(context.Context, string) (func(string) bool, error) {
		return func(pod string) bool { return ready[pod] }, nil
	}
	router := ovndb.RouterKey("shop/r1")
	step := func(what, keys, routes, a string) {
		t.Helper()
		w.Proxy.Reset()
		before := w.Routes(t, router) + security(t, w, "10.1.0.5")
		n := nbtest.Network(t, "blue", nbtest.Net4+keys)
		changed := nbtest.Ensure(t, w.Networks, n)
		if got := w.Routes(t, router); got != routes {
			t.Errorf("%s: routes %s, want %s", what, got, routes)
		}
		if got := security(t, w, "10.1.0.5"); got != a {
			t.Errorf("%s: port security %q, want %q", what, got, a)
		}
		if after := w.Routes(t, router) + security(t, w, "10.1.0.5"); after != before && !changed || nbtest.Ensure(t, w.Networks, n) {
			t.Errorf("%s: changed %t, and again the second time", what, changed)
		}
	}
	step("no pods", nbtest.OnR1+behindBoth, "10.60.0.0/16 via discard 10.61.0.0/16 via discard", "")
	securedPod(t, w, "10.1.0.5", "a", "0a:58:0a:01:00:05 10.1.0.5")
	const open = "0a:58:0a:01:00:05 10.1.0.5 10.60.0.0/16 10.61.0.0/16"
	step("a", nbtest.OnR1+behindBoth, "10.60.0.0/16 via 10.1.0.5 10.61.0.0/16 via 10.1.0.5", open)
	w.Pod(t, "blue", "10.1.0.9", "b", "net1") // has 10.1.0.6 by a claim, as the second address of a pod
	w.Put(t, "Copp", nbtest.KeyOf("10.1.0.6"), "claim", map[string]string{"ovn-multinet/port": nbtest.KeyOf("10.1.0.9")})
	step("a and b", nbtest.OnR1+behindBoth, "10.60.0.0/16 via 10.1.0.5 10.60.0.0/16 via 10.1.0.6 10.61.0.0/16 via 10.1.0.6", open)
	ready["b"] = false
	step("b is not ready", nbtest.OnR1+behindBoth, "10.60.0.0/16 via 10.1.0.5 10.61.0.0/16 via 10.1.0.5", open)
	ready["a"], ready["b"] = false, true
	step("a is not ready", nbtest.OnR1+behindBoth, "10.60.0.0/16 via 10.1.0.6 10.61.0.0/16 via 10.1.0.6", open)
	ready["a"] = true
	step("other subnets", nbtest.OnR1+behindOne, "10.62.0.0/16 via 10.1.0.5", "0a:58:0a:01:00:05 10.1.0.5 10.62.0.0/16")
	step("of another namespace", nbtest.OnR1+strings.Replace(behindOne, `"via"`, `"namespace":"web","via"`, 1), "10.62.0.0/16 via discard",
		"0a:58:0a:01:00:05 10.1.0.5")
	step("without a router", behindOne, "", "0a:58:0a:01:00:05 10.1.0.5 10.62.0.0/16")
	if got := w.Names(t, "Logical_Router"); got != "" {
		t.Errorf("routers %s", got)
	}
	step("on a router again", nbtest.OnR1+behindOne, "10.62.0.0/16 via 10.1.0.5", "0a:58:0a:01:00:05 10.1.0.5 10.62.0.0/16")
	w.NBCtl("lr-route-del", "shop/r1", "10.62.0.0/16")
	step("the route was deleted", nbtest.OnR1+behindOne, "10.62.0.0/16 via 10.1.0.5", "0a:58:0a:01:00:05 10.1.0.5 10.62.0.0/16")
	step("none", nbtest.OnR1, "", "0a:58:0a:01:00:05 10.1.0.5")
	step("both at once", nbtest.OnR1+behindBoth, "10.60.0.0/16 via 10.1.0.5 10.60.0.0/16 via 10.1.0.6 10.61.0.0/16 via 10.1.0.6", open)
	w.MustRemove(t, "shop/blue", true)
	for _, table := range []string{"Logical_Router", "Logical_Router_Static_Route", "Logical_Switch"} {
		if rows := w.Rows(t)[table]; len(rows) > 0 {
			t.Errorf("a deleted network leaves %v", rows)
		}
	}
}

// TestSubnetBehindVirtualAddress: a virtual address of pods is a next hop as long as a pod may have it, and all those pods
// may use the subnet, by their MACs and by the virtual one. A pod that gets its port meanwhile is not forgotten.
func TestSubnetBehindVirtualAddress(t *testing.T) {
	const keys = nbtest.Net4 + nbtest.OnR1 + `,"virtualAddresses":[{"address":"10.1.0.100","selector":{"app":"a"},"vrid":7}]`
	const behind = `,"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.100"}]`
	w := nbtest.NewWorld(t)
	router := ovndb.RouterKey("shop/r1")
	_, group := ovndb.VirtualGroup(nbtest.KeyOf("10.1.0.100"))
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", keys))
	join := func(address, pod, last string) {
		t.Helper()
		securedPod(t, w, address, pod, "0a:58:0a:01:00:"+last+" "+address+" 10.1.0.100", "00:00:5e:00:01:07 "+address+" 10.1.0.100")
		members := []string{"pg-set-ports", group, "shop/a/net1"}
		if pod != "a" {
			members = append(members, "shop/"+pod+"/net1")
		}
		w.NBCtl(members...)
	}
	has := func(address, mac string) {
		t.Helper()
		want := "00:00:5e:00:01:07 " + address + " 10.1.0.100 10.60.0.0/16 " + mac + " " + address + " 10.1.0.100 10.60.0.0/16"
		if got := security(t, w, address); got != want {
			t.Errorf("port security %s, want %s", got, want)
		}
	}
	join("10.1.0.5", "a", "05")
	w.Meanwhile(t, "Logical_Switch_Port", func() { join("10.1.0.6", "b", "06") })
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", keys+behind))
	has("10.1.0.5", "0a:58:0a:01:00:05")
	has("10.1.0.6", "0a:58:0a:01:00:06")
	if got := w.Routes(t, router); got != "10.60.0.0/16 via 10.1.0.100" {
		t.Errorf("routes %s", got)
	}
	w.NBCtl("lsp-del", "shop/a/net1")
	w.NBCtl("lsp-del", "shop/b/net1")
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", keys+behind))
	if got := w.Routes(t, router); got != "10.60.0.0/16 via discard" {
		t.Errorf("without pods: routes %s", got)
	}
}

// TestBoundaryPortBesideSubnetsBehind: a pod that gets an address of a next hop while its subnet goes does not keep the
// subnet.
func TestBoundaryPortBesideSubnetsBehind(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+behindBoth))
	w.Meanwhile(t, "Copp", func() {
		securedPod(t, w, "10.1.0.5", "a", "0a:58:0a:01:00:05 10.1.0.5 10.60.0.0/16 10.61.0.0/16")
	})
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+behindOne))
	if got := security(t, w, "10.1.0.5"); got != "0a:58:0a:01:00:05 10.1.0.5 10.62.0.0/16" {
		t.Errorf("port security %s", got)
	}
}

// TestBoundarySubnetsBehindOverlap: a subnet behind pods is the only one of its addresses on a router, as a network's own is.
func TestBoundarySubnetsBehindOverlap(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+behindBoth))
	w.Pod(t, "blue", "10.1.0.5", "a", "net1")
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+behindBoth)) // a route to a pod does not drop
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "green", `"subnets":"10.2.0.0/24"`+nbtest.OnR1))
	for _, tt := range []struct{ keys, says string }{
		{`"subnets":"10.60.7.0/24"`, "router: subnet 10.60.7.0/24 overlaps 10.60.0.0/16 of network shop/blue on router shop/r1"},
		{`"subnets":"10.2.0.0/24","subnetsBehind":[{"subnet":"10.61.0.0/24","via":"10.2.0.5"}]`, "router: subnet 10.61.0.0/24 overlaps 10.61.0.0/16 of network shop/blue on router shop/r1"},
		{`"subnets":"10.2.0.0/24","subnetsBehind":[{"subnet":"10.1.0.0/25","via":"10.2.0.5"}]`, "router: subnet 10.1.0.0/25 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"},
	} {
		name := "green" // a change of a network that is on the router
		if strings.Contains(tt.keys, "10.60.7") {
			name = "new"
		}
		w.WantRefused(t, nbtest.Network(t, name, tt.keys+nbtest.OnR1), tt.says)
	}
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	for _, subnet := range []string{"100.88.0.0/25", "192.0.2.0/25"} {
		_, err := n.Ensure(nbtest.WithLimit(t), nbtest.Network(t, "red",
			`"subnets":"10.3.0.0/24","subnetsBehind":[{"subnet":"`+subnet+`","via":"10.3.0.5"}]`+nbtest.OnR1), []string{"shop/red"})
		if err == nil || !strings.Contains(err.Error(), "router: subnet "+subnet+" overlaps ") {
			t.Errorf("%s: %v", subnet, err)
		}
	}
}

// TestSubnetBehindOnAGateway: what comes from outside finds the subnet, and its hosts are hidden as the pods are.
func TestSubnetBehindOnAGateway(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+behindOne))
	w.WantGatewayHas(t, hops+"10.1.0.0/24 via 100.88.0.1 10.62.0.0/16 via 100.88.0.1"+hop6, "10.1.0.0/24 as 192.0.2.10 10.62.0.0/16 as 192.0.2.10")
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+`,"snat":false`+behindOne))
	w.WantGatewayHas(t, hops+"10.1.0.0/24 via 100.88.0.1 10.62.0.0/16 via 100.88.0.1"+hop6, "")
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
	w.WantGatewayHas(t, hops+"10.1.0.0/24 via 100.88.0.1"+hop6, "10.1.0.0/24 as 192.0.2.10")
	if list := strings.Fields(w.Routes(t, ovndb.RouterKey("shop/r1"))); slices.Contains(list, "10.62.0.0/16") {
		t.Errorf("routes of the router: %v", list)
	}
}
