package ovnnet_test

import (
	"maps"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

const (
	hops = "0.0.0.0/0 via 192.0.2.1 "
	// What gwFull's gateway has beside what networks have in it.
	hop6 = " ::/0 via 2001:db8::1"
)

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
		{"both families", nbtest.GwFull, nbtest.NetDual, backAll, natAll},
		{"IPv4", nbtest.GwFull, nbtest.Net4, back4 + hop6, "10.1.0.0/24 as 192.0.2.10"},
		{"IPv6", nbtest.GwFull, nbtest.Net6, hops[:len(hops)-1] + hop6 + " fd01::/64 via fd88::1", "fd01::/64 as 2001:db8::10"},
		{"snat of the network off", nbtest.GwFull, nbtest.NetDual + off, backAll, ""},
		{"snat of the network on", nbtest.GwFull, nbtest.NetDual + on, backAll, natAll},
		{"snat of the gateway off", nbtest.GwFull + off, nbtest.NetDual, backAll, ""},
		{"snat of the gateway off, of the network on", nbtest.GwFull + off, nbtest.NetDual + on, backAll, natAll},
		{"snat of the gateway off, of the network too", nbtest.GwFull + off, nbtest.NetDual + off, backAll, ""},
		{"a family that the gateway lacks", `"joinSubnet":"100.88.0.0/24",` + nbtest.Gw4, nbtest.NetDual, back4, "10.1.0.0/24 as 192.0.2.10"},
		{"no family that the gateway has", `"joinSubnet":"100.88.0.0/24",` + nbtest.Gw4, nbtest.Net6, hops[:len(hops)-1], ""},
		{"the whole of a layer3 network", nbtest.GwFull, `"topology":"layer3","subnets":"10.1.0.0/24/28,fd01::/64/80"`, backAll, natAll},
	}
	w := nbtest.NewWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.Clear(t)
			n := w.Routed(t, tt.gateway)
			nbtest.EnsureGateway(t, n, tt.gateway, nbtest.OneNode)
			blue := nbtest.Network(t, "blue", tt.keys+nbtest.OnR1)
			w.Proxy.Reset()
			nbtest.Ensure(t, n, blue)
			w.WantCommitted(t, 1) // all of it at once
			w.WantGatewayHas(t, tt.routes, tt.nats)
			before := w.Versions(t)
			if nbtest.Ensure(t, n, blue) {
				t.Error("changed is true the second time")
			}
			w.WantCommitted(t, 0)
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

func TestNetworksRowsInAGateway(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
	const ids = "ovn-multinet/network=shop/blue ovn-multinet/router=shop/r1"
	back, nat := ovndb.PartKey("route back4", "shop/blue"), ovndb.PartKey("snat4", "shop/blue")
	rows := w.Rows(t)
	if got := rows["Logical_Router_Static_Route"][back]; !maps.Equal(got, nbtest.Fields{"ip_prefix": "10.1.0.0/24", "nexthop": "100.88.0.1", "external_ids": ids}) {
		t.Errorf("route %v", got)
	}
	delete(rows["NAT"][nat], "priority") // newer schemas have this column
	if got := rows["NAT"][nat]; !maps.Equal(got, nbtest.Fields{"type": "snat", "logical_ip": "10.1.0.0/24", "external_ip": "192.0.2.10", "external_ids": ids}) {
		t.Errorf("NAT %v", got)
	}
}

// Rows in the gateway follow a network wherever it goes, as if it had never been elsewhere.
func TestNetworkMovesBesideGateways(t *testing.T) {
	routers := map[string]*netmodel.Router{
		"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull),
		"shop/r2": nbtest.GatewayConf(t, "shop/r2", `"joinSubnet":"100.89.0.0/24",`+nbtest.Gw4),
	}
	all := []string{
		nbtest.NetDual, nbtest.NetDual + nbtest.OnR1, nbtest.NetDual + `,"router":"r2"`, nbtest.NetDual + `,"router":"r3"`, nbtest.NetDual + nbtest.OnR1 + `,"snat":false`, nbtest.Net4 + nbtest.OnR1, nbtest.Net6 + nbtest.OnR1,
		`"subnets":"10.0.0.0/8,fd01::/64"` + nbtest.OnR1, `"topology":"layer3","subnets":"10.128.0.0/16/24"` + nbtest.OnR1,
		`"topology":"layer3","subnets":"10.128.0.0/16/24"`, `"topology":"localnet","physicalNetworkName":"p"`,
	}
	w := nbtest.NewWorld(t)
	n := nbtest.ConnectFor(t, w.Endpoint(), routers)
	begin := func(t *testing.T) {
		t.Helper()
		w.Clear(t)
		for _, r := range routers {
			if _, err := n.Gateways.Ensure(nbtest.WithLimit(t), r, nbtest.OneNode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, from := range all {
		for _, to := range all {
			t.Run(from+" to "+to, func(t *testing.T) {
				begin(t)
				nbtest.Ensure(t, n, nbtest.Network(t, "blue", to))
				want := w.Rows(t)
				begin(t)
				empty := w.Rows(t)
				nbtest.Ensure(t, n, nbtest.Network(t, "blue", from))
				if changed := nbtest.Ensure(t, n, nbtest.Network(t, "blue", to)); changed != (from != to) {
					t.Errorf("changed is %t", changed)
				}
				w.WantRows(t, want)
				if err := n.Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
					t.Error(err)
				}
				w.WantRows(t, empty)
			})
		}
	}
}

// A network does not wait for its router's gateway, nor for its nodes: it makes it. The nodes come later.
func TestNetworkMakesItsGateway(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	want := w.Rows(t)
	w.Clear(t)
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	if got := w.Rows(t)["HA_Chassis_Group"][nbtest.GwGroup]; got["name"] != "shop/r1:gateway" || got["ha_chassis"] != "" {
		t.Errorf("the group is %v", got)
	}
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	w.WantRows(t, want)

	// One that someone took away is made again, and has what the network has in it; who is not asked for nodes keeps them.
	w.Remove(t, "Logical_Router", nbtest.GwRouter)
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	w.WantRows(t, want)
}

// What others do to a network's rows in routers is put right.
func TestNetworksRowsInRoutersAreMended(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	green := nbtest.Network(t, "green", `"topology":"layer3","subnets":"10.128.0.0/16/24"`+nbtest.OnR1)
	nbtest.Ensure(t, n, green)
	want := w.Rows(t)
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
		{"routes of the gateway", "Logical_Router", nbtest.GwRouter, ovndbtest.Op{"static_routes": none}},
		{"routes of the router", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"static_routes": none}},
		{"NAT of the gateway", "Logical_Router", nbtest.GwRouter, ovndbtest.Op{"nat": none}},
		{"NAT, type", "NAT", nat, ovndbtest.Op{"type": "dnat_and_snat"}},
		{"NAT, address", "NAT", nat, ovndbtest.Op{"external_ip": "192.0.2.99"}},
		{"NAT, subnet", "NAT", nat, ovndbtest.Op{"logical_ip": "10.128.0.0/24"}},
		{"NAT, marks", "NAT", nat, ovndbtest.Op{"external_ids": ovndbtest.Map(nil)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.Change(t, tt.table, tt.key, tt.columns)
			nbtest.Ensure(t, n, green)
			nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode) // whose own routes went with the network's
			w.WantRows(t, want)
		})
	}
}

// A subnet that the gateway has a use for is no network's.
func TestNetworkThatMeetsItsGateway(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", `"subnets":"10.1.0.0/24"`+nbtest.OnR1))
	through := *w
	through.Networks = n
	for _, tt := range []struct{ name, keys, reason string }{
		{"the join subnet", `"subnets":"100.88.0.128/25"`, "router: subnet 100.88.0.128/25 overlaps joinSubnet 100.88.0.0/24 of router shop/r1"},
		{"the IPv6 join subnet", `"subnets":"10.2.0.0/24,fd88::/48"`, "router: subnet fd88::/48 overlaps joinSubnet fd88::/64 of router shop/r1"},
		{"the external subnet", `"subnets":"192.0.0.0/16"`, "router: subnet 192.0.0.0/16 overlaps externalSubnet 192.0.2.0/24 of router shop/r1"},
		{"the whole of a layer3 network", `"topology":"layer3","subnets":"100.64.0.0/10/24"`,
			"router: subnet 100.64.0.0/10 overlaps joinSubnet 100.88.0.0/24 of router shop/r1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := w.Versions(t)
			through.WantRefused(t, nbtest.Network(t, "red", tt.keys+nbtest.OnR1), tt.reason)
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
	t.Run("growth into it", func(t *testing.T) {
		nbtest.Ensure(t, n, nbtest.Network(t, "red", `"subnets":"100.89.0.0/24","gateway":"100.89.0.1"`+nbtest.OnR1))
		through.WantRefused(t, nbtest.Network(t, "red", `"subnets":"100.88.0.0/15","gateway":"100.89.0.1"`+nbtest.OnR1),
			"router: subnet 100.88.0.0/15 overlaps joinSubnet 100.88.0.0/24 of router shop/r1")
	})
	t.Run("a router without a gateway", func(t *testing.T) {
		nbtest.Ensure(t, n, nbtest.Network(t, "grey", `"subnets":"100.88.0.0/24","router":"r2"`))
		if got := w.Names(t, "Logical_Router_Port"); got != "shop/r1:external shop/r1:gateway shop/r1:join shop/r1:shop/blue shop/r1:shop/red shop/r2:shop/grey" {
			t.Errorf("router ports %q", got)
		}
	})
}

// The gateway goes between a network's look and its write: it is made again, not left half.
func TestNetworkIsRacedByItsGateway(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, n *nbtest.Client, w *nbtest.World){
		"it went": func(t *testing.T, _ *nbtest.Client, w *nbtest.World) {
			if err := w.Other(t).Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
				t.Error(err)
			}
		},
		"it lost its router": func(t *testing.T, _ *nbtest.Client, w *nbtest.World) { w.Remove(t, "Logical_Router", nbtest.GwRouter) },
		"the network is made by another": func(t *testing.T, n *nbtest.Client, _ *nbtest.World) {
			nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			n, other := w.Routed(t, nbtest.GwFull), nbtest.ConnectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull)})
			nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
			nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
			want := w.Rows(t)
			w.MustRemove(t, "shop/blue", false)
			w.Meanwhile(t, "NAT", func() { do(t, other, w) })
			nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
			nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
			w.WantRows(t, want)
		})
	}
}

// A gateway that is still that of another configuration is brought up to date first: routes of networks lead to its addresses.
func TestGatewayOfAnotherConfiguration(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	want := w.Rows(t)
	for _, name := range []string{"external addresses", "external subnets", "IPv4 alone", "IPv6 alone", "join subnets"} {
		t.Run(name, func(t *testing.T) {
			keys := nbtest.GatewayChanges()[name]
			w.Clear(t)
			old := w.Routed(t, keys)
			nbtest.EnsureGateway(t, old, keys, nbtest.OneNode)
			nbtest.Ensure(t, old, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
			nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
			w.WantRows(t, want)
		})
	}
}
