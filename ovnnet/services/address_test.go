package services_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// agent ensures pods' ports as the agent of node-1 does.
func (w *world) agent(t *testing.T) *ovnport.NB {
	t.Helper()
	ports := ovnport.NewNB(w.Other(t).DB)
	if _, err := ports.PortsOn("node-1").Read(nbtest.WithLimit(t)); err != nil {
		t.Fatal(err)
	}
	return ports
}

// attach ensures the port of pod shop/<name> on a network, and returns its address.
func attach(t *testing.T, ports *ovnport.NB, n *netmodel.Network, name string, fixed ...string) (string, error) {
	t.Helper()
	request := ovnport.Request{Network: n, Interface: "net1"}
	for _, a := range fixed {
		ip := netip.MustParseAddr(a)
		request.IPs = append(request.IPs, netip.PrefixFrom(ip, n.Subnets[n.SubnetOf(ip)].Bits()))
	}
	got, err := ports.Ensure(nbtest.WithLimit(t), ovnport.Owner{
		Namespace: "shop", Pod: name, UID: name, Sandbox: "s-" + name, Node: "node-1"}, []ovnport.Request{request},
		func(context.Context, ovnport.Owner) error { return nil })
	if err != nil {
		return "", err
	}
	return got[0].Addresses[0].Addr().String(), nil
}

// TestHeld: who comes second is told who was first, be it a pod or a service.
func TestHeld(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	n, ports := nbtest.Network(t, "blue", nbtest.NetDual), w.agent(t)
	w.ensure(t, wanted(t, "web", fixed, tcp), 1)
	for _, address := range []string{"10.1.0.200", "fd01::c8"} { // as the lease, and as a claim
		_, err := attach(t, ports, n, "late", address)
		if !conf.HasCode(err, conf.CodeInUse) ||
			!strings.Contains(err.Error(), address+" of network shop/blue is in use by service shop/web (virtual address)") {
			t.Errorf("pod with %s: %v", address, err)
		}
	}
	if _, err := attach(t, ports, n, "early", "10.1.0.7", "fd01::7"); err != nil {
		t.Fatal(err)
	}
	w.wantRefused(t, wanted(t, "other", "10.1.0.7", tcp), "address 10.1.0.7 of network shop/blue is in use by pod shop/early")
	w.wantRefused(t, wanted(t, "other", "fd01::7", tcp), "address fd01::7 of network shop/blue is in use by port shop/early/net1")
	w.wantRefused(t, wanted(t, "other", fixed, tcp), "in use by service shop/web (virtual address)")
	// A refused change keeps what the service has.
	w.wantRefused(t, wanted(t, "web", "10.1.0.7", tcp), "pod shop/early")
	w.remove(t, "web", 1)
	if _, err := attach(t, ports, n, "late", "10.1.0.200"); err != nil {
		t.Errorf("after the service was deleted: %v", err)
	}
}

// TestGatewayAtVirtualAddress: a network's gateway cannot become an address of one of its services.
func TestGatewayAtVirtualAddress(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4)
	w.ensure(t, wanted(t, "first", "10.1.0.201", tcp), 1) // it stays, and with it the private router
	other := services.New(nbrows.NewStore(w.Other(t).DB))
	claim := func() {
		if _, err := other.Ensure(nbtest.WithLimit(t), wanted(t, "web", "10.1.0.200", tcp)); err != nil {
			t.Error(err)
		}
	}
	const keys, held = nbtest.Net4 + `,"gateway":"10.1.0.200"`, "gateway: its address belongs to service shop/web (virtual address)"
	for _, router := range []string{nbtest.OnR1, ""} {
		claim()
		w.WantRefused(t, nbtest.Network(t, "blue", keys+router), held)
		w.remove(t, "web", 1)
		w.Meanwhile(t, "Copp", claim) // after the controller has read that the address is free
		w.WantRefused(t, nbtest.Network(t, "blue", keys+router), held)
		w.Proxy.Before(nil)
		w.remove(t, "web", 1)
	}
}

// TestAuto: pods and services share a subnet, nobody gets the address of another, and a service keeps its own.
func TestAuto(t *testing.T) {
	w := newWorld(t)
	const keys = `"subnets":"10.1.0.0/25"` // .2 to .126: more than a batch of candidates
	w.network(t, "blue", keys)
	n, ports := nbtest.Network(t, "blue", keys), w.agent(t)
	first := w.ensure(t, wanted(t, "web", "auto", tcp), 1)
	w.remove(t, "web", 1)
	if again := w.ensure(t, wanted(t, "web", "auto", tcp), 1); again != first {
		t.Errorf("address %s, and after it was free %s", first, again)
	}
	has := map[string]string{strings.Trim(first, "[]"): "web"}
	for i := range 123 { // all but one
		name := fmt.Sprint("pod-", i)
		a, err := attach(t, ports, n, name)
		if err != nil {
			t.Fatal(err)
		}
		if has[a] != "" {
			t.Fatalf("%s has %s, the address of %s", name, a, has[a])
		}
		has[a] = name
	}
	last := strings.Trim(w.ensure(t, wanted(t, "last", "auto", tcp), 1), "[]")
	if has[last] != "" || !n.Pool(0).Contains(netip.MustParseAddr(last)) {
		t.Errorf("the last service has %s, the address of %q", last, has[last])
	}
	w.wantRefused(t, wanted(t, "none", "auto", tcp), "network shop/blue has no address left")
	if _, err := attach(t, ports, n, "none"); !conf.HasCode(err, conf.CodeNoAddressLeft) {
		t.Errorf("a pod in the full network: %v", err)
	}
	w.ensure(t, wanted(t, "web", "auto", tcp), 0)
	w.ensure(t, wanted(t, "web", strings.Trim(first, "[]"), tcp), 1) // the accepted text alone
}

// TestAutoOnLayer3: services have addresses of node subnets, also of those that nodes get later. None is the gateway of
// a node or an address that the node's pods do not send to.
func TestAutoOnLayer3(t *testing.T) {
	w := newWorld(t)
	const keys = `"topology":"layer3","subnets":"10.128.0.0/25/28"` // 8 node subnets of 13 addresses
	w.network(t, "blue", keys)
	n, ports := nbtest.Network(t, "blue", keys), w.agent(t)
	has := map[string]string{}
	take := func(name, a string) {
		t.Helper()
		if last := netip.MustParseAddr(a).As4()[3] % 16; has[a] != "" || last < 2 || last > 14 {
			t.Fatalf("%s has %s, an address of %q", name, a, has[a])
		}
		has[a] = name
	}
	for i := range 10 {
		name := fmt.Sprint("early-", i)
		take(name, strings.Trim(w.ensure(t, wanted(t, name, "auto", tcp), 1), "[]"))
	}
	if v := w.view(t, "early-0"); v.Differs {
		t.Errorf("view %+v", v)
	}
	for node := range 7 {
		view := nbtest.Share(t, w.Networks, n, fmt.Sprint("node-", node))
		for i := 0; ; i++ {
			name := fmt.Sprintf("pod-%d-%d", node, i)
			a, err := attach(t, ports, view, name)
			if conf.HasCode(err, conf.CodeNoAddressLeft) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			take(name, a)
		}
	}
	for i := 0; len(has) < 8*13; i++ { // the rest is in the node subnet that no node has
		name := fmt.Sprint("late-", i)
		take(name, strings.Trim(w.ensure(t, wanted(t, name, "auto", tcp), 1), "[]"))
	}
	w.wantRefused(t, wanted(t, "none", "auto", tcp), "network shop/blue has no address left")
	nbtest.Share(t, w.Networks, n, "node-7")
}

// TestRaced: a pod gets the address while a service is about to claim it. The service takes another one.
func TestRaced(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4)
	n, ports := nbtest.Network(t, "blue", nbtest.Net4), w.agent(t)
	usual := strings.Trim(w.ensure(t, wanted(t, "web", "auto", tcp), 1), "[]")
	w.remove(t, "web", 1)
	w.Meanwhile(t, "Load_Balancer", func() {
		if _, err := attach(t, ports, n, "fast", usual); err != nil {
			t.Error(err)
		}
	})
	result, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "web", "auto", tcp))
	if err != nil || len(result.Addresses) != 1 || result.Addresses[0].String() == usual {
		t.Errorf("%+v, %v; %s is the pod's", result, err, usual)
	}
}

// TestSubnetMoves: a service gets an address of the network's new subnet, and the private router gets the subnet.
func TestSubnetMoves(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4)
	w.ensure(t, wanted(t, "web", "auto", tcp), 1)
	w.network(t, "blue", `"subnets":"10.9.0.0/24,fd01::/64"`)
	w.ensureNetwork(t, "shop/blue", 1)
	got := w.ensure(t, wanted(t, "web", "auto", tcp), 1)
	if !strings.HasPrefix(got, "[10.9.0.") || !strings.Contains(got, " fd01::") {
		t.Errorf("addresses %s", got)
	}
	port := w.row(t, "Logical_Router_Port", "shop/blue:services:router")
	if subnets := ovndbtest.Strings(port["networks"]); !slices.Equal(subnets, []string{"10.9.0.0/24", "fd01::/64"}) {
		t.Errorf("subnets of the router's port: %v", subnets)
	}
	for _, row := range w.Dump(t, "Copp") {
		if strings.HasPrefix(row["name"].(string), "ovn-multinet shop/blue address 10.1.") {
			t.Errorf("%s is still claimed", row["name"])
		}
	}
}
