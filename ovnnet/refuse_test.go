package ovnnet_test

import (
	"maps"
	"net/netip"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

const strange = "11111111-0000-4000-8000-000000000001"

// claim puts a claim of a pod's port on an address of shop/blue.
func (w *world) claim(t *testing.T, key string) {
	t.Helper()
	w.put(t, "Copp", key, "a claim", map[string]string{"ovn-multinet/port-name": "shop/web-0/net1", "ovn-multinet/network": "shop/blue", "ovn-multinet/port": strange})
}

// putRouterPort puts a port on a router that nobody of ours made.
func (w *world) putRouterPort(t *testing.T, router, key, name, networks string, ids map[string]string) {
	t.Helper()
	w.putPort(t, "Logical_Router", router, key, ovndbtest.Op{
		"name": name, "mac": "02:00:00:00:00:01", "networks": networks, "external_ids": ovndbtest.Map(ids)})
}

// Rows in our way that are not ours are left alone, and the network's owner can read which.
func TestForeignRowsAreLeftAlone(t *testing.T) {
	routerKey, portKey := ovndb.RouterKey("shop/r1"), ovndb.RouterPortKey("shop/blue")
	wideMAC, _ := ovndb.LeaseMAC(netip.MustParsePrefix("fd01::/64"), netip.MustParseAddr("fd01::1:0:5"))
	wide := ovndb.MACKey("shop/blue", wideMAC)
	sw := func(ids map[string]string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.put(t, "Logical_Switch", blueKey, "shop/blue", ids) }
	}
	router := func(ids map[string]string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.put(t, "Logical_Router", routerKey, "shop/r1", ids) }
	}
	routerPort := func(ids map[string]string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			w.put(t, "Logical_Router", strange, "lr", nil)
			w.putRouterPort(t, strange, portKey, "p", "192.0.2.1/24", ids)
		}
	}
	pod := func(key string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			ensure(t, w.networks, network(t, "blue", netDual+`,"gateway":"10.1.0.100,fd01::100"`))
			w.podAt(t, "shop/blue", key, "web-0", "net1")
		}
	}
	claim := func(key string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.claim(t, key) }
	}
	switchRefused := "logical switch " + blueKey + " is not ours"
	routerRefused := "router: logical router " + routerKey + " is not ours"
	portRefused := "logical router port " + portKey + " is not ours"
	const held = "gateway: its address is held by port shop/web-0/net1"
	const keysWide = net6 + `,"gateway":"fd01::1:0:5"` + onR1
	tests := []struct {
		name, keys string
		there      func(*testing.T, *world)
		reason     string
	}{
		{"switch, no mark", net4, sw(nil), switchRefused},
		{"switch, another network's", net4, sw(map[string]string{"ovn-multinet/network": "shop/red"}), switchRefused},
		{"switch, a router's mark", net4, sw(map[string]string{"ovn-multinet/router": "shop/blue"}), switchRefused},
		{"switch, another controller's", net4, sw(map[string]string{"k8s.ovn.org/network": "shop/blue"}), switchRefused},
		{"router, no mark", net4 + onR1, router(nil), routerRefused},
		{"router, another's", net4 + onR1, router(map[string]string{"ovn-multinet/router": "shop/r2"}), routerRefused},
		{"router port, no mark", net4 + onR1, routerPort(nil), portRefused},
		{"router port, another's", net4 + onR1, routerPort(map[string]string{"ovn-multinet/network": "shop/red"}), portRefused},
		{"router port of a network without router", net4, routerPort(nil), portRefused},
		{"a pod's lease at the gateway", netDual + onR1, pod(keyOf("10.1.0.1")), held},
		{"a pod's lease at the second gateway", netDual + onR1, pod(keyOf("fd01::1")), held},
		{"a pod's claim at the gateway", net4 + onR1, claim(keyOf("10.1.0.1")), held},
		{"a pod's claim at the second gateway", netDual + onR1, claim(keyOf("fd01::1")), held},
		{"a pod's lease at the wide gateway's MAC", keysWide, pod(wide), held},
		{"a pod's claim at the wide gateway's MAC", keysWide, claim(wide), held},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.there(t, w)
			before := w.versions(t)
			w.proxy.Reset()
			w.wantRefused(t, network(t, "blue", tt.keys), tt.reason)
			w.wantCommitted(t, 0)
			if after := w.versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

// Of two subnets that overlap, a router could reach one.
func TestOverlapOnARouter(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", netDual+onR1))
	w.putRouterPort(t, ovndb.RouterKey("shop/r1"), strange, "uplink", "192.0.2.1/24", nil)
	tests := []struct{ name, keys, reason string }{
		{"the same", net4, "router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"},
		{"the same in IPv6", `"subnets":"10.2.0.0/24,fd01::/64"`, "router: subnet fd01::/64 overlaps fd01::/64 of network shop/blue on router shop/r1"},
		{"a part", `"subnets":"10.1.0.128/25"`, "router: subnet 10.1.0.128/25 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"},
		{"the whole", `"subnets":"10.0.0.0/8"`, "router: subnet 10.0.0.0/8 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"},
		{"a port of someone else's", `"subnets":"192.0.2.128/25"`, "router: subnet 192.0.2.128/25 overlaps 192.0.2.0/24 of port uplink on router shop/r1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := w.versions(t)
			w.proxy.Reset()
			w.wantRefused(t, network(t, "red", tt.keys+onR1), tt.reason)
			w.wantCommitted(t, 0)
			if after := w.versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
	t.Run("growth into it", func(t *testing.T) {
		ensure(t, w.networks, network(t, "red", `"subnets":"10.1.1.0/24","gateway":"10.1.1.1"`+onR1))
		before := w.versions(t)
		w.wantRefused(t, network(t, "red", `"subnets":"10.1.0.0/16","gateway":"10.1.1.1"`+onR1),
			"router: subnet 10.1.0.0/16 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1")
		if after := w.versions(t); !maps.Equal(before, after) {
			t.Errorf("rows %v became %v", before, after)
		}
	})
	t.Run("move to it", func(t *testing.T) {
		ensure(t, w.networks, network(t, "green", net4+`,"router":"r2"`)) // routers do not mind each other
		w.wantRefused(t, network(t, "green", net4+onR1), "router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1")
	})
	t.Run("no router", func(t *testing.T) { ensure(t, w.networks, network(t, "grey", netDual)) })
	if got := w.switches(t) + ", " + w.names(t, "Logical_Router_Port"); got != "shop/blue shop/green shop/grey shop/red, shop/r1:shop/blue shop/r1:shop/red shop/r2:shop/green uplink" {
		t.Errorf("switches and router ports %q", got)
	}
}

// Another network is attached between the look at the router and the write.
func TestOverlapIsRaced(t *testing.T) {
	for name, there := range map[string]bool{"on a router with ports": true, "on a new router": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if there {
				ensure(t, w.networks, network(t, "green", `"subnets":"10.2.0.0/24"`+onR1))
			}
			w.meanwhile(t, "Logical_Router_Port", func() { ensure(t, w.other(t), network(t, "red", net4+onR1)) })
			w.wantRefused(t, network(t, "blue", net4+onR1), "router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/red on router shop/r1")
			if w.rows(t)["Logical_Switch"][blueKey] != nil || w.rows(t)["Logical_Router_Port"][ovndb.RouterPortKey("shop/blue")] != nil {
				t.Errorf("switches %q", w.switches(t))
			}
		})
	}
}

// What would cut off or renumber machines waits until there are none.
func TestChangesThatPortsForbid(t *testing.T) {
	dual := netDual + onR1
	tests := []struct{ name, from, to, reason string }{
		{"another gateway", dual, dual + `,"gateway":"10.1.0.9"`, `gateway: 10.1.0.1 cannot become 10.1.0.9; write "gateway": "10.1.0.1" to keep it, with %s on the network`},
		{"a subnet less", dual, net4 + onR1, "subnets: fd01::/64 cannot be taken away, with %s on the network"},
		{"a smaller subnet", net4, `"subnets":"10.1.0.0/25"`, "subnets: 10.1.0.0/24 cannot become 10.1.0.0/25, which does not hold all of it, with %s on the network"},
		{"another subnet", net4, `"subnets":"10.2.0.0/24"`, "subnets: 10.1.0.0/24 cannot become 10.2.0.0/24, which does not hold all of it, with %s on the network"},
		{"no subnet any more", net4, "", "subnets: 10.1.0.0/24 cannot be taken away, with %s on the network"},
	}
	ports := []struct {
		name, count string
		put         func(t *testing.T, w *world)
	}{
		{"a pod's port", "1 port", func(t *testing.T, w *world) { w.pod(t, "blue", "10.1.0.77", "web-0", "net1") }},
		{"someone else's port", "1 port", func(t *testing.T, w *world) { w.machine(t, "shop/blue", strange, "vm") }},
		{"both", "2 ports", func(t *testing.T, w *world) {
			w.pod(t, "blue", "10.1.0.77", "web-0", "net1")
			w.machine(t, "shop/blue", strange, "vm")
		}},
	}
	w := newWorld(t)
	for _, tt := range tests {
		for _, p := range ports {
			t.Run(tt.name+", "+p.name, func(t *testing.T) {
				w.clear(t)
				ensure(t, w.networks, network(t, "blue", tt.from))
				p.put(t, w)
				before := w.versions(t)
				w.wantRefused(t, network(t, "blue", tt.to), sprint(tt.reason, p.count))
				if after := w.versions(t); !maps.Equal(before, after) {
					t.Errorf("rows %v became %v", before, after)
				}
			})
		}
		// The router's own port is no machine.
		t.Run(tt.name+", no ports", func(t *testing.T) {
			w.clear(t)
			ensure(t, w.networks, network(t, "blue", tt.to))
			want := w.rows(t)
			w.clear(t)
			ensure(t, w.networks, network(t, "blue", tt.from))
			ensure(t, w.networks, network(t, "blue", tt.to))
			w.wantRows(t, want)
		})
	}
}

// Pods stay on a network that grows or whose excluded addresses change, with the ports that they have.
func TestChangesBesidePorts(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", net4+onR1))
	w.pod(t, "blue", "10.1.0.77", "web-0", "net1")
	pod := w.rows(t)["Logical_Switch_Port"][keyOf("10.1.0.77")]
	for _, tt := range []struct{ name, keys, other string }{
		{"excludeSubnets", net4 + `,"excludeSubnets":"10.1.0.128/25"` + onR1, "exclude_ips=10.1.0.1 10.1.0.2..10.1.0.127 subnet=10.1.0.0/24"},
		{"growth", `"subnets":"10.1.0.0/16"` + onR1, ""},
		{"a second family", `"subnets":"10.1.0.0/16,fd01::/64"` + onR1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.proxy.Reset()
			n := network(t, "blue", tt.keys)
			ensure(t, w.networks, n)
			w.wantCommitted(t, 1)
			rows := w.rows(t)
			if got := rows["Logical_Switch"][blueKey]["other_config"]; got != tt.other {
				t.Errorf("other_config %s, want %s", got, tt.other)
			}
			if got := rows["Logical_Switch_Port"][keyOf("10.1.0.77")]; !reflect.DeepEqual(got, pod) {
				t.Errorf("the pod's port %v became %v", pod, got)
			}
		})
	}
}
