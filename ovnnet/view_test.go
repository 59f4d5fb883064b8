package ovnnet_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// views reads them all, by network.
func (w *world) views(t *testing.T) map[string]ovnnet.View {
	t.Helper()
	list, err := w.networks.Views(withLimit(t))
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]ovnnet.View{}
	for _, v := range list {
		byID[v.ID] = v
	}
	return byID
}

func usage(node, subnet string, used, free uint64) ovnnet.Usage {
	p := netip.MustParsePrefix(subnet)
	return ovnnet.Usage{Node: node, Subnet: p, Gateway: p.Addr().Next(), Used: used, Free: free}
}

func TestViewOfAGateway(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, chassis("a", "b", "c"))
	w.setPriorities(t, map[string]int{"a": 5, "b": 30, "c": 10})
	ensure(t, n, network(t, "blue", netDual+onR1))
	ensure(t, n, network(t, "red", `"subnets":"10.2.0.0/24","snat":false`+onR1))
	ensure(t, n, network(t, "grey", net4))
	ensure(t, n, network(t, "green", net4+`,"router":"r2"`))
	gateway := &ovnnet.GatewayView{
		Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, NextHops: []string{"192.0.2.1", "2001:db8::1"},
		Physical: "provider", VLAN: 42, Selector: "gw=yes", Nodes: []string{"b", "c", "a"},
	}
	views := w.views(t)
	for id, want := range map[string]*ovnnet.GatewayView{"shop/blue": gateway, "shop/red": gateway, "shop/grey": nil, "shop/green": nil} {
		if got := views[id].Gateway; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: gateway %+v, want %+v", id, got, want)
		}
	}
	for id, want := range map[string][]ovnnet.SNATView{"shop/blue": {{Subnet: "10.1.0.0/24", As: "192.0.2.10"}, {Subnet: "fd01::/64", As: "2001:db8::10"}},
		"shop/red": nil, "shop/grey": nil} {
		if got := views[id].SNAT; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: SNAT %+v, want %+v", id, got, want)
		}
	}

	// One router that is not ours any more hides no network.
	w.change(t, "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"external_ids": ovndbtest.Map(nil)})
	if got := w.views(t); len(got) != 4 || got["shop/blue"].Gateway != nil {
		t.Errorf("views %v", got)
	}
}

func TestViewOfLayer3(t *testing.T) {
	w := newWorld(t)
	blue := network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/25"`)
	ensure(t, w.networks, blue)
	if got := w.views(t)["shop/blue"]; got.Usage != nil || got.Ports != nil || got.Config.Canonical() != blue.Canonical() {
		t.Errorf("before any node has blocks: %+v", got)
	}
	one, two := share(t, w.networks, blue, "n1").NodeSubnetsText(), share(t, w.networks, blue, "n2").NodeSubnetsText()
	w.podOn(t, "n2")
	address := netip.MustParsePrefix(two).Addr().Next().Next()
	w.change(t, "Logical_Switch_Port", strange, ovndbtest.Op{"addresses": "0a:58:0a:80:00:02 " + address.String(), "up": true})
	v := w.views(t)["shop/blue"]
	if want := []ovnnet.Usage{usage("n1", one, 0, 125), usage("n2", two, 1, 124)}; !reflect.DeepEqual(v.Usage, want) {
		t.Errorf("usage %+v, want %+v", v.Usage, want)
	}
	if len(v.Ports) != 1 || v.Ports[0].Pod != "web-0" || !v.Ports[0].Up || !reflect.DeepEqual(v.Ports[0].Addresses, []netip.Addr{address}) {
		t.Errorf("ports %+v", v.Ports)
	}
	w.put(t, "Logical_Switch", ovndb.SwitchKey("x"), "copied", map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n3",
		"ovn-multinet/blocks": one})
	if got := w.views(t)["shop/blue"].Usage; len(got) != 2 {
		t.Errorf("usage with a copied row %+v", got)
	}
}

func TestViewOfLocalnet(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", localnet("phys", `,"vlanID":42,`+net4)))
	w.machine(t, "shop/blue", strange, "vm")
	v := w.views(t)["shop/blue"]
	if v.Config.Physical != "phys" || v.Config.VLAN != 42 || len(v.Ports) != 1 || v.Ports[0].Name != "vm" || v.Ports[0].Namespace != "" {
		t.Errorf("view %+v", v)
	}
	if want := []ovnnet.Usage{usage("", "10.1.0.0/24", 0, 253)}; !reflect.DeepEqual(v.Usage, want) {
		t.Errorf("usage %+v", v.Usage)
	}
}
