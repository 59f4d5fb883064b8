package view_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

func usage(node, subnet string, used, free uint64) view.Usage {
	p := netip.MustParsePrefix(subnet)
	return view.Usage{Node: node, Subnet: p, Gateway: p.Addr().Next(), Used: used, Free: free}
}

func TestViewOfAGateway(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
	w.SetPriorities(t, map[string]int{"a": 5, "b": 30, "c": 10})
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	nbtest.Ensure(t, n, nbtest.Network(t, "red", `"subnets":"10.2.0.0/24","snat":false`+nbtest.OnR1))
	nbtest.Ensure(t, n, nbtest.Network(t, "grey", nbtest.Net4))
	nbtest.Ensure(t, n, nbtest.Network(t, "green", nbtest.Net4+`,"router":"r2"`))
	wantGateway := &gateway.View{
		Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, NextHops: []string{"192.0.2.1", "2001:db8::1"},
		Physical: "provider", VLAN: 42, Selector: "gw=yes", Nodes: []string{"b", "c", "a"},
	}
	views := w.Views(t)
	for id, want := range map[string]*gateway.View{"shop/blue": wantGateway, "shop/red": wantGateway, "shop/grey": nil, "shop/green": nil} {
		if got := views[id].Gateway; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: gateway %+v, want %+v", id, got, want)
		}
	}
	for id, want := range map[string][]view.SNAT{"shop/blue": {{Subnet: "10.1.0.0/24", As: "192.0.2.10"}, {Subnet: "fd01::/64", As: "2001:db8::10"}},
		"shop/red": nil, "shop/grey": nil} {
		if got := views[id].SNAT; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: SNAT %+v, want %+v", id, got, want)
		}
	}

	// One router that is not ours any more hides no network.
	w.Change(t, "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"external_ids": ovndbtest.Map(nil)})
	if got := w.Views(t); len(got) != 4 || got["shop/blue"].Gateway != nil {
		t.Errorf("views %v", got)
	}
}

func TestViewOfLayer3(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue := nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/25"`)
	nbtest.Ensure(t, w.Networks, blue)
	if got := w.Views(t)["shop/blue"]; got.Usage != nil || got.Ports != nil || got.Config.Canonical() != blue.Canonical() {
		t.Errorf("before any node has blocks: %+v", got)
	}
	one, two := nbtest.Share(t, w.Networks, blue, "n1").NodeSubnetsText(), nbtest.Share(t, w.Networks, blue, "n2").NodeSubnetsText()
	w.PodOn(t, "n2")
	address := netip.MustParsePrefix(two).Addr().Next().Next()
	w.Change(t, "Logical_Switch_Port", nbtest.Strange, ovndbtest.Op{"addresses": "0a:58:0a:80:00:02 " + address.String(), "up": true})
	v := w.Views(t)["shop/blue"]
	if want := []view.Usage{usage("n1", one, 0, 125), usage("n2", two, 1, 124)}; !reflect.DeepEqual(v.Usage, want) {
		t.Errorf("usage %+v, want %+v", v.Usage, want)
	}
	if len(v.Ports) != 1 || v.Ports[0].Pod != "web-0" || !v.Ports[0].Up || !reflect.DeepEqual(v.Ports[0].Addresses, []netip.Addr{address}) {
		t.Errorf("ports %+v", v.Ports)
	}
	w.Put(t, "Logical_Switch", ovndb.SwitchKey("x"), "copied", map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n3",
		"ovn-multinet/blocks": one})
	if got := w.Views(t)["shop/blue"].Usage; len(got) != 2 {
		t.Errorf("usage with a copied row %+v", got)
	}
}

func TestViewOfLocalnet(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)))
	w.Machine(t, "shop/blue", nbtest.Strange, "vm")
	v := w.Views(t)["shop/blue"]
	if v.Config.Physical != "phys" || v.Config.VLAN != 42 || len(v.Ports) != 1 || v.Ports[0].Name != "vm" || v.Ports[0].Namespace != "" {
		t.Errorf("view %+v", v)
	}
	if want := []view.Usage{usage("", "10.1.0.0/24", 0, 253)}; !reflect.DeepEqual(v.Usage, want) {
		t.Errorf("usage %+v", v.Usage)
	}
}

// TestViewOfIPAMClaims: an IPAMClaim without a port uses addresses, and is named; with a port it is not.
func TestViewOfIPAMClaims(t *testing.T) {
	w := nbtest.NewWorld(t)
	network := nbtest.Network(t, "blue", nbtest.Net4+`,"allowPersistentIPs":true`)
	nbtest.Ensure(t, w.Networks, network)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "grey", `"subnets":"10.2.0.0/24"`))
	ports, owner := ovnport.NewNB(w.Networks.DB), ovnport.Owner{Namespace: "shop", Pod: "p", UID: "u", Sandbox: "s", Node: "n1"}
	made, err := ports.Ensure(nbtest.WithLimit(t), owner, []ovnport.Request{
		{Interface: "net1", Network: network, IPAMClaim: "shop/vm", IPs: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24")}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := w.Views(t)["shop/blue"]; len(v.Reserved) > 0 || len(v.Ports) != 1 || v.Usage[0].Used != 1 {
		t.Errorf("with a pod: %+v", v)
	}
	if err := ports.Release(nbtest.WithLimit(t), owner, []ovnport.Keys{{UUID: made[0].UUID}}); err != nil {
		t.Fatal(err)
	}
	v := w.Views(t)["shop/blue"]
	want := []view.Reserved{{IPAMClaim: "shop/vm", MAC: "0a:58:0a:01:00:07", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.7")}}}
	if !reflect.DeepEqual(v.Reserved, want) || len(v.Ports) > 0 || v.Usage[0].Used != 1 {
		t.Errorf("without a pod: %+v", v)
	}
	if other := w.Views(t)["shop/grey"]; len(other.Reserved) > 0 {
		t.Errorf("another network: %+v", other)
	}
}
