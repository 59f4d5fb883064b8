package ovnnet_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

func (w *world) mustRemove(t *testing.T, id string, force bool) {
	t.Helper()
	if err := w.networks.Remove(withLimit(t), id, force); err != nil {
		t.Error(err)
	}
}

// wantInUse has Remove leave shop/blue alone, for that reason.
func (w *world) wantInUse(t *testing.T, text string) {
	t.Helper()
	err := w.networks.Remove(withLimit(t), "shop/blue", false)
	if inUse, ok := errors.AsType[*ovnnet.InUse](err); !ok || inUse.Error() != text {
		t.Errorf("%v, want %s", err, text)
	}
}

// fenced is the row of shop/blue's switch when it takes no new ports.
const fenced = "gateway_ip=10.1.0.1 ovn-multinet/config=" + config4 + " ovn-multinet/network=shop/blue"

func (w *world) wantFenced(t *testing.T, want string) {
	t.Helper()
	if got := w.rows(t)["Logical_Switch"][blueKey]["external_ids"]; got != want {
		t.Errorf("external_ids %s,\nwant         %s", got, want)
	}
}

// A network's rows go, and nobody else's.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "red", `"subnets":"10.2.0.0/24,fd02::/64","router":"r2"`))
	want := w.rows(t)
	for _, tt := range []struct {
		name, keys string
		committed  int
	}{{"MAC only", "", 1}, {"IPv4", net4, 1}, {"on a router of its own", netDual + onR1, 2}, {"with a MAC's claim", net6 + `,"gateway":"fd01::1:0:5"` + onR1, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			ensure(t, w.networks, network(t, "blue", tt.keys))
			w.proxy.Reset()
			w.mustRemove(t, "shop/blue", false)
			w.wantCommitted(t, tt.committed)
			w.wantRows(t, want)
			w.mustRemove(t, "shop/blue", false)
			w.wantCommitted(t, 0)
			w.wantRows(t, want)
		})
	}
}

// What is not ours is as good as gone.
func TestRemoveLeavesForeignSwitches(t *testing.T) {
	w := newWorld(t)
	for name, ids := range map[string]map[string]string{
		"no mark": {}, "another network's": {"ovn-multinet/network": "shop/red"}, "another controller's": {"k8s.ovn.org/network": "shop/blue"},
	} {
		for _, force := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w.clear(t)
				w.put(t, "Logical_Switch", blueKey, "shop/blue", ids)
				before := w.versions(t)
				w.proxy.Reset()
				w.mustRemove(t, "shop/blue", force)
				w.wantCommitted(t, 0)
				if after := w.versions(t); !maps.Equal(before, after) {
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
		put        func(t *testing.T, w *world)
	}{
		{"a pod", "used by pod shop/web-0", func(t *testing.T, w *world) { w.pod(t, "blue", "10.1.0.7", "web-0", "net1") }},
		{"a pod with two interfaces is named once", "used by pod shop/web-0", func(t *testing.T, w *world) {
			w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
			w.pod(t, "blue", "10.1.0.8", "web-0", "net2")
		}},
		{"someone else's port", "used by port vm (not ours)", func(t *testing.T, w *world) { w.machine(t, "shop/blue", strange, "vm") }},
		{"both", "used by port vm (not ours), pod shop/web-0", func(t *testing.T, w *world) {
			w.machine(t, "shop/blue", strange, "vm") // whose key is the lower
			w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
		}},
		{"five", usedBy(5), func(t *testing.T, w *world) { w.pods(t, 5) }},
		{"six", usedBy(6) + " and 1 more port", func(t *testing.T, w *world) { w.pods(t, 6) }},
		{"many", usedBy(20) + " and 15 more ports", func(t *testing.T, w *world) { w.pods(t, 20) }},
	}
	w := newWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.clear(t)
			if _, err := w.networks.Ensure(withLimit(t), network(t, "blue", net4), []string{"shop/blue", "dev/blue"}); err != nil {
				t.Fatal(err)
			}
			tt.put(t, w)
			ports := w.rows(t)["Logical_Switch_Port"]
			for _, committed := range []int{1, 0} { // it is fenced once
				w.proxy.Reset()
				w.wantInUse(t, tt.text)
				w.wantCommitted(t, committed)
				w.wantFenced(t, fenced)
				if got := w.rows(t)["Logical_Switch_Port"]; !reflect.DeepEqual(got, ports) {
					t.Errorf("ports %v became %v", ports, got)
				}
			}
			w.dropPorts(t, "Logical_Switch", blueKey)
			w.proxy.Reset()
			w.mustRemove(t, "shop/blue", false)
			w.wantCommitted(t, 1)
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
}

// usedBy names the five of those pods whose ports have the lowest keys.
func usedBy(n int) string {
	pods := map[string]string{}
	for i := range n {
		pods[keyOf(sprint("10.1.0.%d", 10+i))] = sprint("pod shop/p%d", i+1)
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(pods))[:5] {
		words = append(words, pods[key])
	}
	return "used by " + strings.Join(words, ", ")
}

func (w *world) pods(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		w.pod(t, "blue", sprint("10.1.0.%d", 10+i), sprint("p%d", i+1), "net1")
	}
}

// A network that was to be removed and is wanted after all takes ports again.
func TestEnsureAfterTheFence(t *testing.T) {
	w := newWorld(t)
	n := network(t, "blue", net4)
	ensure(t, w.networks, n)
	w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
	want := w.rows(t)
	w.wantInUse(t, "used by pod shop/web-0")
	ensure(t, w.networks, n)
	w.wantRows(t, want)
}

// force takes the ports too, with their claims, and leaves other networks theirs.
func TestRemoveByForce(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "red", `"subnets":"10.2.0.0/24,fd02::/64"`+onR1))
	w.put(t, "Copp", ovndb.SwitchKey("a claim of red"), "of red", map[string]string{"ovn-multinet/network": "shop/red"})
	w.put(t, "Copp", ovndb.SwitchKey("no claim"), "theirs", nil)
	want := w.rows(t)
	ensure(t, w.networks, network(t, "blue", netDual+onR1))
	w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
	w.claim(t, keyOf("fd01::7"))
	w.machine(t, "shop/blue", strange, "vm")
	w.proxy.Reset()
	w.mustRemove(t, "shop/blue", true)
	if got := w.proxy.Counts().Committed; got != 1 { // the router has another port
		t.Errorf("%d transactions committed, want 1", got)
	}
	w.wantRows(t, want)
}

func TestRemoveIsRaced(t *testing.T) {
	t.Run("a port came", func(t *testing.T) {
		w := newWorld(t)
		ensure(t, w.networks, network(t, "blue", net4+onR1))
		w.meanwhile(t, "Logical_Switch", func() { w.pod(t, "blue", "10.1.0.7", "web-0", "net1") })
		w.wantInUse(t, "used by pod shop/web-0")
		if got := w.names(t, "Logical_Switch_Port"); got != "shop/blue:shop/r1 shop/web-0/net1" {
			t.Errorf("ports %q", got)
		}
	})
	t.Run("its last port went while the ports were being named", func(t *testing.T) {
		w := newWorld(t)
		ensure(t, w.networks, network(t, "blue", net4+onR1))
		w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
		var once sync.Once
		fenced := false
		w.proxy.Before(func(tx ovndbtest.Transact) {
			if fenced = fenced || tx.Writes; fenced && !tx.Writes {
				once.Do(func() {
					w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"ports": ovndbtest.UUID(keyOf("10.1.0.1"))})
				})
			}
		})
		w.mustRemove(t, "shop/blue", false)
		w.proxy.Before(nil)
		w.wantRows(t, map[string]map[string]fields{})
	})
	t.Run("it went", func(t *testing.T) {
		w := newWorld(t)
		ensure(t, w.networks, network(t, "blue", net4))
		w.meanwhile(t, "Logical_Switch", func() { w.remove(t, "Logical_Switch", blueKey) })
		w.mustRemove(t, "shop/blue", false)
		w.wantRows(t, map[string]map[string]fields{})
	})
	t.Run("another one put it on a router", func(t *testing.T) {
		for _, force := range []bool{false, true} {
			w := newWorld(t)
			ensure(t, w.networks, network(t, "blue", net4))
			w.meanwhile(t, "Logical_Switch", func() { ensure(t, w.other(t), network(t, "blue", netDual+onR1)) })
			w.mustRemove(t, "shop/blue", force)
			w.wantRows(t, map[string]map[string]fields{})
		}
	})
	t.Run("it grew before the fence", func(t *testing.T) {
		w := newWorld(t)
		ensure(t, w.networks, network(t, "blue", net4))
		w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
		grown := network(t, "blue", `"subnets":"10.1.0.0/16"`)
		w.meanwhile(t, "Logical_Switch", func() { ensure(t, w.other(t), grown) })
		w.wantInUse(t, "used by pod shop/web-0")
		w.wantFenced(t, "gateway_ip=10.1.0.1 ovn-multinet/config="+grown.Canonical()+" ovn-multinet/network=shop/blue")
	})
}

func TestAccepted(t *testing.T) {
	w := newWorld(t)
	wantAccepted := func(want map[string][]string) {
		t.Helper()
		w.proxy.Reset()
		got, err := w.networks.Accepted(withLimit(t))
		if err != nil || !reflect.DeepEqual(got, want) || w.proxy.Counts().ReadOnly != 1 {
			t.Errorf("%v, %v, by %+v; want %v by one look", got, err, w.proxy.Counts(), want)
		}
	}
	wantAccepted(map[string][]string{})
	if _, err := w.networks.Ensure(withLimit(t), network(t, "blue", net4), []string{"shop/blue", "dev/blue"}); err != nil {
		t.Fatal(err)
	}
	ensure(t, w.networks, network(t, "red", ""))
	w.machine(t, "shop/red", strange, "vm")
	if err := w.networks.Remove(withLimit(t), "shop/red", false); err == nil {
		t.Error("a network with a port was removed")
	}
	w.put(t, "Logical_Switch", ovndb.SwitchKey("shop/x"), "no mark", nil)
	w.put(t, "Logical_Switch", ovndb.SwitchKey("shop/y"), "another's mark", map[string]string{"ovn-multinet/network": "shop/z"})
	w.put(t, "Logical_Switch", strange, "copied mark", map[string]string{"ovn-multinet/network": "shop/blue"})
	wantAccepted(map[string][]string{"shop/blue": {"dev/blue", "shop/blue"}, "shop/red": nil})
}

func TestInForce(t *testing.T) {
	w := newWorld(t)
	blue := network(t, "blue", netDual+`,"excludeSubnets":"10.1.0.128/25","routes":[{"dst":"10.9.0.0/16"}],"mtu":1300`+onR1)
	tests := []struct {
		name string
		do   func()
		want string
	}{
		{"none", func() {}, ""},
		{"foreign", func() { w.put(t, "Logical_Switch", blueKey, "x", nil) }, ""},
		{"as it was made", func() { w.clear(t); ensure(t, w.networks, blue) }, blue.Canonical()},
		{"unreadable", func() {
			w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue", "ovn-multinet/config": "x"})})
		}, ""},
	}
	for _, tt := range tests {
		tt.do()
		s, err := w.networks.Standing(withLimit(t), "shop/blue")
		got := ""
		if err == nil && s.InForce != nil {
			got = s.InForce.Canonical()
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}
