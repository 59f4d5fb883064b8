package ovnnet_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// What others took away of the rows of a network does not hide the rest from a change, or from the network's end.
func TestChangesFindWhatOthersLeft(t *testing.T) {
	spoils := []struct {
		name string
		do   func(t *testing.T, w *nbtest.World)
	}{
		{"the router is gone", func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{"the switch's end is gone", func(t *testing.T, w *nbtest.World) { w.DropPorts(t, "Logical_Switch", nbtest.BlueKey) }},
		{"both ends are gone", func(t *testing.T, w *nbtest.World) {
			w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1"))
			w.DropPorts(t, "Logical_Switch", nbtest.BlueKey)
		}},
		{"the router's port does not name its other end", func(t *testing.T, w *nbtest.World) {
			w.Change(t, "Logical_Router_Port", ovndb.RouterPortKey("shop/blue"), ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue", "ovn-multinet/router": "shop/r1"})})
		}},
		{"the switch's end does not name its claim", func(t *testing.T, w *nbtest.World) {
			w.Change(t, "Logical_Switch_Port", nbtest.KeyOf("10.1.0.1"), ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue", "ovn-multinet/router": "shop/r1"})})
		}},
	}
	w := nbtest.NewWorld(t)
	for _, spoil := range spoils {
		for name, to := range map[string]string{
			"repair": nbtest.NetDual + nbtest.OnR1, "other gateways": nbtest.NetDual + `,"gateway":"10.1.0.9,fd01::9"` + nbtest.OnR1, "detach": nbtest.NetDual, "move": nbtest.NetDual + `,"router":"r2"`,
		} {
			t.Run(spoil.name+", "+name, func(t *testing.T) {
				w.Clear(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", to))
				want := w.Rows(t)
				w.Clear(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
				spoil.do(t, w)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", to))
				w.WantRows(t, want)
			})
		}
		t.Run(spoil.name+", remove", func(t *testing.T) {
			w.Clear(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
			spoil.do(t, w)
			if err := w.Networks.Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
				t.Error(err)
			}
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
}

func TestRouterGetsItsNameBack(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	want := w.Rows(t)
	w.Change(t, "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"name": "renamed"})
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	w.WantRows(t, want)
}
