package ovnnet_test

import (
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// A node's switch that someone took leaves nothing that is in anybody's way, neither the node's own nor another's.
func TestNodesSwitchIsTaken(t *testing.T) {
	const one = `"topology":"layer3","subnets":"10.128.0.0/24/24,fd01::/64/64"`
	for _, router := range []string{"", onR1} {
		blue := network(t, "blue", one+router)
		for _, node := range []string{"n1", "n2"} {
			t.Run("then comes "+node+router, func(t *testing.T) {
				w := newWorld(t)
				ensure(t, w.networks, blue)
				share(t, w.networks, blue, node)
				want := w.rows(t)
				w.mustRemove(t, "shop/blue", false)
				ensure(t, w.networks, blue)
				share(t, w.networks, blue, "n1")
				w.remove(t, "Logical_Switch", nodeKey("n1"))
				share(t, w.networks, blue, node)
				w.wantRows(t, want)
			})
		}
		t.Run("then comes the controller"+router, func(t *testing.T) {
			w := newWorld(t)
			ensure(t, w.networks, blue)
			want := w.rows(t)
			share(t, w.networks, blue, "n1")
			w.remove(t, "Logical_Switch", nodeKey("n1"))
			ensure(t, w.networks, blue)
			got := w.rows(t)
			delete(got, "Copp") // they stay until someone wants the block
			if !reflect.DeepEqual(got, want) {
				t.Errorf("rows %v,\nwant %v", got, want)
			}
		})
		t.Run("then the network goes"+router, func(t *testing.T) {
			w := newWorld(t)
			ensure(t, w.networks, blue)
			share(t, w.networks, blue, "n1")
			w.remove(t, "Logical_Switch", nodeKey("n1"))
			w.mustRemove(t, "shop/blue", false)
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
}

// What others did to the rows of a layer3 network hides nothing from its change or its end, and holds up neither.
func TestLayer3IsSpoilt(t *testing.T) {
	blue, changed := network(t, "blue", layer3All), network(t, "blue", layer3All+`,"mtu":1300`)
	moved := network(t, "blue", `"topology":"layer3","subnets":"10.129.0.0/16/24"`)
	mark := func(ids map[string]string) ovndbtest.Op { return ovndbtest.Op{"external_ids": ovndbtest.Map(ids)} }
	onlyMark := map[string]string{"ovn-multinet/network": "shop/blue"}
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, w *world, view *netmodel.Network)
		keep bool // the node has its part still, after a change that keeps it
	}{
		{"the network's switch is gone", func(t *testing.T, w *world, _ *netmodel.Network) { w.remove(t, "Logical_Switch", blueKey) }, true},
		{"its configuration is gone", func(t *testing.T, w *world, _ *netmodel.Network) {
			w.change(t, "Logical_Switch", blueKey, mark(onlyMark))
		}, true},
		{"the router is gone", func(t *testing.T, w *world, _ *netmodel.Network) {
			w.remove(t, "Logical_Router", ovndb.RouterKey(blue.RouterName()))
		}, true},
		{"the node's port is gone", func(t *testing.T, w *world, _ *netmodel.Network) { w.dropPorts(t, "Logical_Switch", nodeKey("n1")) }, true},
		{"a block's claim has no marks", func(t *testing.T, w *world, v *netmodel.Network) {
			w.change(t, "Copp", ovndb.BlockKey("shop/blue", v.Subnets[0]), mark(onlyMark))
		}, true},
		{"a block's claim is gone", func(t *testing.T, w *world, v *netmodel.Network) {
			w.remove(t, "Copp", ovndb.BlockKey("shop/blue", v.Subnets[1]))
		}, true},
		{"the node's switch has no blocks", func(t *testing.T, w *world, v *netmodel.Network) {
			w.change(t, "Logical_Switch", nodeKey("n1"), mark(map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n1"}))
		}, false},
	} {
		begin := func(t *testing.T) *world {
			w := newWorld(t)
			ensure(t, w.networks, blue)
			tt.do(t, w, share(t, w.networks, blue, "n1"))
			return w
		}
		t.Run(tt.name+", change", func(t *testing.T) {
			fresh := newWorld(t)
			ensure(t, fresh.networks, changed)
			if tt.keep {
				share(t, fresh.networks, changed, "n1")
			}
			w := begin(t)
			ensure(t, w.networks, changed)
			if got, want := w.rows(t), fresh.rows(t); !tt.keep {
				delete(got, "Copp") // they stay until someone wants the block
				if !reflect.DeepEqual(got, want) {
					t.Errorf("rows %v,\nwant %v", got, want)
				}
			} else {
				w.wantRows(t, want)
			}
		})
		t.Run(tt.name+", other subnets", func(t *testing.T) {
			w := begin(t)
			ensure(t, w.networks, moved)
			if got := w.switches(t) + ", " + w.names(t, "Logical_Router_Port"); got != "shop/blue, " {
				t.Errorf("switches and router ports %q", got)
			}
		})
		t.Run(tt.name+", end", func(t *testing.T) {
			w := begin(t)
			w.mustRemove(t, "shop/blue", false)
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
	t.Run("a controller finds what only nodes have of a network", func(t *testing.T) {
		w := newWorld(t)
		ensure(t, w.networks, blue)
		share(t, w.networks, blue, "n1")
		w.remove(t, "Logical_Switch", blueKey)
		run(t, w, newAPI())
		eventually(t, "0", func() string { return sprint("%d", len(w.rows(t))) })
	})
}

// A switch with copied marks is nobody's part, and in nobody's way.
func TestLayer3BesideCopiedMarks(t *testing.T) {
	w := newWorld(t)
	blue := network(t, "blue", layer3)
	ensure(t, w.networks, blue)
	share(t, w.networks, blue, "n1")
	w.put(t, "Logical_Switch", strange, "theirs", map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n1"})
	w.proxy.Reset()
	ensure(t, w.networks, network(t, "blue", layer3+`,"mtu":1300`))
	w.wantCommitted(t, 1)
	ensure(t, w.networks, network(t, "blue", `"topology":"layer3","subnets":"10.129.0.0/16/24"`))
	w.mustRemove(t, "shop/blue", false)
	if got := w.switches(t); got != "theirs" {
		t.Errorf("switches %q", got)
	}
}

// A gateway of which others left a part only is found all the same when the configuration has it no more.
func TestGatewayIsDroppedWithoutSomeOfIt(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, w *world){
		"the gateway":     func(t *testing.T, w *world) { w.remove(t, "Logical_Router", gwRouter) },
		"the router":      func(t *testing.T, w *world) { w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) },
		"the join switch": func(t *testing.T, w *world) { w.remove(t, "Logical_Switch", gwSwitch("join")) },
		"the switches": func(t *testing.T, w *world) {
			w.remove(t, "Logical_Switch", gwSwitch("join"))
			w.remove(t, "Logical_Switch", gwSwitch("external"))
		},
		"both routers": func(t *testing.T, w *world) {
			w.remove(t, "Logical_Router", gwRouter)
			w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1"))
		},
		"all but the router": func(t *testing.T, w *world) {
			w.remove(t, "Logical_Router", gwRouter)
			w.remove(t, "Logical_Switch", gwSwitch("join"))
			w.remove(t, "Logical_Switch", gwSwitch("external"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ensureGateway(t, w.networks, gwFull, twoNodes)
			do(t, w)
			if err := w.networks.DropGateways(withLimit(t)); err != nil {
				t.Error(err)
			}
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
}

// Rows at a gateway's keys that are not ours are left alone, and named.
func TestGatewayAtForeignKeys(t *testing.T) {
	for name, row := range map[string][2]string{
		"logical router " + gwRouter: {"Logical_Router", gwRouter}, "logical switch " + gwSwitch("join"): {"Logical_Switch", gwSwitch("join")},
		"logical switch " + gwSwitch("external"): {"Logical_Switch", gwSwitch("external")}, "HA chassis group " + gwGroup: {"HA_Chassis_Group", gwGroup},
	} {
		for _, ids := range []map[string]string{nil, {"ovn-multinet/router": "shop/r2"}} {
			w := newWorld(t)
			w.put(t, row[0], row[1], "theirs", ids)
			w.wantForeign(t, "router shop/r1: gateway: "+name+" is not ours")
		}
	}
}

// A gateway does not come into the subnets of networks that are on the router.
func TestGatewayMeetsNetworks(t *testing.T) {
	for keys, reason := range map[string]string{
		`"subnets":"100.88.0.0/16"`: "port shop/r1:shop/blue: router: subnet 100.88.0.0/16 overlaps joinSubnet 100.88.0.0/24 of router shop/r1",
		`"subnets":"192.0.2.0/25"`:  "port shop/r1:shop/blue: router: subnet 192.0.2.0/25 overlaps externalSubnet 192.0.2.0/24 of router shop/r1",
	} {
		w := newWorld(t)
		ensure(t, w.networks, network(t, "blue", keys+onR1))
		w.wantForeign(t, reason)
	}
}
