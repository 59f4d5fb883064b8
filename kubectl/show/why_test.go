package show

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// whyWorld has networks left, right and mute on router /core, whose gateway is on node n1, wire on a physical network, and
// lonely. left and right have routes to each other.
type whyWorld struct {
	*WhySources
	asked map[string][]string // the interfaces of pods that asked for a default route
	own   map[string]string   // the routes of pods
}

func newWhyWorld(t *testing.T) *whyWorld {
	t.Helper()
	w := &whyWorld{&WhySources{}, map[string][]string{}, map[string]string{}}
	w.Pod = func(name string) (*PodStatus, error) {
		var entries []string
		for _, ifName := range w.asked[name] {
			entries = append(entries, fmt.Sprintf(`{"name":"x","interface":%q,"default-route":["10.0.0.1"]}`, ifName))
		}
		return &PodStatus{Text: "[" + strings.Join(entries, ",") + "]", Routes: w.own[name]}, nil
	}
	w.Policies = func(scopes []policies.Scope) (views []*policies.View, err error) {
		for _, s := range scopes {
			views = append(views, &policies.View{Scope: s, Set: &policy.Set{}})
		}
		return views, nil
	}
	for _, n := range []struct{ name, keys string }{
		{"left", `"router":"/core","subnets":"10.1.0.0/24","routes":[{"dst":"10.2.0.0/24"},{"dst":"192.0.2.0/24"}]`},
		{"right", `"router":"/core","subnets":"10.2.0.0/24","routes":[{"dst":"10.1.0.0/24"}]`},
		{"mute", `"router":"/core","subnets":"10.3.0.0/24"`},
		{"wire", `"topology":"localnet","physicalNetworkName":"provider","subnets":"10.4.0.0/24"`},
		{"lonely", `"subnets":"10.5.0.0/24"`},
	} {
		config, err := netmodel.ParseNetwork("shop", n.name, []byte(`{"type":"ovn-multinet",`+n.keys+`}`))
		if err != nil {
			t.Fatal(err)
		}
		v := view.Network{ID: "shop/" + n.name, Config: config, Accepted: []string{"shop/" + n.name}}
		if config.Router != "" {
			v.Gateway = &gateway.View{Nodes: []string{"n1"}}
		}
		w.Networks = append(w.Networks, v)
	}
	for i, p := range []struct{ pod, network, address string }{
		{"a", "left", "10.1.0.7"}, {"b", "left", "10.1.0.8"}, {"r", "right", "10.2.0.7"}, {"m", "mute", "10.3.0.7"},
		{"two", "right", "10.2.0.8"}, {"two", "mute", "10.3.0.8"}, {"w", "wire", "10.4.0.7"}, {"l", "lonely", "10.5.0.7"},
		{"both", "left", "10.1.0.9"}, {"both", "lonely", "10.5.0.9"},
		{"odd", "lonely", "10.5.0.10"}, {"odd", "mute", "10.3.0.10"},
	} {
		n := w.network(p.network)
		ifName := "net1"
		if p.network == "mute" && p.pod != "m" || p.pod == "both" && p.network == "lonely" {
			ifName = "net2"
		}
		n.Ports = append(n.Ports, view.Port{Key: "key-" + p.pod + p.network, Name: "shop/" + p.pod + "/" + ifName, Namespace: "shop",
			Pod: p.pod, Interface: ifName, Node: "n1", MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, Up: true,
			Addresses: []netip.Addr{netip.MustParseAddr(p.address)}})
	}
	vip := func(to ...netip.AddrPort) []services.Vip {
		return []services.Vip{{Protocol: "tcp", Address: netip.MustParseAddrPort("10.1.0.100:80"), Backends: to}}
	}
	w.Outside = []*outside.Entry{{Key: outside.Key{Router: "/core", User: outside.User{Namespace: "shop", Pod: "r", Interface: "net1"}},
		Addresses: []outside.Address{{Addr: netip.MustParseAddr("192.0.2.20")}}}}
	w.Services = []*services.View{{Key: services.Key{Network: "shop/left", Service: "shop/web"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.100")},
		Vips: vip(netip.MustParseAddrPort("10.1.0.8:8080"), netip.MustParseAddrPort("10.2.0.7:8080"))}}
	return w
}

func (w *whyWorld) network(name string) *view.Network {
	return &w.Networks[slices.IndexFunc(w.Networks, func(n view.Network) bool { return n.ID == "shop/"+name })]
}

// TestWhy: each cause is named, and what is right is not. TestWhy of the scenarios compares the answers with packets.
func TestWhy(t *testing.T) {
	none := func(*whyWorld) {}
	tests := []struct {
		name, from, to, what string
		change               func(*whyWorld)
		want                 string // of the first line, behind the colon
	}{
		{"one network", "a", "b", "tcp/80", none, "yes"},
		{"an address of a pod", "a", "10.1.0.8", "tcp/80", none, "yes"},
		{"one router", "a", "shop/r", "udp/53", none, "yes"},
		{"no route", "m", "a", "tcp/80", none, "no, shop/m:net1 (shop/mute) has no route to 10.1.0.7, so packets leave by another interface"},
		{"no route, and a default route", "m", "a", "tcp/80", func(w *whyWorld) { w.asked["shop/m"] = []string{"net1"} },
			"no, shop/a:net1 (shop/left) has no route to 10.3.0.7"},
		{"both have default routes", "m", "a", "tcp/80", func(w *whyWorld) {
			w.asked["shop/m"], w.asked["shop/a"] = []string{"net1"}, []string{"net1"}
		}, "yes"},
		{"another interface has the default route", "m", "a", "tcp/80", func(w *whyWorld) { w.asked["shop/m"] = []string{"net2"} },
			"no, shop/m:net1 (shop/mute) has no route to 10.1.0.7"},
		{"a route of the pod", "m", "r", "tcp/80", func(w *whyWorld) {
			w.own["shop/m"], w.asked["shop/r"] = `[{"dst":"10.2.0.0/16","gw":"10.3.0.1"}]`, []string{"net1"}
		}, "yes"},
		{"a route of the pod by the interface", "m", "r", "tcp/80", func(w *whyWorld) {
			w.own["shop/m"], w.asked["shop/r"] = `[{"dst":"10.2.0.0/16","interface":"net1"}]`, []string{"net1"}
		}, "yes"},
		{"a route of the pod by another interface", "a", "r", "tcp/80", func(w *whyWorld) {
			w.own["shop/a"] = `[{"dst":"10.2.0.0/24","gw":"10.244.0.1","interface":"eth0"},{"dst":"10.0.0.0/8","interface":"net1"}]`
		}, "no, shop/a:net1 (shop/left) has no route to 10.2.0.7"},
		{"answers of several interfaces", "r", "two:net2", "tcp/80", func(w *whyWorld) { w.asked["shop/r"] = []string{"net1"} }, "yes"},
		{"several interfaces send", "two:net2", "a", "tcp/80", none, "no, shop/two:net2 (shop/mute) has no route to 10.1.0.7"},
		{"the sender is not bound", "a", "b", "tcp/80", func(w *whyWorld) { w.network("left").Ports[0].Up = false },
			"no, shop/a:net1 (shop/left): ovn-controller of node n1 has not bound it"},
		{"the receiver is not bound", "a", "b", "tcp/80", func(w *whyWorld) { w.network("left").Ports[1].Up = false },
			"no, shop/b:net1 (shop/left): ovn-controller of node n1 has not bound it"},
		{"a conflict", "a", "b", "tcp/80", func(w *whyWorld) {
			w.network("left").Ports[1].Conflicts = []view.Conflict{{Addr: netip.MustParseAddr("10.1.0.8"), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}}}
		}, "no, shop/b:net1 (shop/left): the host with the MAC 02:00:00:00:00:09 uses 10.1.0.8, too"},
		{"nobody has the address", "a", "10.2.0.9", "tcp/80", none, "no, no pod on network shop/right has 10.2.0.9: kubectl multinet who 10.2.0.9"},
		{"an address of a physical network", "w", "10.4.0.9", "tcp/80", none, "yes"},
		{"behind a physical network", "w", "192.0.2.1", "tcp/80", none, "no, shop/w:net1 (shop/wire) has no route to 192.0.2.1"},
		{"outside", "a", "192.0.2.1", "tcp/80", none, "yes"},
		{"outside by the interface with a route", "both", "192.0.2.1", "tcp/80", none, "yes"},
		{"by the interface on the network", "both", "10.5.0.7", "tcp/80", none, "yes"},
		{"by the interface that should have a route", "odd", "10.2.0.7", "tcp/80", none, "no, shop/odd:net2 (shop/mute) has no route to 10.2.0.7"},
		{"outside without a node", "a", "192.0.2.1", "tcp/80", func(w *whyWorld) { w.network("left").Gateway.Nodes = nil },
			"no, no node has the gateway of network shop/left"},
		{"outside without a gateway", "l", "192.0.2.1", "tcp/80", none, "no, 192.0.2.1 is on no network that shop/lonely reaches"},
		{"a pod that nothing reaches", "a", "l", "tcp/80", none, "no, no network, router or VLAN connects shop/a:net1 with l"},
		{"its address", "a", "10.5.0.7", "tcp/80", none, "no, no network, router or VLAN connects shop/a:net1 (shop/left) with shop/l:net1 (shop/lonely)"},
		{"no such pod", "a", "x", "tcp/80", none, "no, pod shop/x has no interface on an OVN network"},
		{"no such sender", "x", "a", "tcp/80", none, "no, pod shop/x has no interface on an OVN network"},
		{"a Service", "a", "10.1.0.100", "tcp/80", none, "yes"},
		{"a Service from another network", "r", "10.1.0.100", "tcp/80", none, "yes"},
		{"another port of a Service", "a", "10.1.0.100", "udp/80", none, "no, 10.1.0.100 is an address of Service shop/web, which has no port udp/80"},
		{"a Service without backends", "a", "10.1.0.100", "tcp/80", func(w *whyWorld) { w.Services[0].Vips[0].Backends = nil },
			"no, 10.1.0.100 is an address of Service shop/web, which has no backend"},
		{"a backend that is not bound", "a", "10.1.0.100", "tcp/80", func(w *whyWorld) { w.network("right").Ports[0].Up = false },
			"no, shop/r:net1 (shop/right): ovn-controller of node n1 has not bound it"},
		{"a Service that is not reached", "l", "10.1.0.100", "tcp/80", none, "no, 10.1.0.100 is on no network that shop/lonely reaches"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWhyWorld(t)
			tt.change(w)
			r, err := w.Why("shop", tt.from, tt.to, tt.what)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if err := WhyText(&text, r); err != nil {
				t.Fatal(err)
			}
			line, _, _ := strings.Cut(text.String(), "\n")
			_, verdict, _ := strings.Cut(line, tt.what+": ")
			if !strings.HasPrefix(verdict, tt.want) || r.Reaches != (tt.want == "yes") {
				t.Errorf("%t, %q, want %q:\n%s", r.Reaches, verdict, tt.want, text.String())
			}
		})
	}
	for _, tt := range []struct{ from, to, what, want string }{
		{"10.1.0.7", "b", "tcp/80", "10.1.0.7 is an address: name the pod that sends"},
		{"a", "b", "icmp/80", `"icmp/80": the protocol is not tcp, udp or sctp`},
		{"a", "192.0.2.20", "tcp/80", "192.0.2.20 is an outside address of shop/r/net1: name the pod"},
		{"two", "r", "tcp/80", ""}, // net1 is on the network of r
		{"two", "a", "tcp/80", "several interfaces connect shop/two with a, name one of each pod"},
	} {
		if _, err := newWhyWorld(t).Why("shop", tt.from, tt.to, tt.what); (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s to %s: %v, want %q", tt.from, tt.to, err, tt.want)
		}
	}
}
