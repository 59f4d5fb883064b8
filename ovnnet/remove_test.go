package ovnnet_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// A network's rows go, and nobody else's.
func TestRemove(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", `"subnets":"10.2.0.0/24,fd02::/64","router":"r2"`))
	want := w.Rows(t)
	for _, tt := range []struct {
		name, keys string
		committed  int
	}{{"MAC only", "", 1}, {"IPv4", nbtest.Net4, 1}, {"on a router of its own", nbtest.NetDual + nbtest.OnR1, 1}, {"with a MAC's claim", nbtest.Net6 + `,"gateway":"fd01::1:0:5"` + nbtest.OnR1, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.keys))
			w.Proxy.Reset()
			w.MustRemove(t, "shop/blue", false)
			w.WantCommitted(t, tt.committed)
			w.WantRows(t, want)
			w.MustRemove(t, "shop/blue", false)
			w.WantCommitted(t, 0)
			w.WantRows(t, want)
		})
	}
}

// What is not ours is as good as gone.
func TestRemoveLeavesForeignSwitches(t *testing.T) {
	w := nbtest.NewWorld(t)
	for name, ids := range map[string]map[string]string{
		"no mark": {}, "another network's": {"ovn-multinet/network": "shop/red"}, "another controller's": {"k8s.ovn.org/network": "shop/blue"},
	} {
		for _, force := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w.Clear(t)
				w.Put(t, "Logical_Switch", nbtest.BlueKey, "shop/blue", ids)
				before := w.Versions(t)
				w.Proxy.Reset()
				w.MustRemove(t, "shop/blue", force)
				w.WantCommitted(t, 0)
				if after := w.Versions(t); !maps.Equal(before, after) {
					t.Errorf("rows %v became %v", before, after)
				}
			})
		}
	}
}

// A network with machines on it stays, takes no more, and tells whose they are.
func TestRemoveInUse(t *testing.T) {
	tests := []struct {
		name, text string
		put        func(t *testing.T, w *nbtest.World)
	}{
		{"a pod", "used by pod shop/web-0", func(t *testing.T, w *nbtest.World) { w.Pod(t, "blue", "10.1.0.7", "web-0", "net1") }},
		{"a pod with two interfaces is named once", "used by pod shop/web-0", func(t *testing.T, w *nbtest.World) {
			w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
			w.Pod(t, "blue", "10.1.0.8", "web-0", "net2")
		}},
		{"someone else's port", "used by port vm (not ours)", func(t *testing.T, w *nbtest.World) { w.Machine(t, "shop/blue", nbtest.Strange, "vm") }},
		{"both", "used by port vm (not ours), pod shop/web-0", func(t *testing.T, w *nbtest.World) {
			w.Machine(t, "shop/blue", nbtest.Strange, "vm") // whose key is the lower
			w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
		}},
		{"five", usedBy(5), func(t *testing.T, w *nbtest.World) { w.Pods(t, 5) }},
		{"six", usedBy(6) + " and 1 more port", func(t *testing.T, w *nbtest.World) { w.Pods(t, 6) }},
		{"many", usedBy(20) + " and 15 more ports", func(t *testing.T, w *nbtest.World) { w.Pods(t, 20) }},
	}
	w := nbtest.NewWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.Clear(t)
			if _, err := w.Networks.Ensure(nbtest.WithLimit(t), nbtest.Network(t, "blue", nbtest.Net4), []string{"shop/blue", "dev/blue"}); err != nil {
				t.Fatal(err)
			}
			tt.put(t, w)
			ports := w.Rows(t)["Logical_Switch_Port"]
			for _, committed := range []int{1, 0} { // it is fenced once
				w.Proxy.Reset()
				w.WantInUse(t, tt.text)
				w.WantCommitted(t, committed)
				w.WantFenced(t, nbtest.Config4)
				if got := w.Rows(t)["Logical_Switch_Port"]; !reflect.DeepEqual(got, ports) {
					t.Errorf("ports %v became %v", ports, got)
				}
			}
			w.DropPorts(t, "Logical_Switch", nbtest.BlueKey)
			w.Proxy.Reset()
			w.MustRemove(t, "shop/blue", false)
			w.WantCommitted(t, 1)
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
}

// usedBy names the five of those pods whose ports have the lowest keys.
func usedBy(n int) string {
	pods := map[string]string{}
	for i := range n {
		pods[nbtest.KeyOf(nbtest.Sprint("10.1.0.%d", 10+i))] = nbtest.Sprint("pod shop/p%d", i+1)
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(pods))[:5] {
		words = append(words, pods[key])
	}
	return "used by " + strings.Join(words, ", ")
}

// A network that was to be removed and is wanted after all takes ports again.
func TestEnsureAfterTheFence(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := nbtest.Network(t, "blue", nbtest.Net4)
	nbtest.Ensure(t, w.Networks, n)
	w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
	want := w.Rows(t)
	w.WantInUse(t, "used by pod shop/web-0")
	nbtest.Ensure(t, w.Networks, n)
	w.WantRows(t, want)
}

// force takes the ports too, with their claims, and leaves other networks theirs.
func TestRemoveByForce(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", `"subnets":"10.2.0.0/24,fd02::/64"`+nbtest.OnR1))
	w.Put(t, "Copp", ovndb.SwitchKey("a claim of red"), "of red", map[string]string{"ovn-multinet/network": "shop/red"})
	w.Put(t, "Copp", ovndb.SwitchKey("no claim"), "theirs", nil)
	want := w.Rows(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
	w.Claim(t, nbtest.KeyOf("fd01::7"))
	w.Machine(t, "shop/blue", nbtest.Strange, "vm")
	w.Proxy.Reset()
	w.MustRemove(t, "shop/blue", true)
	if got := w.Proxy.Counts().Committed; got != 1 { // the router has another port
		t.Errorf("%d transactions committed, want 1", got)
	}
	w.WantRows(t, want)
}

func TestRemoveIsRaced(t *testing.T) {
	t.Run("a port came", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
		w.Meanwhile(t, "Logical_Switch", func() { w.Pod(t, "blue", "10.1.0.7", "web-0", "net1") })
		w.WantInUse(t, "used by pod shop/web-0")
		if got := w.Names(t, "Logical_Switch_Port"); got != "shop/blue:shop/r1 shop/web-0/net1" {
			t.Errorf("ports %q", got)
		}
	})
	t.Run("its last port went while the ports were being named", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
		w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
		var once sync.Once
		fenced := false
		w.Proxy.Before(func(tx ovndbtest.Transact) {
			if fenced = fenced || tx.Writes; fenced && !tx.Writes {
				once.Do(func() {
					w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"ports": ovndbtest.UUID(nbtest.KeyOf("10.1.0.1"))})
				})
			}
		})
		w.MustRemove(t, "shop/blue", false)
		w.Proxy.Before(nil)
		w.WantRows(t, map[string]map[string]nbtest.Fields{})
	})
	t.Run("what was accepted went", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
		w.Meanwhile(t, "Logical_Switch", func() { w.Remove(t, "Copp", nbtest.BlueAccepted) })
		w.MustRemove(t, "shop/blue", false)
		w.WantRows(t, map[string]map[string]nbtest.Fields{})
	})
	t.Run("it went", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
		w.Meanwhile(t, "Logical_Switch", func() { w.Remove(t, "Logical_Switch", nbtest.BlueKey) })
		w.MustRemove(t, "shop/blue", false)
		w.WantRows(t, map[string]map[string]nbtest.Fields{})
	})
	t.Run("another one put it on a router", func(t *testing.T) {
		for _, force := range []bool{false, true} {
			w := nbtest.NewWorld(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
			w.Meanwhile(t, "Logical_Switch", func() { nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1)) })
			w.MustRemove(t, "shop/blue", force)
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		}
	})
	t.Run("it grew before the fence", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
		w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
		grown := nbtest.Network(t, "blue", `"subnets":"10.1.0.0/16"`)
		w.Meanwhile(t, "Copp", func() { nbtest.Ensure(t, w.Other(t), grown) })
		w.WantInUse(t, "used by pod shop/web-0")
		w.WantFenced(t, grown.Canonical())
	})
}

func TestAccepted(t *testing.T) {
	w := nbtest.NewWorld(t)
	wantAccepted := func(want map[string][]string) {
		t.Helper()
		w.Proxy.Reset()
		list, err := w.Networks.List(nbtest.WithLimit(t))
		got := map[string][]string{}
		for id, n := range list {
			got[id] = n.NADs
		}
		if err != nil || !reflect.DeepEqual(got, want) || w.Proxy.Counts().ReadOnly != 1 {
			t.Errorf("%v, %v, by %+v; want %v by one look", got, err, w.Proxy.Counts(), want)
		}
	}
	wantAccepted(map[string][]string{})
	if _, err := w.Networks.Ensure(nbtest.WithLimit(t), nbtest.Network(t, "blue", nbtest.Net4), []string{"shop/blue", "dev/blue"}); err != nil {
		t.Fatal(err)
	}
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", ""))
	w.Machine(t, "shop/red", nbtest.Strange, "vm")
	if err := w.Networks.Delete(nbtest.WithLimit(t), "shop/red", false); err == nil {
		t.Error("a network with a port was removed")
	}
	w.Put(t, "Logical_Switch", ovndb.SwitchKey("shop/x"), "no mark", nil)
	w.Put(t, "Logical_Switch", ovndb.SwitchKey("shop/y"), "another's mark", map[string]string{"ovn-multinet/network": "shop/z"})
	w.Put(t, "Logical_Switch", nbtest.Strange, "copied mark", map[string]string{"ovn-multinet/network": "shop/blue"})
	w.Put(t, "Copp", ovndb.AcceptedKey("shop/y"), "another's mark", map[string]string{
		"ovn-multinet/network": "shop/blue", "ovn-multinet/kind": "accepted"})
	wantAccepted(map[string][]string{"shop/blue": {"dev/blue", "shop/blue"}, "shop/red": nil})
	// Somebody deletes the switch: what is accepted names the network still, and goes with it.
	w.Remove(t, "Logical_Switch", nbtest.BlueKey)
	wantAccepted(map[string][]string{"shop/blue": {"dev/blue", "shop/blue"}, "shop/red": nil})
	w.MustRemove(t, "shop/blue", false)
	wantAccepted(map[string][]string{"shop/red": nil})
}

func TestInForce(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue := nbtest.Network(t, "blue", nbtest.NetDual+`,"excludeSubnets":"10.1.0.128/25","routes":[{"dst":"10.9.0.0/16"}],"mtu":1300`+nbtest.OnR1)
	tests := []struct {
		name string
		do   func()
		want string
	}{
		{"none", func() {}, ""},
		{"foreign", func() { w.Put(t, "Logical_Switch", nbtest.BlueKey, "x", nil) }, ""},
		{"as it was made", func() { w.Clear(t); nbtest.Ensure(t, w.Networks, blue) }, blue.Canonical()},
		{"unreadable", func() {
			w.Change(t, "Copp", nbtest.BlueAccepted, ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue", "ovn-multinet/config": "x"})})
		}, ""},
	}
	for _, tt := range tests {
		tt.do()
		s, err := w.Networks.Stored(nbtest.WithLimit(t), "shop/blue")
		got := ""
		if err == nil && s.Config != nil {
			got = s.Config.Canonical()
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}
