package ovnnet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// However a network became what it is, its rows are those of one that was never anything else, and nothing of what it
// was is left.
func TestEnsureFromAnyToAny(t *testing.T) {
	all := []string{
		"", nbtest.Net4, nbtest.NetDual, nbtest.Net4 + nbtest.OnR1, nbtest.Net4 + `,"router":"r2"`, nbtest.NetDual + nbtest.OnR1, nbtest.NetDual + `,"gateway":"10.1.0.9,fd01::9"` + nbtest.OnR1,
		`"subnets":"10.0.0.0/8"` + nbtest.OnR1, nbtest.Net6 + nbtest.OnR1, nbtest.Net6 + `,"gateway":"fd01::1:0:5"` + nbtest.OnR1, nbtest.Net6 + `,"gateway":"fd01::2:0:5","router":"r2"`, nbtest.Net4 + nbtest.OnR1 + behindBoth, nbtest.Net4 + `,"router":"r2"` + behindOne,
	}
	w := nbtest.NewWorld(t)
	for _, from := range all {
		for _, to := range all {
			t.Run(from+" to "+to, func(t *testing.T) {
				w.Clear(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", to))
				want := w.Rows(t)
				w.Clear(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", from))
				w.Proxy.Reset()
				if changed := nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", to)); changed != (from != to) {
					t.Errorf("changed is %t", changed)
				}
				// The rows are one transaction, with a router that is new; a router that is not used any more is another.
				if got := w.Proxy.Counts(); got.Committed > 2 || got.Refused > 0 {
					t.Errorf("transactions: %+v", got)
				}
				w.WantRows(t, want)
			})
		}
	}
}

// Pods on a network keep their ports whatever its router does.
func TestRouterComesAndGoesBesidePods(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
	steps := []struct {
		name, keys, routers, networks, ports string
		committed                            int
	}{
		{"attach", nbtest.Net4 + nbtest.OnR1, "shop/r1", "10.1.0.1/24", "shop/blue:shop/r1 shop/web-0/net1", 1},
		{"move", nbtest.Net4 + `,"router":"r2"`, "shop/r2", "10.1.0.1/24", "shop/blue:shop/r2 shop/web-0/net1", 2},
		{"grow", `"subnets":"10.1.0.0/16","router":"r2"`, "shop/r2", "10.1.0.1/16", "shop/blue:shop/r2 shop/web-0/net1", 1},
		{"detach", `"subnets":"10.1.0.0/16"`, "", "", "shop/web-0/net1", 2},
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			w.Proxy.Reset()
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.keys))
			w.WantCommitted(t, tt.committed)
			if got := w.Names(t, "Logical_Router"); got != tt.routers {
				t.Errorf("routers %q, want %q", got, tt.routers)
			}
			if got := w.Rows(t)["Logical_Router_Port"][ovndb.RouterPortKey("shop/blue")]["networks"]; got != tt.networks {
				t.Errorf("the router's port has networks %q, want %q", got, tt.networks)
			}
			if got := w.Names(t, "Logical_Switch_Port"); got != tt.ports {
				t.Errorf("ports %q, want %q", got, tt.ports)
			}
		})
	}
}

// A router is there as long as a network is on it.
func TestRouterGoesWithItsLastPort(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue, red := nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1), nbtest.Network(t, "red", `"subnets":"10.2.0.0/24"`+nbtest.OnR1)
	nbtest.Ensure(t, w.Networks, blue)
	nbtest.Ensure(t, w.Networks, red)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	if got := w.Names(t, "Logical_Router") + ", " + w.Names(t, "Logical_Router_Port"); got != "shop/r1, shop/r1:shop/red" {
		t.Errorf("with a network on it: router and ports %q", got)
	}
	nbtest.Ensure(t, w.Networks, blue)
	if err := w.Networks.Delete(nbtest.WithLimit(t), "shop/red", false); err != nil {
		t.Error(err)
	}
	if got := w.Names(t, "Logical_Router") + ", " + w.Names(t, "Logical_Router_Port"); got != "shop/r1, shop/r1:shop/blue" {
		t.Errorf("with a network on it: router and ports %q", got)
	}
	if err := w.Networks.Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
		t.Error(err)
	}
	w.WantRows(t, map[string]map[string]nbtest.Fields{})
}

// dropsRouter reports whether a transaction deletes router shop/r1.
func dropsRouter(tx ovndbtest.Transact) bool {
	return slices.ContainsFunc(tx.Ops, func(op ovndbtest.Op) bool {
		return op["table"] == "Logical_Router" && op["op"] == "delete" &&
			strings.Contains(fmt.Sprint(op["where"]), ovndb.RouterKey("shop/r1"))
	})
}

// What happens to a router while its last network leaves it or is deleted.
func TestRouterIsNotDroppedUnderOthers(t *testing.T) {
	tests := []struct {
		name      string
		meanwhile func(t *testing.T, w *nbtest.World)
		want      string
		again     int // how often the router's end is asked for again when its network is deleted
	}{
		{"a network came", func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "red", `"subnets":"10.2.0.0/24"`+nbtest.OnR1))
		}, "shop/r1 with shop/r1:shop/red", 1},
		{"someone took it over", func(t *testing.T, w *nbtest.World) {
			w.Change(t, "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"external_ids": ovndbtest.Map(nil)})
		}, "shop/r1 with ", 1},
		{"someone deleted it", func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }, " with ", 0},
	}
	leaves := map[string]func(t *testing.T, w *nbtest.World){
		"leaves": func(t *testing.T, w *nbtest.World) {
			if !nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4)) {
				t.Error("changed is false")
			}
		},
		"is deleted": func(t *testing.T, w *nbtest.World) { w.MustRemove(t, "shop/blue", false) },
	}
	for _, tt := range tests {
		for how, leave := range leaves {
			t.Run(tt.name+" while the last network "+how, func(t *testing.T) {
				w := nbtest.NewWorld(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
				called, want := 0, 1
				if how == "is deleted" {
					want += tt.again
				}
				w.Proxy.Before(func(tx ovndbtest.Transact) {
					if dropsRouter(tx) {
						if called++; called == 1 {
							tt.meanwhile(t, w)
						}
					}
				})
				leave(t, w)
				w.Proxy.Before(nil)
				if got := w.Names(t, "Logical_Router") + " with " + w.Names(t, "Logical_Router_Port"); got != tt.want || called != want {
					t.Errorf("routers and ports %q, want %q; asked %d times to drop one, want %d", got, tt.want, called, want)
				}
			})
		}
	}
}

// A controller may have ended before it came to a router.
func TestDropUnusedRouters(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+`,"router":"used"`))
	w.Put(t, "Logical_Router", ovndb.RouterKey("unused"), "unused", map[string]string{"ovn-multinet/router": "unused"})
	w.Put(t, "Logical_Router", ovndb.RouterKey("theirs"), "theirs", nil)
	w.Put(t, "Logical_Router", ovndb.RouterKey("x"), "another-mark", map[string]string{"ovn-multinet/router": "y"})
	w.Put(t, "Logical_Router", "11111111-0000-4000-8000-000000000001", "copied-mark", map[string]string{"ovn-multinet/router": "unused"})
	for _, committed := range []int{1, 0} {
		w.Proxy.Reset()
		if err := w.Networks.DeleteUnusedRouters(nbtest.WithLimit(t)); err != nil {
			t.Error(err)
		}
		w.WantCommitted(t, committed)
		if got := w.Names(t, "Logical_Router"); got != "another-mark copied-mark shop/used theirs" {
			t.Errorf("routers %q", got)
		}
	}
}

// Two networks of one router that is new, at once: one makes it, both are on it.
func TestRouterOfTwoNetworksAtOnce(t *testing.T) {
	w := nbtest.NewWorld(t)
	w.Meanwhile(t, "Logical_Router", func() { nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "red", `"subnets":"10.2.0.0/24"`+nbtest.OnR1)) })
	if !nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1)) {
		t.Error("changed is false")
	}
	if got := w.Names(t, "Logical_Router") + ", " + w.Names(t, "Logical_Router_Port"); got != "shop/r1, shop/r1:shop/blue shop/r1:shop/red" {
		t.Errorf("routers and ports %q", got)
	}
	// What both ends say of each other is what OVN goes by.
	for key, port := range w.Rows(t)["Logical_Switch_Port"] {
		if name, _ := strings.CutSuffix(port["name"], ":shop/r1"); port["options"] != "router-port=shop/r1:"+name {
			t.Errorf("port %s: %v", key, port)
		}
	}
}
