package ovnnet_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// What others took away of the rows of a network does not hide the rest from a change, or from the network's end.
func TestChangesFindWhatOthersLeft(t *testing.T) {
	spoils := []struct {
		name string
		do   func(t *testing.T, w *world)
	}{
		{"the router is gone", func(t *testing.T, w *world) { w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{"the switch's end is gone", func(t *testing.T, w *world) { w.dropPorts(t, "Logical_Switch", blueKey) }},
		{"both ends are gone", func(t *testing.T, w *world) {
			w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1"))
			w.dropPorts(t, "Logical_Switch", blueKey)
		}},
		{"the router's port does not name its other end", func(t *testing.T, w *world) {
			w.change(t, "Logical_Router_Port", ovndb.RouterPortKey("shop/blue"), ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue", "ovn-multinet/router": "shop/r1"})})
		}},
		{"the switch's end does not name its claim", func(t *testing.T, w *world) {
			w.change(t, "Logical_Switch_Port", keyOf("10.1.0.1"), ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue", "ovn-multinet/router": "shop/r1"})})
		}},
	}
	w := newWorld(t)
	for _, spoil := range spoils {
		for name, to := range map[string]string{
			"repair": netDual + onR1, "other gateways": netDual + `,"gateway":"10.1.0.9,fd01::9"` + onR1, "detach": netDual, "move": netDual + `,"router":"r2"`,
		} {
			t.Run(spoil.name+", "+name, func(t *testing.T) {
				w.clear(t)
				ensure(t, w.networks, network(t, "blue", to))
				want := w.rows(t)
				w.clear(t)
				ensure(t, w.networks, network(t, "blue", netDual+onR1))
				spoil.do(t, w)
				ensure(t, w.networks, network(t, "blue", to))
				w.wantRows(t, want)
			})
		}
		t.Run(spoil.name+", remove", func(t *testing.T) {
			w.clear(t)
			ensure(t, w.networks, network(t, "blue", netDual+onR1))
			spoil.do(t, w)
			if err := w.networks.Remove(withLimit(t), "shop/blue", false); err != nil {
				t.Error(err)
			}
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
}

func TestRouterGetsItsNameBack(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", netDual+onR1))
	want := w.rows(t)
	w.change(t, "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"name": "renamed"})
	ensure(t, w.networks, network(t, "blue", netDual+onR1))
	w.wantRows(t, want)
}
