package ovnnet_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nodesubnet"
)

func TestLayer3IsMade(t *testing.T) {
	w := nbtest.NewWorld(t)
	for keys, router := range map[string]string{nbtest.Layer3All: "shop/blue:router", nbtest.Layer3All + nbtest.OnR1: "shop/r1"} {
		t.Run(router, func(t *testing.T) {
			w.Clear(t)
			blue := nbtest.Network(t, "blue", keys)
			w.Proxy.Reset()
			nbtest.Ensure(t, w.Networks, blue)
			w.WantCommitted(t, 1) // with the router
			four, six := ovndb.PartKey("route discard4", "shop/blue"), ovndb.PartKey("route discard6", "shop/blue")
			marks := "ovn-multinet/network=shop/blue ovn-multinet/router=" + router
			w.WantRows(t, map[string]map[string]nbtest.Fields{
				"Logical_Switch": {nbtest.BlueKey: {"name": "shop/blue", "external_ids": ids}},
				"Copp":           {nbtest.BlueAccepted: nbtest.Accepted(blue)},
				"Logical_Router": {ovndb.RouterKey(router): {"name": router, "options": nbtest.RouterOptions, "external_ids": "ovn-multinet/router=" + router, "static_routes": nbtest.KeysInOrder(four, six)}},
				"Logical_Router_Static_Route": {
					four: {"ip_prefix": "10.128.0.0/16", "nexthop": "discard", "external_ids": marks},
					six:  {"ip_prefix": "fd01::/48", "nexthop": "discard", "external_ids": marks},
				},
			})
			// A router that has nothing but the network's routes is in use.
			w.Proxy.Reset()
			if err := w.Networks.DeleteUnusedRouters(nbtest.WithLimit(t)); err != nil {
				t.Error(err)
			}
			if nbtest.Ensure(t, w.Networks, blue) {
				t.Error("changed is true")
			}
			w.WantCommitted(t, 0)
		})
	}
}

// A router stays with a layer3 network that no node has a part of, whoever leaves it.
func TestLayer3KeepsItsRouter(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Layer3+nbtest.OnR1))
	want := w.Rows(t)
	for _, leave := range []func(){
		func() { w.MustRemove(t, "shop/red", false) },
		func() {
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", nbtest.Net4))
			w.MustRemove(t, "shop/red", false)
		},
	} {
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", nbtest.Net4+nbtest.OnR1))
		leave()
		w.WantRows(t, want)
	}
}

// A change is the network's and all its nodes' in one transaction, and then all is as if it had been so at first.
func TestLayer3ChangesWithItsNodes(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, tt := range []struct {
		name, from, to string
		committed      int
	}{
		{"mtu", nbtest.Layer3All, nbtest.Layer3All + `,"mtu":1300`, 1},
		{"routes", nbtest.Layer3, nbtest.Layer3 + `,"routes":[{"dst":"10.9.0.0/16"}]`, 1},
		{"excludeSubnets", nbtest.Layer3, nbtest.Layer3 + `,"excludeSubnets":"10.128.0.0/17"`, 1},
		{"attach", nbtest.Layer3All, nbtest.Layer3All + nbtest.OnR1, 2},
		{"move", nbtest.Layer3All + nbtest.OnR1, nbtest.Layer3All + `,"router":"r2"`, 2},
		{"detach", nbtest.Layer3 + nbtest.OnR1, nbtest.Layer3, 2},
		{"growth", nbtest.Layer3, `"topology":"layer3","subnets":"10.128.0.0/9/24"`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.Clear(t)
			from, to := nbtest.Network(t, "blue", tt.from), nbtest.Network(t, "blue", tt.to)
			nbtest.Ensure(t, w.Networks, from)
			views := []*netmodel.Network{nbtest.Share(t, w.Networks, from, "n1"), nbtest.Share(t, w.Networks, from, "n2")}
			w.PodOn(t, "n1")
			w.Proxy.Reset()
			w.Proxy.Before(func(tx ovndbtest.Transact) { // no switch without what is accepted
				updates := map[any]int{}
				for _, op := range tx.Ops {
					if op["op"] == "update" {
						updates[op["table"]]++
					}
				}
				if updates["Logical_Switch"] > 0 && updates["Copp"] == 0 {
					t.Errorf("a transaction that changes %v", updates)
				}
			})
			nbtest.Ensure(t, w.Networks, to)
			w.Proxy.Before(nil)
			w.WantCommitted(t, tt.committed)
			rows := w.Rows(t)
			router := ovndb.RouterKey(to.RouterName())
			for _, v := range views {
				is := to.ForNode(v.Node, v.Subnets)
				for table, want := range nbtest.Switch(is, to.RouterName()) {
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
				if got := nbtest.Share(t, w.Networks, to, v.Node); got.NodeSubnetsText() != v.NodeSubnetsText() {
					t.Errorf("the blocks of %s are %s, were %s", v.Node, got.NodeSubnetsText(), v.NodeSubnetsText())
				}
			}
			if got := rows["Logical_Switch_Port"][nbtest.Strange]["name"]; got != "shop/web-0/net1" {
				t.Errorf("the pod's port is %q", got)
			}
			if got := w.Names(t, "Logical_Router"); got != to.RouterName() {
				t.Errorf("routers %q", got)
			}
		})
	}
}

// What would cut pods off waits until there are none; then nothing is left of what was.
func TestLayer3ChangesThatPodsForbid(t *testing.T) {
	w := nbtest.NewWorld(t)
	const with = ", with 1 port on the network"
	for _, tt := range []struct{ name, from, to, reason string }{
		{"another subnet", nbtest.Layer3, `"topology":"layer3","subnets":"10.129.0.0/16/24"`, "subnets: 10.128.0.0/16 cannot become 10.129.0.0/16, which does not hold all of it"},
		{"other blocks", nbtest.Layer3, `"topology":"layer3","subnets":"10.128.0.0/16/25"`, "subnets: the node subnets of 10.128.0.0/16 cannot become /25, they are /24"},
		{"a family more", nbtest.Layer3, nbtest.Layer3All, "subnets: 10.128.0.0/16/24 cannot become 10.128.0.0/16/24,fd01::/48/64, nodes have their subnets"},
		{"a family less", nbtest.Layer3All, nbtest.Layer3, "subnets: fd01::/48 cannot be removed"},
		{"layer2 of the same subnet", nbtest.Layer3, `"subnets":"10.128.0.0/16"` + nbtest.OnR1, "topology: layer3 cannot become layer2"},
		{"layer2 at a block's gateway", nbtest.Layer3All, `"subnets":"10.128.0.0/16,fd01::/48","gateway":"10.128.171.1"` + nbtest.OnR1, "topology: layer3 cannot become layer2"},
		{"localnet", nbtest.Layer3, `"topology":"localnet","physicalNetworkName":"p"`, "topology: layer3 cannot become localnet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.Clear(t)
			from, to := nbtest.Network(t, "blue", tt.from), nbtest.Network(t, "blue", tt.to)
			nbtest.Ensure(t, w.Networks, to)
			want := w.Rows(t)
			w.Clear(t)
			nbtest.Ensure(t, w.Networks, from)
			nbtest.Share(t, w.Networks, from, "n1")
			nbtest.Share(t, w.Networks, from, "n2")
			w.PodOn(t, "n2")
			before := w.Versions(t)
			w.WantRefused(t, to, tt.reason+with)
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
			w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": nbtest.ByKey(nbtest.NodeKey("n2")),
				"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(nbtest.Strange)}}})
			nbtest.Ensure(t, w.Networks, to)
			w.WantRows(t, want)
			nbtest.Ensure(t, w.Networks, from) // and back
			nbtest.Share(t, w.Networks, from, "n1")
			w.MustRemove(t, "shop/blue", false)
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
	t.Run("layer2 with a pod to layer3", func(t *testing.T) {
		w.Clear(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
		w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
		w.WantRefused(t, nbtest.Network(t, "blue", nbtest.Layer3+nbtest.OnR1), "topology: layer2 cannot become layer3"+with)
	})
}

// A node gets its part at the very moment of a change: it is of the change, or it is not at all.
func TestShareIsRaced(t *testing.T) {
	from, to := nbtest.Network(t, "blue", nbtest.Layer3), nbtest.Network(t, "blue", nbtest.Layer3+`,"mtu":1300`+nbtest.OnR1)
	moved := nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.129.0.0/16/24"`)
	gone := func(t *testing.T, n *nbtest.Client) {
		if err := n.Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, n *nbtest.Client)
		want   *netmodel.Network // afterwards; nil: nothing
	}{
		{"a change", func(t *testing.T, n *nbtest.Client) { nbtest.Ensure(t, n, to) }, to},
		{"a change that drops the nodes' parts", func(t *testing.T, n *nbtest.Client) { nbtest.Ensure(t, n, moved) }, moved},
		{"its end", gone, nil},
	} {
		for _, nodes := range [][]string{nil, {"n1"}} { // those that are there before
			begin := func(t *testing.T) (*nbtest.World, *nbtest.Client) {
				w := nbtest.NewWorld(t)
				nbtest.Ensure(t, w.Networks, from)
				for _, node := range nodes {
					nbtest.Share(t, w.Networks, from, node)
				}
				return w, w.Other(t)
			}
			wantAll := func(t *testing.T, w *nbtest.World) {
				t.Helper()
				if tt.want != nil {
					w.WantAccepted(t, nbtest.Accepted(tt.want))
				}
				for key, sw := range w.Rows(t)["Logical_Switch"] {
					if tt.want == nil || nbtest.Ext(sw, "ovn-multinet/node") != "" && tt.want.ParseNodeSubnets(nbtest.Ext(sw, "ovn-multinet/blocks")) == nil {
						t.Errorf("switch %s is left: %v", key, sw)
					}
				}
				if tt.want == nil {
					w.WantRows(t, map[string]map[string]nbtest.Fields{})
				} else if got := w.Names(t, "Logical_Router"); got != tt.want.RouterName() {
					t.Errorf("routers %q", got)
				}
			}
			t.Run(nbtest.Sprint("%s before the node's write, %v", tt.name, nodes), func(t *testing.T) {
				w, other := begin(t)
				w.Meanwhile(t, "Logical_Switch", func() { tt.change(t, other) })
				if view, err := w.Networks.Subnets.Ensure(nbtest.WithLimit(t), from, "n2"); view != nil || !errors.Is(err, nodesubnet.ErrNotAccepted) {
					t.Errorf("%v, %v; want ErrNotAccepted", view, err)
				}
				wantAll(t, w)
			})
			t.Run(nbtest.Sprint("the node before its write, %s, %v", tt.name, nodes), func(t *testing.T) {
				w, other := begin(t)
				w.Meanwhile(t, "Copp", func() { nbtest.Share(t, other, from, "n2") })
				tt.change(t, w.Networks)
				wantAll(t, w)
			})
			t.Run(nbtest.Sprint("a node before each write of it, %s, %v", tt.name, nodes), func(t *testing.T) {
				w, other := begin(t)
				n := 10
				w.Proxy.Before(func(tx ovndbtest.Transact) {
					if n++; tx.Writes && n < 16 {
						_, err := other.Subnets.Ensure(nbtest.WithLimit(t), from, nbtest.Sprint("n%d", n))
						if err != nil && !errors.Is(err, nodesubnet.ErrNotAccepted) {
							t.Error(err)
						}
					}
				})
				tt.change(t, w.Networks)
				w.Proxy.Before(nil)
				wantAll(t, w)
			})
		}
	}
	t.Run("the agent's other self", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, from)
		other, first := w.Other(t), ""
		w.Meanwhile(t, "Logical_Switch", func() { first = nbtest.Share(t, other, from, "n1").NodeSubnetsText() })
		if got := nbtest.Share(t, w.Networks, from, "n1").NodeSubnetsText(); got != first || strings.Count(w.Switches(t), "@") != 1 {
			t.Errorf("blocks %s and %s, switches %s", first, got, w.Switches(t))
		}
	})
}

// On a shared router the whole of a layer3 network is its own, whether nodes have blocks of it or not.
func TestLayer3Overlaps(t *testing.T) {
	for _, nodes := range []int{0, 1} {
		w := nbtest.NewWorld(t)
		blue := nbtest.Network(t, "blue", nbtest.Layer3+nbtest.OnR1)
		nbtest.Ensure(t, w.Networks, blue)
		for i := range nodes {
			nbtest.Share(t, w.Networks, blue, nbtest.Sprint("n%d", i))
		}
		const of = " overlaps 10.128.0.0/16 of network shop/blue on router shop/r1"
		w.WantRefused(t, nbtest.Network(t, "red", `"subnets":"10.128.3.0/24"`+nbtest.OnR1), "router: subnet 10.128.3.0/24"+of)
		w.WantRefused(t, nbtest.Network(t, "red", `"topology":"layer3","subnets":"10.0.0.0/8/24"`+nbtest.OnR1), "router: subnet 10.0.0.0/8"+of)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", `"subnets":"10.129.3.0/24"`+nbtest.OnR1))
		w.WantRefused(t, nbtest.Network(t, "green", `"topology":"layer3","subnets":"10.129.0.0/16/24"`+nbtest.OnR1),
			"router: subnet 10.129.0.0/16 overlaps 10.129.3.0/24 of network shop/red on router shop/r1")
		w.WantRefused(t, nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/9/24"`+nbtest.OnR1),
			"router: subnet 10.128.0.0/9 overlaps 10.129.3.0/24 of network shop/red on router shop/r1")
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "green", nbtest.Layer3)) // a router of its own
	}
	for _, first := range []bool{true, false} {
		w := nbtest.NewWorld(t)
		red, blue := nbtest.Network(t, "red", `"subnets":"10.128.3.0/24"`+nbtest.OnR1), nbtest.Network(t, "blue", nbtest.Layer3+nbtest.OnR1)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "grey", `"subnets":"10.1.0.0/24"`+nbtest.OnR1))
		if first {
			w.Meanwhile(t, "Logical_Router_Static_Route", func() { nbtest.Ensure(t, w.Other(t), red) })
			w.WantRefused(t, blue, "router: subnet 10.128.0.0/16 overlaps 10.128.3.0/24 of network shop/red on router shop/r1")
		} else {
			w.Meanwhile(t, "Logical_Router_Port", func() { nbtest.Ensure(t, w.Other(t), blue) })
			w.WantRefused(t, red, "router: subnet 10.128.3.0/24 overlaps 10.128.0.0/16 of network shop/blue on router shop/r1")
		}
	}
}

func TestLayer3IsRemoved(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", `"subnets":"10.2.0.0/24"`+nbtest.OnR1))
	want := w.Rows(t)
	for _, force := range []bool{false, true} {
		blue := nbtest.Network(t, "blue", nbtest.Layer3All+nbtest.OnR1)
		nbtest.Ensure(t, w.Networks, blue)
		nbtest.Share(t, w.Networks, blue, "n1")
		nbtest.Share(t, w.Networks, blue, "n2")
		w.PodOn(t, "n2")
		if !force {
			w.Proxy.Reset()
			w.WantInUse(t, "used by pod shop/web-0")
			w.WantCommitted(t, 1)
			w.WantFenced(t, blue.Canonical())
			w.WantInUse(t, "used by pod shop/web-0")
			w.WantCommitted(t, 0)
			w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": nbtest.ByKey(nbtest.NodeKey("n2")),
				"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(nbtest.Strange)}}})
		}
		w.MustRemove(t, "shop/blue", force)
		w.WantRows(t, want)
	}
}

// A pod that comes to a node at the moment of the network's end, or of a change that would cut it off, is seen.
func TestLayer3IsRacedByAPod(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, w *nbtest.World){
		"its end": func(t *testing.T, w *nbtest.World) { w.WantInUse(t, "used by pod shop/web-0") },
		"a change": func(t *testing.T, w *nbtest.World) {
			w.WantRefused(t, nbtest.Network(t, "blue", nbtest.Net4), "topology: layer3 cannot become layer2, with 1 port on the network")
		},
		"its node's end": func(t *testing.T, w *nbtest.World) {
			err := w.Networks.DeleteNodeSwitch(nbtest.WithLimit(t), "shop/blue", "n1")
			if _, ok := errors.AsType[*ovnnet.InUse](err); !ok || err.Error() != "logical switch shop/blue@n1: used by 1 port" {
				t.Errorf("%v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			blue := nbtest.Network(t, "blue", nbtest.Layer3)
			nbtest.Ensure(t, w.Networks, blue)
			nbtest.Share(t, w.Networks, blue, "n1")
			w.Meanwhile(t, "Logical_Switch", func() { w.PodOn(t, "n1") })
			do(t, w)
			if got := w.Rows(t)["Logical_Switch_Port"][nbtest.Strange]["name"]; got != "shop/web-0/net1" {
				t.Errorf("the pod's port is %q", got)
			}
		})
	}
}
