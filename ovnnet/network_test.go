package ovnnet_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// blueKey is the row key of shop/blue's switch: it is the same everywhere and for ever.
var blueKey = ovndb.SwitchKey("shop/blue")

func TestEnsureMakesTheRow(t *testing.T) {
	tests := []struct {
		name   string
		keys   string
		other  map[string]string
		gateIP string
	}{
		{"MAC only", "", map[string]string{}, ""},
		{"IPv4", `"subnets":"10.1.0.0/24"`,
			map[string]string{"subnet": "10.1.0.0/24", "exclude_ips": "10.1.0.1 10.1.0.2..10.1.0.254"}, "10.1.0.1"},
		{"the gateway elsewhere", `"subnets":"10.1.0.0/24","gateway":"10.1.0.100"`,
			map[string]string{"subnet": "10.1.0.0/24", "exclude_ips": "10.1.0.100 10.1.0.1..10.1.0.99 10.1.0.101..10.1.0.254"}, "10.1.0.100"},
		{"what users exclude is left to OVN", `"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.64/26,10.1.0.4/32"`,
			map[string]string{"subnet": "10.1.0.0/24", "exclude_ips": "10.1.0.1 10.1.0.2..10.1.0.3 10.1.0.5..10.1.0.63 10.1.0.128..10.1.0.254"}, "10.1.0.1"},
		{"one address is no range", `"subnets":"10.1.0.0/30"`, map[string]string{"subnet": "10.1.0.0/30", "exclude_ips": "10.1.0.1 10.1.0.2"}, "10.1.0.1"},
		{"IPv6", `"subnets":"fd01::/64"`, map[string]string{}, "fd01::1"},
		{"both", `"subnets":"fd01::/64,10.1.0.0/24","gateway":"fd01::ff"`,
			map[string]string{"subnet": "10.1.0.0/24", "exclude_ips": "10.1.0.1 10.1.0.2..10.1.0.254"}, "10.1.0.1 fd01::ff"},
	}
	w := newWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Logical_Switch", "where": []any{}})
			w.proxy.Reset()
			if !ensure(t, w.networks, network(t, "blue", tt.keys)) {
				t.Error("changed is false")
			}
			w.wantCounts(t, 1, 0, 1)
			ids := map[string]string{"ovn-multinet/network": "shop/blue"}
			if tt.gateIP != "" {
				ids["gateway_ip"] = tt.gateIP
			}
			rows := w.switches(t)
			row := rows[blueKey]
			if len(rows) != 1 || row == nil {
				t.Fatalf("rows %v, want %s", rows, blueKey)
			}
			if row["name"] != "shop/blue" || !maps.Equal(row["other_config"].(map[string]string), tt.other) ||
				!maps.Equal(row["external_ids"].(map[string]string), ids) || len(ovndbtest.Strings(row["ports"])) != 0 {
				t.Errorf("row %v,\nwant other_config %v, external_ids %v", row, tt.other, ids)
			}

			before := w.switches(t)
			w.proxy.Reset()
			if ensure(t, w.networks, network(t, "blue", tt.keys)) {
				t.Error("changed is true the second time")
			}
			w.wantCounts(t, 0, 0, 1)
			if after := w.switches(t); !reflect.DeepEqual(before, after) {
				t.Errorf("row %v became %v", before, after)
			}
		})
	}
}

// A change of the NAD reaches the row; the ports on it stay.
func TestEnsureUpdates(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", `"subnets":"10.1.0.0/24"`))
	w.addPort(t, blueKey, "shop/web-0/net1")
	ports := w.switches(t)[blueKey]["ports"]
	steps := []struct {
		name, keys string
		other      map[string]string
		gateIP     string
	}{
		{"excludeSubnets", `"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.128/25"`,
			map[string]string{"subnet": "10.1.0.0/24", "exclude_ips": "10.1.0.1 10.1.0.2..10.1.0.127"}, "10.1.0.1"},
		{"gateway", `"subnets":"10.1.0.0/24","gateway":"10.1.0.2"`,
			map[string]string{"subnet": "10.1.0.0/24", "exclude_ips": "10.1.0.2 10.1.0.1 10.1.0.3..10.1.0.254"}, "10.1.0.2"},
		{"no subnets", "", map[string]string{}, ""},
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			w.proxy.Reset()
			if !ensure(t, w.networks, network(t, "blue", tt.keys)) {
				t.Error("changed is false")
			}
			w.wantCounts(t, 1, 0, 1)
			row := w.switches(t)[blueKey]
			ids := row["external_ids"].(map[string]string)
			if !maps.Equal(row["other_config"].(map[string]string), tt.other) || ids["gateway_ip"] != tt.gateIP || !reflect.DeepEqual(row["ports"], ports) {
				t.Errorf("row %v, want other_config %v, gateway_ip %q and the port", row, tt.other, tt.gateIP)
			}
		})
	}
}

func TestEnsureRepairsWhatOthersChanged(t *testing.T) {
	w := newWorld(t)
	n := network(t, "blue", `"subnets":"10.1.0.0/24"`)
	ensure(t, w.networks, n)
	want := w.switches(t)
	for column, value := range map[string]any{
		"name":         "renamed",
		"other_config": ovndbtest.Map(map[string]string{"subnet": "10.9.0.0/24", "mcast_snoop": "true"}),
		"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": "shop/blue", "gateway_ip": "10.1.0.9"}),
	} {
		t.Run(column, func(t *testing.T) {
			w.Transact(t, ovndbtest.Op{"op": "update", "table": "Logical_Switch", "where": []any{}, "row": ovndbtest.Op{column: value}})
			if !ensure(t, w.networks, n) {
				t.Error("changed is false")
			}
			if got := w.switches(t); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

// foreign are rows with the key of shop/blue that are not ours to change.
var foreign = map[string]map[string]string{
	"no mark":            {},
	"another network's":  {"ovn-multinet/network": "shop/red"},
	"a router's":         {"ovn-multinet/router": "shop/blue"},
	"another controller": {"k8s.ovn.org/network": "shop/blue"},
}

func TestForeignRowsAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	for name, ids := range foreign {
		t.Run(name, func(t *testing.T) {
			w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Logical_Switch", "where": []any{}})
			w.put(t, blueKey, "shop/blue", ids)
			before := w.switches(t)
			w.proxy.Reset()
			changed, err := w.networks.Ensure(withLimit(t), network(t, "blue", ""))
			if want := "logical switch " + blueKey + " is not ours"; changed || err == nil || err.Error() != want {
				t.Errorf("Ensure: %t, %v; want %s", changed, err, want)
			}
			if err := w.networks.Remove(withLimit(t), "shop/blue"); err != nil {
				t.Errorf("Remove: %v", err)
			}
			w.wantCounts(t, 0, 0, 2)
			if after := w.switches(t); !reflect.DeepEqual(before, after) {
				t.Errorf("%v became %v", before, after)
			}
		})
	}
}

// Controllers change leaders: for a moment there may be two.
func TestTwoMakeOneRow(t *testing.T) {
	w := newWorld(t)
	const clients = 4
	var changed atomic.Int32
	var all sync.WaitGroup
	for range clients {
		n := connect(t, w.Endpoint())
		all.Go(func() {
			for _, name := range []string{"blue", "red", "green"} {
				did, err := n.Ensure(withLimit(t), network(t, name, `"subnets":"10.1.0.0/24"`))
				if err != nil {
					t.Error(err)
				}
				if did {
					changed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if got := w.names(t); got != "shop/blue shop/green shop/red" || changed.Load() != 3 {
		t.Errorf("switches %q, made by %d; want three, made by three", got, changed.Load())
	}
}

// What happens between the look and the write is not overwritten.
func TestEnsureLooksAgain(t *testing.T) {
	tests := []struct {
		name      string
		there     bool // before
		meanwhile func(t *testing.T, w *world, other *ovnnet.Networks)
		changed   bool
		fails     bool
		committed int
	}{
		{"another one was faster", false, func(t *testing.T, w *world, other *ovnnet.Networks) {
			ensure(t, other, network(t, "blue", `"subnets":"10.2.0.0/24"`))
		}, false, false, 0},
		{"another one with an older NAD was faster", false, func(t *testing.T, w *world, other *ovnnet.Networks) {
			ensure(t, other, network(t, "blue", `"subnets":"10.3.0.0/24"`))
		}, true, false, 1},
		{"a foreign row came", false, func(t *testing.T, w *world, _ *ovnnet.Networks) {
			w.put(t, blueKey, "x", nil)
		}, false, true, 0},
		{"the row went", true, func(t *testing.T, w *world, other *ovnnet.Networks) {
			if err := other.Remove(withLimit(t), "shop/blue"); err != nil {
				t.Error(err)
			}
		}, true, false, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			other := connect(t, w.Endpoint())
			if tt.there {
				ensure(t, other, network(t, "blue", `"subnets":"10.1.0.0/24"`))
			}
			w.beforeFirst(t, func() { tt.meanwhile(t, w, other) })
			changed, err := w.networks.Ensure(withLimit(t), network(t, "blue", `"subnets":"10.2.0.0/24"`))
			if changed != tt.changed || (err != nil) != tt.fails {
				t.Errorf("changed %t, %v", changed, err)
			}
			if got := w.proxy.Counts(); got.Committed != tt.committed || got.Refused != 1 {
				t.Errorf("%d committed, %d refused; want %d and 1", got.Committed, got.Refused, tt.committed)
			}
			rows := w.switches(t)
			if other := rows[blueKey]["other_config"].(map[string]string); len(rows) != 1 || !tt.fails && other["subnet"] != "10.2.0.0/24" {
				t.Errorf("rows %v", rows)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", `"subnets":"10.1.0.0/24"`))
	ensure(t, w.networks, network(t, "red", ""))
	w.addPort(t, blueKey, "shop/web-0/net1")
	before := w.switches(t)

	err := w.networks.Remove(withLimit(t), "shop/blue")
	if !errors.Is(err, ovnnet.ErrPorts) || err.Error() != "network shop/blue: the network has ports" {
		t.Errorf("with a port: %v", err)
	}
	if after := w.switches(t); !reflect.DeepEqual(before, after) || len(w.Dump(t, "Logical_Switch_Port")) != 1 {
		t.Errorf("with a port: %v became %v", before, after)
	}

	w.dropPorts(t, blueKey)
	for _, step := range []struct {
		name      string
		committed int
	}{{"without ports", 1}, {"absent", 0}} {
		w.proxy.Reset()
		if err := w.networks.Remove(withLimit(t), "shop/blue"); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		w.wantCounts(t, step.committed, 0, 1)
		if got := w.names(t); got != "shop/red" {
			t.Errorf("%s: switches %q, want shop/red", step.name, got)
		}
	}
}

// A port that comes between the look and the delete saves the switch.
func TestRemoveRacesWithAPort(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", ""))
	w.beforeFirst(t, func() { w.addPort(t, blueKey, "shop/web-0/net1") })
	if err := w.networks.Remove(withLimit(t), "shop/blue"); !errors.Is(err, ovnnet.ErrPorts) {
		t.Errorf("%v, want ErrPorts", err)
	}
	if w.names(t) != "shop/blue" || len(w.Dump(t, "Logical_Switch_Port")) != 1 {
		t.Error("the switch or its port is lost")
	}
}

func TestIDs(t *testing.T) {
	w := newWorld(t)
	if ids, err := w.networks.IDs(withLimit(t)); err != nil || len(ids) != 0 {
		t.Errorf("of an empty database: %v, %v", ids, err)
	}
	ensure(t, w.networks, network(t, "blue", ""))
	ensure(t, w.networks, network(t, "red", ""))
	w.put(t, ovndb.SwitchKey("shop/x"), "no mark", nil)
	w.put(t, ovndb.SwitchKey("shop/y"), "another's mark", map[string]string{"ovn-multinet/network": "shop/z"})
	w.put(t, "11111111-0000-4000-8000-000000000001", "copied mark", map[string]string{"ovn-multinet/network": "shop/blue"})
	w.proxy.Reset()
	ids, err := w.networks.IDs(withLimit(t))
	slices.Sort(ids)
	if err != nil || !slices.Equal(ids, []string{"shop/blue", "shop/red"}) {
		t.Errorf("%v, %v", ids, err)
	}
	w.wantCounts(t, 0, 0, 1)
}
