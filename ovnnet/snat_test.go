package ovnnet_test

import (
	"maps"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

const (
	hops = "0.0.0.0/0 via 192.0.2.1 "
	// What gwFull's gateway has beside what networks have in it.
	hop6 = " ::/0 via 2001:db8::1"
)

// wantGatewayHas compares what the gateway of r1 knows of networks.
func (w *world) wantGatewayHas(t *testing.T, routes, nats string) {
	t.Helper()
	if got := w.routes(t, gwRouter); got != routes {
		t.Errorf("routes %q, want %q", got, routes)
	}
	if got := w.nats(t, gwRouter); got != nats {
		t.Errorf("NAT %q, want %q", got, nats)
	}
}

// A network on a router with a gateway is found from there, and hidden where it or the gateway says so.
func TestNetworkBehindAGateway(t *testing.T) {
	const (
		off     = `,"snat":false`
		on      = `,"snat":true`
		back4   = hops + "10.1.0.0/24 via 100.88.0.1"
		backAll = hops + "10.1.0.0/24 via 100.88.0.1" + hop6 + " fd01::/64 via fd88::1"
		natAll  = "10.1.0.0/24 as 192.0.2.10 fd01::/64 as 2001:db8::10"
	)
	tests := []struct{ name, gateway, keys, routes, nats string }{
		{"both families", gwFull, netDual, backAll, natAll},
		{"IPv4", gwFull, net4, back4 + hop6, "10.1.0.0/24 as 192.0.2.10"},
		{"IPv6", gwFull, net6, hops[:len(hops)-1] + hop6 + " fd01::/64 via fd88::1", "fd01::/64 as 2001:db8::10"},
		{"snat of the network off", gwFull, netDual + off, backAll, ""},
		{"snat of the network on", gwFull, netDual + on, backAll, natAll},
		{"snat of the gateway off", gwFull + off, netDual, backAll, ""},
		{"snat of the gateway off, of the network on", gwFull + off, netDual + on, backAll, natAll},
		{"snat of the gateway off, of the network too", gwFull + off, netDual + off, backAll, ""},
		{"a family that the gateway lacks", `"joinSubnet":"100.88.0.0/24",` + gw4, netDual, back4, "10.1.0.0/24 as 192.0.2.10"},
		{"no family that the gateway has", `"joinSubnet":"100.88.0.0/24",` + gw4, net6, hops[:len(hops)-1], ""},
		{"the whole of a layer3 network", gwFull, `"topology":"layer3","subnets":"10.1.0.0/24/28,fd01::/64/80"`, backAll, natAll},
	}
	w := newWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.clear(t)
			n := w.routed(t, tt.gateway)
			ensureGateway(t, n, tt.gateway, oneNode)
			blue := network(t, "blue", tt.keys+onR1)
			w.proxy.Reset()
			ensure(t, n, blue)
			w.wantCommitted(t, 1) // all of it at once
			w.wantGatewayHas(t, tt.routes, tt.nats)
			before := w.versions(t)
			if ensure(t, n, blue) {
				t.Error("changed is true the second time")
			}
			w.wantCommitted(t, 0)
			if after := w.versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

func TestNetworksRowsInAGateway(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, oneNode)
	ensure(t, n, network(t, "blue", net4+onR1))
	const ids = "ovn-multinet/network=shop/blue ovn-multinet/router=shop/r1"
	back, nat := ovndb.PartKey("route back4", "shop/blue"), ovndb.PartKey("snat4", "shop/blue")
	rows := w.rows(t)
	if got := rows["Logical_Router_Static_Route"][back]; !maps.Equal(got, fields{"ip_prefix": "10.1.0.0/24", "nexthop": "100.88.0.1", "external_ids": ids}) {
		t.Errorf("route %v", got)
	}
	if got := rows["NAT"][nat]; !maps.Equal(got, fields{"type": "snat", "logical_ip": "10.1.0.0/24", "external_ip": "192.0.2.10", "external_ids": ids}) {
		t.Errorf("NAT %v", got)
	}
}

// Rows in the gateway follow a network wherever it goes, as if it had never been elsewhere.
func TestNetworkMovesBesideGateways(t *testing.T) {
	routers := map[string]*netmodel.Router{
		"shop/r1": gatewayConf(t, "shop/r1", gwFull),
		"shop/r2": gatewayConf(t, "shop/r2", `"joinSubnet":"100.89.0.0/24",`+gw4),
	}
	all := []string{
		netDual, netDual + onR1, netDual + `,"router":"r2"`, netDual + `,"router":"r3"`, netDual + onR1 + `,"snat":false`, net4 + onR1, net6 + onR1,
		`"subnets":"10.0.0.0/8,fd01::/64"` + onR1, `"topology":"layer3","subnets":"10.128.0.0/16/24"` + onR1,
		`"topology":"layer3","subnets":"10.128.0.0/16/24"`, `"topology":"localnet","physicalNetworkName":"p"`,
	}
	w := newWorld(t)
	n := connectFor(t, w.Endpoint(), routers)
	begin := func(t *testing.T) {
		t.Helper()
		w.clear(t)
		for _, r := range routers {
			if _, err := n.EnsureGateway(withLimit(t), r, oneNode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, from := range all {
		for _, to := range all {
			t.Run(from+" to "+to, func(t *testing.T) {
				begin(t)
				ensure(t, n, network(t, "blue", to))
				want := w.rows(t)
				begin(t)
				empty := w.rows(t)
				ensure(t, n, network(t, "blue", from))
				if changed := ensure(t, n, network(t, "blue", to)); changed != (from != to) {
					t.Errorf("changed is %t", changed)
				}
				w.wantRows(t, want)
				if err := n.Remove(withLimit(t), "shop/blue", false); err != nil {
					t.Error(err)
				}
				w.wantRows(t, empty)
			})
		}
	}
}

// A network does not wait for its router's gateway, nor for its nodes: it makes it. The nodes come later.
func TestNetworkMakesItsGateway(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, oneNode)
	ensure(t, n, network(t, "blue", netDual+onR1))
	want := w.rows(t)
	w.clear(t)
	ensure(t, n, network(t, "blue", netDual+onR1))
	if got := w.rows(t)["HA_Chassis_Group"][gwGroup]; got["name"] != "shop/r1:gateway" || got["ha_chassis"] != "" {
		t.Errorf("the group is %v", got)
	}
	ensureGateway(t, n, gwFull, oneNode)
	w.wantRows(t, want)

	// One that someone took away is made again, and has what the network has in it; who is not asked for nodes keeps them.
	w.remove(t, "Logical_Router", gwRouter)
	ensure(t, n, network(t, "blue", netDual+onR1))
	w.wantRows(t, want)
}

// What others do to a network's rows in routers is put right.
func TestNetworksRowsInRoutersAreMended(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, oneNode)
	green := network(t, "green", `"topology":"layer3","subnets":"10.128.0.0/16/24"`+onR1)
	ensure(t, n, green)
	want := w.rows(t)
	back, discard := ovndb.PartKey("route back4", "shop/green"), ovndb.PartKey("route discard4", "shop/green")
	nat := ovndb.PartKey("snat4", "shop/green")
	none := ovndbtest.Set[any]()
	for _, tt := range []struct {
		name, table, key string
		columns          ovndbtest.Op
	}{
		{"route back, next hop", "Logical_Router_Static_Route", back, ovndbtest.Op{"nexthop": "100.88.0.7"}},
		{"route back, destination", "Logical_Router_Static_Route", back, ovndbtest.Op{"ip_prefix": "10.0.0.0/8"}},
		{"route back, marks", "Logical_Router_Static_Route", back, ovndbtest.Op{"external_ids": ovndbtest.Map(nil)}},
		{"route back that discards", "Logical_Router_Static_Route", back, ovndbtest.Op{"nexthop": "discard"}},
		{"discard route, next hop", "Logical_Router_Static_Route", discard, ovndbtest.Op{"nexthop": "10.128.0.1"}},
		{"routes of the gateway", "Logical_Router", gwRouter, ovndbtest.Op{"static_routes": none}},
		{"routes of the router", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"static_routes": none}},
		{"NAT of the gateway", "Logical_Router", gwRouter, ovndbtest.Op{"nat": none}},
		{"NAT, type", "NAT", nat, ovndbtest.Op{"type": "dnat_and_snat"}},
		{"NAT, address", "NAT", nat, ovndbtest.Op{"external_ip": "192.0.2.99"}},
		{"NAT, subnet", "NAT", nat, ovndbtest.Op{"logical_ip": "10.128.0.0/24"}},
		{"NAT, marks", "NAT", nat, ovndbtest.Op{"external_ids": ovndbtest.Map(nil)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.change(t, tt.table, tt.key, tt.columns)
			ensure(t, n, green)
			ensureGateway(t, n, gwFull, oneNode) // whose own routes went with the network's
			w.wantRows(t, want)
		})
	}
}

// A subnet that the gateway has a use for is no network's.
func TestNetworkThatMeetsItsGateway(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, oneNode)
	ensure(t, n, network(t, "blue", `"subnets":"10.1.0.0/24"`+onR1))
	through := *w
	through.networks = n
	for _, tt := range []struct{ name, keys, reason string }{
		{"the join subnet", `"subnets":"100.88.0.128/25"`, "router: subnet 100.88.0.128/25 overlaps joinSubnet 100.88.0.0/24 of router shop/r1"},
		{"the IPv6 join subnet", `"subnets":"10.2.0.0/24,fd88::/48"`, "router: subnet fd88::/48 overlaps joinSubnet fd88::/64 of router shop/r1"},
		{"the external subnet", `"subnets":"192.0.0.0/16"`, "router: subnet 192.0.0.0/16 overlaps externalSubnet 192.0.2.0/24 of router shop/r1"},
		{"the whole of a layer3 network", `"topology":"layer3","subnets":"100.64.0.0/10/24"`,
			"router: subnet 100.64.0.0/10 overlaps joinSubnet 100.88.0.0/24 of router shop/r1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := w.versions(t)
			through.wantRefused(t, network(t, "red", tt.keys+onR1), tt.reason)
			if after := w.versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
	t.Run("growth into it", func(t *testing.T) {
		ensure(t, n, network(t, "red", `"subnets":"100.89.0.0/24","gateway":"100.89.0.1"`+onR1))
		through.wantRefused(t, network(t, "red", `"subnets":"100.88.0.0/15","gateway":"100.89.0.1"`+onR1),
			"router: subnet 100.88.0.0/15 overlaps joinSubnet 100.88.0.0/24 of router shop/r1")
	})
	t.Run("a router without a gateway", func(t *testing.T) {
		ensure(t, n, network(t, "grey", `"subnets":"100.88.0.0/24","router":"r2"`))
		if got := w.names(t, "Logical_Router_Port"); got != "shop/r1:external shop/r1:gateway shop/r1:join shop/r1:shop/blue shop/r1:shop/red shop/r2:shop/grey" {
			t.Errorf("router ports %q", got)
		}
	})
}

// The gateway goes between a network's look and its write: it is made again, not left half.
func TestNetworkIsRacedByItsGateway(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, n *ovnnet.Networks, w *world){
		"it went": func(t *testing.T, _ *ovnnet.Networks, w *world) {
			if err := w.other(t).DropGateways(withLimit(t)); err != nil {
				t.Error(err)
			}
		},
		"it lost its router": func(t *testing.T, _ *ovnnet.Networks, w *world) { w.remove(t, "Logical_Router", gwRouter) },
		"the network is made by another": func(t *testing.T, n *ovnnet.Networks, _ *world) {
			ensure(t, n, network(t, "blue", netDual+onR1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n, other := w.routed(t, gwFull), connectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/r1": gatewayConf(t, "shop/r1", gwFull)})
			ensureGateway(t, n, gwFull, oneNode)
			ensure(t, n, network(t, "blue", netDual+onR1))
			want := w.rows(t)
			w.mustRemove(t, "shop/blue", false)
			w.meanwhile(t, "NAT", func() { do(t, other, w) })
			ensure(t, n, network(t, "blue", netDual+onR1))
			ensureGateway(t, n, gwFull, oneNode)
			w.wantRows(t, want)
		})
	}
}

// A gateway that is still that of another configuration is brought up to date first: routes of networks lead to its addresses.
func TestGatewayOfAnotherConfiguration(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, oneNode)
	ensure(t, n, network(t, "blue", netDual+onR1))
	want := w.rows(t)
	for _, name := range []string{"external addresses", "external subnets", "IPv4 alone", "IPv6 alone", "join subnets"} {
		t.Run(name, func(t *testing.T) {
			keys := gatewayChanges()[name]
			w.clear(t)
			old := w.routed(t, keys)
			ensureGateway(t, old, keys, oneNode)
			ensure(t, old, network(t, "blue", netDual+onR1))
			ensure(t, n, network(t, "blue", netDual+onR1))
			w.wantRows(t, want)
		})
	}
}
