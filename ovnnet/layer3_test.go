package ovnnet_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

func TestLayer3IsMade(t *testing.T) {
	w := newWorld(t)
	for keys, router := range map[string]string{layer3All: "shop/blue:router", layer3All + onR1: "shop/r1"} {
		t.Run(router, func(t *testing.T) {
			w.clear(t)
			blue := network(t, "blue", keys)
			w.proxy.Reset()
			ensure(t, w.networks, blue)
			w.wantCommitted(t, 2) // the router's own, and all the rest
			four, six := ovndb.PartKey("route discard4", "shop/blue"), ovndb.PartKey("route discard6", "shop/blue")
			marks := "ovn-multinet/network=shop/blue ovn-multinet/router=" + router
			w.wantRows(t, map[string]map[string]fields{
				"Logical_Switch": {blueKey: {"name": "shop/blue", "external_ids": ids(blue, "")}},
				"Logical_Router": {ovndb.RouterKey(router): {"name": router, "external_ids": "ovn-multinet/router=" + router, "static_routes": keysInOrder(four, six)}},
				"Logical_Router_Static_Route": {
					four: {"ip_prefix": "10.128.0.0/16", "nexthop": "discard", "external_ids": marks},
					six:  {"ip_prefix": "fd01::/48", "nexthop": "discard", "external_ids": marks},
				},
			})
			// A router that has nothing but the network's routes is in use.
			w.proxy.Reset()
			if err := w.networks.DropUnusedRouters(withLimit(t)); err != nil {
				t.Error(err)
			}
			if ensure(t, w.networks, blue) {
				t.Error("changed is true")
			}
			w.wantCommitted(t, 0)
		})
	}
}

// A router stays with a layer3 network that no node has a part of, whoever leaves it.
func TestLayer3KeepsItsRouter(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", layer3+onR1))
	want := w.rows(t)
	for _, leave := range []func(){
		func() { w.mustRemove(t, "shop/red", false) },
		func() {
			ensure(t, w.networks, network(t, "red", net4))
			w.mustRemove(t, "shop/red", false)
		},
	} {
		ensure(t, w.networks, network(t, "red", net4+onR1))
		leave()
		w.wantRows(t, want)
	}
}

// podOn puts a pod's port on a node's switch.
func (w *world) podOn(t *testing.T, node string) {
	t.Helper()
	w.putPort(t, "Logical_Switch", nodeKey(node), strange, ovndbtest.Op{"name": "shop/web-0/net1", "external_ids": ovndbtest.Map(map[string]string{
		"ovn-multinet/network": "shop/blue", "ovn-multinet/namespace": "shop", "ovn-multinet/pod": "web-0", "ovn-multinet/sandbox": "s1"})})
}

// A change is the network's and all its nodes' in one transaction, and then all is as if it had been so at first.
func TestLayer3ChangesWithItsNodes(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		name, from, to string
		committed      int
	}{
		{"mtu", layer3All, layer3All + `,"mtu":1300`, 1},
		{"routes", layer3, layer3 + `,"routes":[{"dst":"10.9.0.0/16"}]`, 1},
		{"excludeSubnets", layer3, layer3 + `,"excludeSubnets":"10.128.0.0/17"`, 1},
		{"attach", layer3All, layer3All + onR1, 3},
		{"move", layer3All + onR1, layer3All + `,"router":"r2"`, 3},
		{"detach", layer3 + onR1, layer3, 3},
		{"growth", layer3, `"topology":"layer3","subnets":"10.128.0.0/9/24"`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.clear(t)
			from, to := network(t, "blue", tt.from), network(t, "blue", tt.to)
			ensure(t, w.networks, from)
			views := []*netmodel.Network{share(t, w.networks, from, "n1"), share(t, w.networks, from, "n2")}
			w.podOn(t, "n1")
			w.proxy.Reset()
			w.proxy.Before(func(tx ovndbtest.Transact) { // not one of the switches without the others
				n := 0
				for _, op := range tx.Ops {
					if op["op"] == "update" && op["table"] == "Logical_Switch" {
						n++
					}
				}
				if n != 0 && n != 3 {
					t.Errorf("a transaction that changes %d switches", n)
				}
			})
			ensure(t, w.networks, to)
			w.proxy.Before(nil)
			w.wantCommitted(t, tt.committed)
			rows := w.rows(t)
			router := ovndb.RouterKey(to.RouterName())
			for _, v := range views {
				is := to.ForNode(v.Node, v.Subnets)
				for table, want := range part(is, to.RouterName()) {
					for key, row := range want {
						got := maps.Clone(rows[table][key])
						if table == "Logical_Switch" { // not the pod's, nor what excludeSubnets leaves
							got["ports"], row["ports"] = "", ""
							got["other_config"], row["other_config"] = "", ""
						}
						if !maps.Equal(got, row) {
							t.Errorf("%s %s\nis   %v\nwant %v", table, key, got, row)
						}
					}
				}
				if !strings.Contains(rows["Logical_Router"][router]["ports"], ovndb.RouterPortKey("shop/blue@"+v.Node)) {
					t.Errorf("router %v has no port of %s", rows["Logical_Router"][router], v.Node)
				}
				if got := share(t, w.networks, to, v.Node); got.NodeSubnetsText() != v.NodeSubnetsText() {
					t.Errorf("the blocks of %s are %s, were %s", v.Node, got.NodeSubnetsText(), v.NodeSubnetsText())
				}
			}
			if got := rows["Logical_Switch_Port"][strange]["name"]; got != "shop/web-0/net1" {
				t.Errorf("the pod's port is %q", got)
			}
			if got := w.names(t, "Logical_Router"); got != to.RouterName() {
				t.Errorf("routers %q", got)
			}
		})
	}
}

// What would cut pods off waits until there are none; then nothing is left of what was.
func TestLayer3ChangesThatPodsForbid(t *testing.T) {
	w := newWorld(t)
	const with = ", with 1 port on the network"
	for _, tt := range []struct{ name, from, to, reason string }{
		{"another subnet", layer3, `"topology":"layer3","subnets":"10.129.0.0/16/24"`, "subnets: 10.128.0.0/16 cannot become 10.129.0.0/16, which does not hold all of it"},
		{"other blocks", layer3, `"topology":"layer3","subnets":"10.128.0.0/16/25"`, "subnets: the node subnets of 10.128.0.0/16 cannot become /25, they are /24"},
		{"a family more", layer3, layer3All, "subnets: 10.128.0.0/16/24 cannot become 10.128.0.0/16/24,fd01::/48/64, nodes have their subnets"},
		{"a family less", layer3All, layer3, "subnets: fd01::/48 cannot be taken away"},
		{"layer2 of the same subnet", layer3, `"subnets":"10.128.0.0/16"` + onR1, "topology: layer3 cannot become layer2"},
		{"layer2 at a block's gateway", layer3All, `"subnets":"10.128.0.0/16,fd01::/48","gateway":"10.128.171.1"` + onR1, "topology: layer3 cannot become layer2"},
		{"localnet", layer3, `"topology":"localnet","physicalNetworkName":"p"`, "topology: layer3 cannot become localnet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.clear(t)
			from, to := network(t, "blue", tt.from), network(t, "blue", tt.to)
			ensure(t, w.networks, to)
			want := w.rows(t)
			w.clear(t)
			ensure(t, w.networks, from)
			share(t, w.networks, from, "n1")
			share(t, w.networks, from, "n2")
			w.podOn(t, "n2")
			before := w.versions(t)
			w.wantRefused(t, to, tt.reason+with)
			if after := w.versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
			w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": byKey(nodeKey("n2")),
				"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(strange)}}})
			ensure(t, w.networks, to)
			w.wantRows(t, want)
			ensure(t, w.networks, from) // and back
			share(t, w.networks, from, "n1")
			w.mustRemove(t, "shop/blue", false)
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
	t.Run("layer2 with a pod to layer3", func(t *testing.T) {
		w.clear(t)
		ensure(t, w.networks, network(t, "blue", net4+onR1))
		w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
		w.wantRefused(t, network(t, "blue", layer3+onR1), "topology: layer2 cannot become layer3"+with)
	})
}

// A node gets its part at the very moment of a change: it is of the change, or it is not at all.
func TestShareIsRaced(t *testing.T) {
	from, to := network(t, "blue", layer3), network(t, "blue", layer3+`,"mtu":1300`+onR1)
	moved := network(t, "blue", `"topology":"layer3","subnets":"10.129.0.0/16/24"`)
	gone := func(t *testing.T, n *ovnnet.Networks) {
		if err := n.Remove(withLimit(t), "shop/blue", false); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, n *ovnnet.Networks)
		want   *netmodel.Network // afterwards; nil: nothing
	}{
		{"a change", func(t *testing.T, n *ovnnet.Networks) { ensure(t, n, to) }, to},
		{"a change that drops the nodes' parts", func(t *testing.T, n *ovnnet.Networks) { ensure(t, n, moved) }, moved},
		{"its end", gone, nil},
	} {
		for _, nodes := range [][]string{nil, {"n1"}} { // those that are there before
			begin := func(t *testing.T) (*world, *ovnnet.Networks) {
				w := newWorld(t)
				ensure(t, w.networks, from)
				for _, node := range nodes {
					share(t, w.networks, from, node)
				}
				return w, w.other(t)
			}
			wantAll := func(t *testing.T, w *world) {
				t.Helper()
				for key, sw := range w.rows(t)["Logical_Switch"] {
					if tt.want == nil || ext(sw, "ovn-multinet/nad:shop/blue") != tt.want.Revision() ||
						ext(sw, "ovn-multinet/node") != "" && tt.want.ParseNodeSubnets(ext(sw, "ovn-multinet/blocks")) == nil {
						t.Errorf("switch %s is left: %v", key, sw)
					}
				}
				if tt.want == nil {
					w.wantRows(t, map[string]map[string]fields{})
				} else if got := w.names(t, "Logical_Router"); got != tt.want.RouterName() {
					t.Errorf("routers %q", got)
				}
			}
			t.Run(sprint("%s before the node's write, %v", tt.name, nodes), func(t *testing.T) {
				w, other := begin(t)
				w.meanwhile(t, "Logical_Switch", func() { tt.change(t, other) })
				if view, err := w.networks.Share(withLimit(t), from, "n2"); view != nil || !errors.Is(err, ovnnet.ErrNotAccepted) {
					t.Errorf("%v, %v; want ErrNotAccepted", view, err)
				}
				wantAll(t, w)
			})
			t.Run(sprint("the node before its write, %s, %v", tt.name, nodes), func(t *testing.T) {
				w, other := begin(t)
				w.meanwhile(t, "Logical_Switch", func() { share(t, other, from, "n2") })
				tt.change(t, w.networks)
				wantAll(t, w)
			})
			t.Run(sprint("a node before each write of it, %s, %v", tt.name, nodes), func(t *testing.T) {
				w, other := begin(t)
				n := 10
				w.proxy.Before(func(tx ovndbtest.Transact) {
					if n++; tx.Writes && n < 16 {
						_, err := other.Share(withLimit(t), from, sprint("n%d", n))
						if err != nil && !errors.Is(err, ovnnet.ErrNotAccepted) {
							t.Error(err)
						}
					}
				})
				tt.change(t, w.networks)
				w.proxy.Before(nil)
				wantAll(t, w)
			})
		}
	}
	t.Run("the agent's other self", func(t *testing.T) {
		w := newWorld(t)
		ensure(t, w.networks, from)
		other, first := w.other(t), ""
		w.meanwhile(t, "Logical_Switch", func() { first = share(t, other, from, "n1").NodeSubnetsText() })
		if got := share(t, w.networks, from, "n1").NodeSubnetsText(); got != first || strings.Count(w.switches(t), "@") != 1 {
			t.Errorf("blocks %s and %s, switches %s", first, got, w.switches(t))
		}
	})
}

// On a shared router the whole of a layer3 network is its own, whether nodes have blocks of it or not.
func TestLayer3Overlaps(t *testing.T) {
	for _, nodes := range []int{0, 1} {
		w := newWorld(t)
		blue := network(t, "blue", layer3+onR1)
		ensure(t, w.networks, blue)
		for i := range nodes {
			share(t, w.networks, blue, sprint("n%d", i))
		}
		const of = " overlaps 10.128.0.0/16 of network shop/blue on router shop/r1"
		w.wantRefused(t, network(t, "red", `"subnets":"10.128.3.0/24"`+onR1), "router: subnet 10.128.3.0/24"+of)
		w.wantRefused(t, network(t, "red", `"topology":"layer3","subnets":"10.0.0.0/8/24"`+onR1), "router: subnet 10.0.0.0/8"+of)
		ensure(t, w.networks, network(t, "red", `"subnets":"10.129.3.0/24"`+onR1))
		w.wantRefused(t, network(t, "green", `"topology":"layer3","subnets":"10.129.0.0/16/24"`+onR1),
			"router: subnet 10.129.0.0/16 overlaps 10.129.3.0/24 of network shop/red on router shop/r1")
		w.wantRefused(t, network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/9/24"`+onR1),
			"router: subnet 10.128.0.0/9 overlaps 10.129.3.0/24 of network shop/red on router shop/r1")
		ensure(t, w.networks, network(t, "green", layer3)) // a router of its own
	}
	for _, first := range []bool{true, false} {
		w := newWorld(t)
		red, blue := network(t, "red", `"subnets":"10.128.3.0/24"`+onR1), network(t, "blue", layer3+onR1)
		ensure(t, w.networks, network(t, "grey", `"subnets":"10.1.0.0/24"`+onR1))
		if first {
			w.meanwhile(t, "Logical_Router_Static_Route", func() { ensure(t, w.other(t), red) })
			w.wantRefused(t, blue, "router: subnet 10.128.0.0/16 overlaps 10.128.3.0/24 of network shop/red on router shop/r1")
		} else {
			w.meanwhile(t, "Logical_Router_Port", func() { ensure(t, w.other(t), blue) })
			w.wantRefused(t, red, "router: subnet 10.128.3.0/24 overlaps 10.128.0.0/16 of network shop/blue on router shop/r1")
		}
	}
}

func TestLayer3IsRemoved(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "red", `"subnets":"10.2.0.0/24"`+onR1))
	want := w.rows(t)
	for _, force := range []bool{false, true} {
		blue := network(t, "blue", layer3All+onR1)
		ensure(t, w.networks, blue)
		share(t, w.networks, blue, "n1")
		share(t, w.networks, blue, "n2")
		w.podOn(t, "n2")
		if !force {
			w.proxy.Reset()
			w.wantInUse(t, "used by pod shop/web-0")
			w.wantCommitted(t, 1)
			for key, sw := range w.rows(t)["Logical_Switch"] {
				if ext(sw, "ovn-multinet/network") == "shop/blue" && strings.Contains(sw["external_ids"], "ovn-multinet/nad:") {
					t.Errorf("switch %s takes ports: %v", key, sw)
				}
			}
			w.wantInUse(t, "used by pod shop/web-0")
			w.wantCommitted(t, 0)
			w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": byKey(nodeKey("n2")),
				"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(strange)}}})
		}
		w.mustRemove(t, "shop/blue", force)
		w.wantRows(t, want)
	}
}

// A pod that comes to a node at the moment of the network's end, or of a change that would cut it off, is seen.
func TestLayer3IsRacedByAPod(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, w *world){
		"its end": func(t *testing.T, w *world) { w.wantInUse(t, "used by pod shop/web-0") },
		"a change": func(t *testing.T, w *world) {
			w.wantRefused(t, network(t, "blue", net4), "topology: layer3 cannot become layer2, with 1 port on the network")
		},
		"its node's end": func(t *testing.T, w *world) {
			err := w.networks.DropNode(withLimit(t), "shop/blue", "n1")
			if _, ok := errors.AsType[*ovnnet.InUse](err); !ok || err.Error() != "logical switch shop/blue@n1: used by 1 port" {
				t.Errorf("%v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			blue := network(t, "blue", layer3)
			ensure(t, w.networks, blue)
			share(t, w.networks, blue, "n1")
			w.meanwhile(t, "Logical_Switch", func() { w.podOn(t, "n1") })
			do(t, w)
			if got := w.rows(t)["Logical_Switch_Port"][strange]["name"]; got != "shop/web-0/net1" {
				t.Errorf("the pod's port is %q", got)
			}
		})
	}
}

// To northd a restart of the controller is nothing, with all kinds of networks and nodes.
func TestRestartWithLayer3WritesNothing(t *testing.T) {
	w, a := newWorld(t), newAPI()
	a.setNodes(nil)
	a.grants = granted(t, `"p":[{"vlans":"7","namespaces":["shop"]}]`)
	n := w.routed(t, gwFull)
	all := map[string]string{"shop/blue": layer3All + onR1, "shop/red": layer3, "shop/green": `"topology":"localnet","physicalNetworkName":"p","vlanID":7`, "shop/grey": `"subnets":"10.2.0.0/24"` + onR1}
	ensureGateway(t, n, gwFull, []ovnnet.Chassis{})
	for _, id := range slices.Sorted(maps.Keys(all)) {
		_, name, _ := strings.Cut(id, "/")
		nn := network(t, name, all[id])
		ensure(t, n, nn)
		if nn.Topology == netmodel.Layer3 {
			share(t, n, nn, "n1")
			share(t, n, nn, "n2")
		}
		a.apply(id, spec(all[id]))
	}
	before := w.versions(t)
	w.proxy.Reset()
	_, r := routing(t, w, a, n)
	for id := range all {
		r.wantState(t, id, "ready, held")
	}
	w.wantCommitted(t, 0)
	if after := w.versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}
