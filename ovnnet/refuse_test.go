package ovnnet_test

import (
	"maps"
	"net/netip"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// Rows in our way that are not ours are left alone, and the network's owner can read which.
func TestForeignRowsAreLeftAlone(t *testing.T) {
	routerKey, portKey := ovndb.RouterKey("shop/r1"), ovndb.RouterPortKey("shop/blue")
	wideMAC, _ := ovndb.LeaseMAC(netip.MustParsePrefix("fd01::/64"), netip.MustParseAddr("fd01::1:0:5"))
	wide := ovndb.MACKey("shop/blue", wideMAC)
	sw := func(ids map[string]string) func(*testing.T, *nbtest.World) {
		return func(t *testing.T, w *nbtest.World) { w.Put(t, "Logical_Switch", nbtest.BlueKey, "shop/blue", ids) }
	}
	router := func(ids map[string]string) func(*testing.T, *nbtest.World) {
		return func(t *testing.T, w *nbtest.World) { w.Put(t, "Logical_Router", routerKey, "shop/r1", ids) }
	}
	routerPort := func(ids map[string]string) func(*testing.T, *nbtest.World) {
		return func(t *testing.T, w *nbtest.World) {
			w.Put(t, "Logical_Router", nbtest.Strange, "lr", nil)
			w.PutRouterPort(t, nbtest.Strange, portKey, "p", "192.0.2.1/24", ids)
		}
	}
	pod := func(key string) func(*testing.T, *nbtest.World) {
		return func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual+`,"gateway":"10.1.0.100,fd01::100"`))
			w.PodAt(t, "shop/blue", key, "web-0", "net1")
		}
	}
	claim := func(key string) func(*testing.T, *nbtest.World) {
		return func(t *testing.T, w *nbtest.World) { w.Claim(t, key) }
	}
	switchRefused := "logical switch " + nbtest.BlueKey + " is not ours"
	routerRefused := "router: logical router " + routerKey + " is not ours"
	portRefused := "logical router port " + portKey + " is not ours"
	const held = "gateway: its address belongs to port shop/web-0/net1"
	const keysWide = nbtest.Net6 + `,"gateway":"fd01::1:0:5"` + nbtest.OnR1
	tests := []struct {
		name, keys string
		there      func(*testing.T, *nbtest.World)
		reason     string
	}{
		{"switch, no mark", nbtest.Net4, sw(nil), switchRefused},
		{"switch, another network's", nbtest.Net4, sw(map[string]string{"ovn-multinet/network": "shop/red"}), switchRefused},
		{"switch, a router's mark", nbtest.Net4, sw(map[string]string{"ovn-multinet/router": "shop/blue"}), switchRefused},
		{"switch, another controller's", nbtest.Net4, sw(map[string]string{"k8s.ovn.org/network": "shop/blue"}), switchRefused},
		{"router, no mark", nbtest.Net4 + nbtest.OnR1, router(nil), routerRefused},
		{"router, another's", nbtest.Net4 + nbtest.OnR1, router(map[string]string{"ovn-multinet/router": "shop/r2"}), routerRefused},
		{"router port, no mark", nbtest.Net4 + nbtest.OnR1, routerPort(nil), portRefused},
		{"router port, another's", nbtest.Net4 + nbtest.OnR1, routerPort(map[string]string{"ovn-multinet/network": "shop/red"}), portRefused},
		{"router port of a network without router", nbtest.Net4, routerPort(nil), portRefused},
		{"a pod's lease at the gateway", nbtest.NetDual + nbtest.OnR1, pod(nbtest.KeyOf("10.1.0.1")), held},
		{"a pod's lease at the second gateway", nbtest.NetDual + nbtest.OnR1, pod(nbtest.KeyOf("fd01::1")), held},
		{"a pod's claim at the gateway", nbtest.Net4 + nbtest.OnR1, claim(nbtest.KeyOf("10.1.0.1")), held},
		{"a pod's claim at the second gateway", nbtest.NetDual + nbtest.OnR1, claim(nbtest.KeyOf("fd01::1")), held},
		{"a pod's lease at the wide gateway's MAC", keysWide, pod(wide), held},
		{"a pod's claim at the wide gateway's MAC", keysWide, claim(wide), held},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			tt.there(t, w)
			before := w.Versions(t)
			w.Proxy.Reset()
			w.WantRefused(t, nbtest.Network(t, "blue", tt.keys), tt.reason)
			w.WantCommitted(t, 0)
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

// Of two subnets that overlap, a router could reach one.
func TestOverlapOnARouter(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	w.PutRouterPort(t, ovndb.RouterKey("shop/r1"), nbtest.Strange, "uplink", "192.0.2.1/24", nil)
	tests := []struct{ name, keys, reason string }{
		{"the same", nbtest.Net4, "router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"},
		{"the same in IPv6", `"subnets":"10.2.0.0/24,fd01::/64"`, "router: subnet fd01::/64 overlaps fd01::/64 of network shop/blue on router shop/r1"},
		{"a part", `"subnets":"10.1.0.128/25"`, "router: subnet 10.1.0.128/25 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"},
		{"the whole", `"subnets":"10.0.0.0/8"`, "router: subnet 10.0.0.0/8 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"},
		{"a port of someone else's", `"subnets":"192.0.2.128/25"`, "router: subnet 192.0.2.128/25 overlaps 192.0.2.0/24 of port uplink on router shop/r1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := w.Versions(t)
			w.Proxy.Reset()
			w.WantRefused(t, nbtest.Network(t, "red", tt.keys+nbtest.OnR1), tt.reason)
			w.WantCommitted(t, 0)
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
	t.Run("growth into it", func(t *testing.T) {
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", `"subnets":"10.1.1.0/24","gateway":"10.1.1.1"`+nbtest.OnR1))
		before := w.Versions(t)
		w.WantRefused(t, nbtest.Network(t, "red", `"subnets":"10.1.0.0/16","gateway":"10.1.1.1"`+nbtest.OnR1),
			"router: subnet 10.1.0.0/16 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1")
		if after := w.Versions(t); !maps.Equal(before, after) {
			t.Errorf("rows %v became %v", before, after)
		}
	})
	t.Run("move to it", func(t *testing.T) {
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "green", nbtest.Net4+`,"router":"r2"`)) // routers do not mind each other
		w.WantRefused(t, nbtest.Network(t, "green", nbtest.Net4+nbtest.OnR1), "router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1")
	})
	t.Run("no router", func(t *testing.T) { nbtest.Ensure(t, w.Networks, nbtest.Network(t, "grey", nbtest.NetDual)) })
	if got := w.Switches(t) + ", " + w.Names(t, "Logical_Router_Port"); got != "shop/blue shop/green shop/grey shop/red, shop/r1:shop/blue shop/r1:shop/red shop/r2:shop/green uplink" {
		t.Errorf("switches and router ports %q", got)
	}
}

// Another network is attached between the look at the router and the write.
func TestOverlapIsRaced(t *testing.T) {
	for name, there := range map[string]bool{"on a router with ports": true, "on a new router": false} {
		t.Run(name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			if there {
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "green", `"subnets":"10.2.0.0/24"`+nbtest.OnR1))
			}
			w.Meanwhile(t, "Logical_Router_Port", func() { nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "red", nbtest.Net4+nbtest.OnR1)) })
			w.WantRefused(t, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1), "router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/red on router shop/r1")
			if w.Rows(t)["Logical_Switch"][nbtest.BlueKey] != nil || w.Rows(t)["Logical_Router_Port"][ovndb.RouterPortKey("shop/blue")] != nil {
				t.Errorf("switches %q", w.Switches(t))
			}
		})
	}
}

// What would cut off or renumber machines waits until there are none.
func TestChangesThatPortsForbid(t *testing.T) {
	dual := nbtest.NetDual + nbtest.OnR1
	tests := []struct{ name, from, to, reason string }{
		{"another gateway", dual, dual + `,"gateway":"10.1.0.9"`, `gateway: 10.1.0.1 cannot become 10.1.0.9; write "gateway": "10.1.0.1" to keep it, with %s on the network`},
		{"a subnet less", dual, nbtest.Net4 + nbtest.OnR1, "subnets: fd01::/64 cannot be removed, with %s on the network"},
		{"a smaller subnet", nbtest.Net4, `"subnets":"10.1.0.0/25"`, "subnets: 10.1.0.0/24 cannot become 10.1.0.0/25, which does not hold all of it, with %s on the network"},
		{"another subnet", nbtest.Net4, `"subnets":"10.2.0.0/24"`, "subnets: 10.1.0.0/24 cannot become 10.2.0.0/24, which does not hold all of it, with %s on the network"},
		{"no subnet any more", nbtest.Net4, "", "subnets: 10.1.0.0/24 cannot be removed, with %s on the network"},
	}
	ports := []struct {
		name, count string
		put         func(t *testing.T, w *nbtest.World)
	}{
		{"a pod's port", "1 port", func(t *testing.T, w *nbtest.World) { w.Pod(t, "blue", "10.1.0.77", "web-0", "net1") }},
		{"someone else's port", "1 port", func(t *testing.T, w *nbtest.World) { w.Machine(t, "shop/blue", nbtest.Strange, "vm") }},
		{"both", "2 ports", func(t *testing.T, w *nbtest.World) {
			w.Pod(t, "blue", "10.1.0.77", "web-0", "net1")
			w.Machine(t, "shop/blue", nbtest.Strange, "vm")
		}},
	}
	w := nbtest.NewWorld(t)
	for _, tt := range tests {
		for _, p := range ports {
			t.Run(tt.name+", "+p.name, func(t *testing.T) {
				w.Clear(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.from))
				p.put(t, w)
				before := w.Versions(t)
				w.WantRefused(t, nbtest.Network(t, "blue", tt.to), nbtest.Sprint(tt.reason, p.count))
				if after := w.Versions(t); !maps.Equal(before, after) {
					t.Errorf("rows %v became %v", before, after)
				}
			})
		}
		// The router's own port is no machine.
		t.Run(tt.name+", no ports", func(t *testing.T) {
			w.Clear(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.to))
			want := w.Rows(t)
			w.Clear(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.from))
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.to))
			w.WantRows(t, want)
		})
	}
}

// Pods stay on a network that grows or whose excluded addresses change, with the ports that they have.
func TestChangesBesidePorts(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
	w.Pod(t, "blue", "10.1.0.77", "web-0", "net1")
	pod := w.Rows(t)["Logical_Switch_Port"][nbtest.KeyOf("10.1.0.77")]
	for _, tt := range []struct{ name, keys, other string }{
		{"excludeSubnets", nbtest.Net4 + `,"excludeSubnets":"10.1.0.128/25"` + nbtest.OnR1, "exclude_ips=10.1.0.1 10.1.0.2..10.1.0.127 subnet=10.1.0.0/24"},
		{"growth", `"subnets":"10.1.0.0/16"` + nbtest.OnR1, ""},
		{"a second family", `"subnets":"10.1.0.0/16,fd01::/64"` + nbtest.OnR1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.Proxy.Reset()
			n := nbtest.Network(t, "blue", tt.keys)
			nbtest.Ensure(t, w.Networks, n)
			w.WantCommitted(t, 1)
			rows := w.Rows(t)
			if got := rows["Logical_Switch"][nbtest.BlueKey]["other_config"]; got != tt.other {
				t.Errorf("other_config %s, want %s", got, tt.other)
			}
			if got := rows["Logical_Switch_Port"][nbtest.KeyOf("10.1.0.77")]; !reflect.DeepEqual(got, pod) {
				t.Errorf("the pod's port %v became %v", pod, got)
			}
		})
	}
}
