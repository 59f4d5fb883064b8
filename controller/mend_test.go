package controller_test

import (
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// What others did to the rows of a layer3 network hides nothing from its change or its end, and holds up neither.
func TestLayer3IsSpoilt(t *testing.T) {
	blue, changed := nbtest.Network(t, "blue", nbtest.Layer3All), nbtest.Network(t, "blue", nbtest.Layer3All+`,"mtu":1300`)
	moved := nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.129.0.0/16/24"`)
	mark := func(ids map[string]string) ovndbtest.Op { return ovndbtest.Op{"external_ids": ovndbtest.Map(ids)} }
	onlyMark := map[string]string{"ovn-multinet/network": "shop/blue"}
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, w *nbtest.World, view *netmodel.Network)
		keep bool // the node has its part still, after a change that keeps it
	}{
		{"the network's switch is gone", func(t *testing.T, w *nbtest.World, _ *netmodel.Network) {
			w.Remove(t, "Logical_Switch", nbtest.BlueKey)
		}, true},
		{"its configuration is gone", func(t *testing.T, w *nbtest.World, _ *netmodel.Network) {
			w.Change(t, "Copp", nbtest.BlueAccepted, mark(onlyMark))
		}, true},
		{"the router is gone", func(t *testing.T, w *nbtest.World, _ *netmodel.Network) {
			w.Remove(t, "Logical_Router", ovndb.RouterKey(blue.RouterName()))
		}, true},
		{"the node's port is gone", func(t *testing.T, w *nbtest.World, _ *netmodel.Network) {
			w.DropPorts(t, "Logical_Switch", nbtest.NodeKey("n1"))
		}, true},
		{"a block's claim has no marks", func(t *testing.T, w *nbtest.World, v *netmodel.Network) {
			w.Change(t, "Copp", ovndb.NodeSubnetKey("shop/blue", v.Subnets[0]), mark(onlyMark))
		}, true},
		{"a block's claim is gone", func(t *testing.T, w *nbtest.World, v *netmodel.Network) {
			w.Remove(t, "Copp", ovndb.NodeSubnetKey("shop/blue", v.Subnets[1]))
		}, true},
		{"the node's switch has no blocks", func(t *testing.T, w *nbtest.World, v *netmodel.Network) {
			w.Change(t, "Logical_Switch", nbtest.NodeKey("n1"), mark(map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n1"}))
		}, false},
	} {
		begin := func(t *testing.T) *nbtest.World {
			w := nbtest.NewWorld(t)
			nbtest.Ensure(t, w.Networks, blue)
			tt.do(t, w, nbtest.Share(t, w.Networks, blue, "n1"))
			return w
		}
		t.Run(tt.name+", change", func(t *testing.T) {
			fresh := nbtest.NewWorld(t)
			nbtest.Ensure(t, fresh.Networks, changed)
			if tt.keep {
				nbtest.Share(t, fresh.Networks, changed, "n1")
			}
			w := begin(t)
			nbtest.Ensure(t, w.Networks, changed)
			if got, want := w.Rows(t), fresh.Rows(t); !tt.keep {
				got["Copp"] = want["Copp"] // claims stay until someone wants the block
				if !reflect.DeepEqual(got, want) {
					t.Errorf("rows %v,\nwant %v", got, want)
				}
			} else {
				w.WantRows(t, want)
			}
		})
		t.Run(tt.name+", other subnets", func(t *testing.T) {
			w := begin(t)
			nbtest.Ensure(t, w.Networks, moved)
			if got := w.Switches(t) + ", " + w.Names(t, "Logical_Router_Port"); got != "shop/blue, " {
				t.Errorf("switches and router ports %q", got)
			}
		})
		t.Run(tt.name+", end", func(t *testing.T) {
			w := begin(t)
			w.MustRemove(t, "shop/blue", false)
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
	t.Run("a controller finds what only nodes have of a network", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, blue)
		nbtest.Share(t, w.Networks, blue, "n1")
		w.Remove(t, "Logical_Switch", nbtest.BlueKey)
		run(t, w, newAPI())
		eventually(t, "0", func() string { return nbtest.Sprint("%d", len(w.Rows(t))) })
	})
}
