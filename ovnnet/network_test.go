package ovnnet_test

import (
	"maps"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// ids is the mark of shop/blue's rows.
const ids = "ovn-multinet/network=shop/blue"

func TestEnsureMakesTheSwitch(t *testing.T) {
	tests := []struct{ name, keys, other string }{
		{"MAC only", "", ""},
		{"IPv4", nbtest.Net4, ""},
		{"the gateway elsewhere", nbtest.Net4 + `,"gateway":"10.1.0.100","excludeSubnets":"10.1.0.192/26"`,
			"exclude_ips=10.1.0.100 10.1.0.1..10.1.0.99 10.1.0.101..10.1.0.191 subnet=10.1.0.0/24"},
		{"what users exclude is left to OVN", nbtest.Net4 + `,"excludeSubnets":"10.1.0.64/26,10.1.0.4/32"`,
			"exclude_ips=10.1.0.1 10.1.0.2..10.1.0.3 10.1.0.5..10.1.0.63 10.1.0.128..10.1.0.254 subnet=10.1.0.0/24"},
		{"one address is no range", `"subnets":"10.1.0.0/29","excludeSubnets":"10.1.0.4/30"`,
			"exclude_ips=10.1.0.1 10.1.0.2..10.1.0.3 subnet=10.1.0.0/29"},
		{"one address is left of two", `"subnets":"10.1.0.0/29","excludeSubnets":"10.1.0.2/31,10.1.0.4/31"`,
			"exclude_ips=10.1.0.1 10.1.0.6 subnet=10.1.0.0/29"},
		{"IPv6", nbtest.Net6, ""},
		{"both", nbtest.NetDual + `,"gateway":"fd01::ff"`, ""},
	}
	w := nbtest.NewWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.Clear(t)
			w.Proxy.Reset()
			n := nbtest.Network(t, "blue", tt.keys)
			if !nbtest.Ensure(t, w.Networks, n) {
				t.Error("changed is false")
			}
			w.WantCommitted(t, 1)
			want := nbtest.Fields{"name": "shop/blue", "external_ids": ids}
			if tt.other != "" {
				want["other_config"] = tt.other
			}
			w.WantRows(t, map[string]map[string]nbtest.Fields{
				"Logical_Switch": {nbtest.BlueKey: want}, "Copp": {nbtest.BlueAccepted: nbtest.Accepted(n)}})
		})
	}
}

// What agents and operators read of what is accepted, letter by letter.
func TestEnsureWritesWhatIsInForce(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := nbtest.Network(t, "blue", nbtest.Net4)
	if _, err := w.Networks.Ensure(nbtest.WithLimit(t), n, []string{"shop/blue", "dev/blue"}); err != nil {
		t.Fatal(err)
	}
	const revision = "1498d08f8321b8e6"
	w.WantAccepted(t, nbtest.AcceptedWith(nbtest.Config4,
		"ovn-multinet/nad:dev/blue="+revision+" ovn-multinet/nad:shop/blue="+revision+" "))

	// A NAD that is not accepted any more is taken away.
	w.Proxy.Reset()
	if !nbtest.Ensure(t, w.Networks, n) {
		t.Error("changed is false")
	}
	w.WantCommitted(t, 1)
	w.WantAccepted(t, nbtest.Accepted(n))
}

// end is one gateway of shop/blue on router r1: what the rows of both ends have.
type end struct {
	name, keys       string
	other            string
	mac, networks    string
	lease            string            // the first gateway address
	claims           map[string]string // key to what the claim's name says
	claimKeysInOrder string
}

func ends() []end {
	wide := ovndb.MACKey("shop/blue", []byte{0x0a, 0x59, 0xbe, 0x81, 0x61, 0x82})
	return []end{
		{name: "IPv4", keys: nbtest.Net4,
			mac: "0a:58:0a:01:00:01", networks: "10.1.0.1/24", lease: "10.1.0.1"},
		{name: "dual stack", keys: nbtest.NetDual,
			mac: "0a:58:0a:01:00:01", networks: "10.1.0.1/24 fd01::1/64", lease: "10.1.0.1",
			claims: map[string]string{nbtest.KeyOf("fd01::1"): "address fd01::1"}, claimKeysInOrder: nbtest.KeyOf("fd01::1")},
		{name: "IPv6 alone", keys: nbtest.Net6,
			mac: "0a:58:00:00:00:01", networks: "fd01::1/64", lease: "fd01::1"},
		{name: "IPv6 with a wide gateway", keys: nbtest.Net6 + `,"gateway":"fd01::1:0:5"`,
			mac: "0a:59:be:81:61:82", networks: "fd01::1:0:5/64", lease: "fd01::1:0:5",
			claims: map[string]string{wide: "MAC 0a:59:be:81:61:82"}, claimKeysInOrder: wide},
		{name: "a wide gateway beside IPv4", keys: nbtest.NetDual + `,"gateway":"10.1.0.7,fd01::1:0:5","excludeSubnets":"10.1.0.128/25"`,
			other: "exclude_ips=10.1.0.7 10.1.0.1..10.1.0.6 10.1.0.8..10.1.0.127 subnet=10.1.0.0/24",
			mac:   "0a:58:0a:01:00:07", networks: "10.1.0.7/24 fd01::1:0:5/64", lease: "10.1.0.7",
			claims: map[string]string{nbtest.KeyOf("fd01::1:0:5"): "address fd01::1:0:5"}, claimKeysInOrder: nbtest.KeyOf("fd01::1:0:5")},
	}
}

// rows are all that the network has.
func (e end) rows(n *netmodel.Network) map[string]map[string]nbtest.Fields {
	lease, portKey, routerKey := nbtest.KeyOf(e.lease), ovndb.RouterPortKey("shop/blue"), ovndb.RouterKey("shop/r1")
	marks := "ovn-multinet/network=shop/blue ovn-multinet/router=shop/r1"
	endMarks := marks
	if e.claimKeysInOrder != "" {
		endMarks = "ovn-multinet/claims=" + e.claimKeysInOrder + " " + marks
	}
	rows := map[string]map[string]nbtest.Fields{
		"Logical_Switch": {nbtest.BlueKey: {"name": "shop/blue", "external_ids": ids, "ports": lease}},
		"Logical_Router": {routerKey: {"name": "shop/r1", "options": nbtest.RouterOptions, "external_ids": "ovn-multinet/router=shop/r1", "ports": portKey}},
		"Logical_Router_Port": {portKey: {"name": "shop/r1:shop/blue", "mac": e.mac, "networks": e.networks,
			"external_ids": "ovn-multinet/network=shop/blue ovn-multinet/port=" + lease + " ovn-multinet/router=shop/r1"}},
		"Logical_Switch_Port": {lease: {"name": "shop/blue:shop/r1", "type": "router", "addresses": "router",
			"options": "router-port=shop/r1:shop/blue", "external_ids": endMarks}},
	}
	if e.other != "" {
		rows["Logical_Switch"][nbtest.BlueKey]["other_config"] = e.other
	}
	rows["Copp"] = map[string]nbtest.Fields{nbtest.BlueAccepted: nbtest.Accepted(n)}
	for key, what := range e.claims {
		rows["Copp"][key] = nbtest.Fields{"name": "ovn-multinet shop/blue " + what, "external_ids": "ovn-multinet/network=shop/blue " +
			"ovn-multinet/port-name=shop/blue:shop/r1 ovn-multinet/port=" + lease}
	}
	return rows
}

func TestEnsureMakesTheRouter(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, e := range ends() {
		t.Run(e.name, func(t *testing.T) {
			w.Clear(t)
			w.Proxy.Reset()
			n := nbtest.Network(t, "blue", e.keys+nbtest.OnR1)
			if !nbtest.Ensure(t, w.Networks, n) {
				t.Error("changed is false")
			}
			w.WantCommitted(t, 1) // with the router
			w.WantRows(t, e.rows(n))
		})
	}
	t.Run("the router is there", func(t *testing.T) {
		w.Proxy.Reset()
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "red", `"subnets":"10.2.0.0/24,fd02::/64"`+nbtest.OnR1))
		w.WantCommitted(t, 1)
		if got := w.Names(t, "Logical_Router_Port"); got != "shop/r1:shop/blue shop/r1:shop/red" {
			t.Errorf("router ports %q", got)
		}
	})
}

// A row that is as it should be is not written: northd would compute everything anew.
func TestEnsureWritesNothingForNothing(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, keys := range []string{"", nbtest.Net4, nbtest.Net6, nbtest.Net4 + nbtest.OnR1, nbtest.NetDual + nbtest.OnR1, nbtest.Net6 + `,"gateway":"fd01::1:0:5"` + nbtest.OnR1} {
		t.Run(keys, func(t *testing.T) {
			w.Clear(t)
			n := nbtest.Network(t, "blue", keys)
			nbtest.Ensure(t, w.Networks, n)
			before := w.Versions(t)
			w.Proxy.Reset()
			if nbtest.Ensure(t, w.Networks, n) {
				t.Error("changed is true the second time")
			}
			w.WantCommitted(t, 0)
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

func TestEnsureRepairsWhatOthersChanged(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1)
	nbtest.Ensure(t, w.Networks, n)
	want := w.Rows(t)
	lease, portKey, routerKey := nbtest.KeyOf("10.1.0.1"), ovndb.RouterPortKey("shop/blue"), ovndb.RouterKey("shop/r1")
	marks := func(extra ...string) any {
		m := map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/router": "shop/r1"}
		for i := 0; i < len(extra); i += 2 {
			m[extra[i]] = extra[i+1]
		}
		return ovndbtest.Map(m)
	}
	onlyMark := ovndbtest.Map(map[string]string{"ovn-multinet/network": "shop/blue"})
	tests := []struct {
		name, table, key string
		columns          ovndbtest.Op
	}{
		{"switch, name", "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"name": "renamed"}},
		{"switch, other_config", "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"other_config": ovndbtest.Map(map[string]string{"subnet": "10.9.0.0/24"})}},
		{"switch, external_ids", "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{
			"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": "shop/blue", "x": "y"})}},
		{"accepted, name", "Copp", nbtest.BlueAccepted, ovndbtest.Op{"name": "renamed"}},
		{"accepted, external_ids", "Copp", nbtest.BlueAccepted, ovndbtest.Op{"external_ids": onlyMark}},
		{"switch, ports", "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"ports": ovndbtest.Set[any]()}},
		{"router, ports", "Logical_Router", routerKey, ovndbtest.Op{"ports": ovndbtest.Set[any]()}},
		{"router port, name", "Logical_Router_Port", portKey, ovndbtest.Op{"name": "renamed"}},
		{"router port, mac", "Logical_Router_Port", portKey, ovndbtest.Op{"mac": "02:00:00:00:00:01"}},
		{"router port, networks", "Logical_Router_Port", portKey, ovndbtest.Op{"networks": "10.1.0.9/24"}},
		{"router port, external_ids", "Logical_Router_Port", portKey, ovndbtest.Op{"external_ids": marks("ovn-multinet/port", lease, "x", "y")}},
		{"router port, its router's mark", "Logical_Router_Port", portKey,
			ovndbtest.Op{"external_ids": marks("ovn-multinet/port", lease, "ovn-multinet/router", "r9")}},
		{"switch's end, name", "Logical_Switch_Port", lease, ovndbtest.Op{"name": "renamed"}},
		{"switch's end, type", "Logical_Switch_Port", lease, ovndbtest.Op{"type": "localport"}},
		{"switch's end, addresses", "Logical_Switch_Port", lease, ovndbtest.Op{"addresses": "unknown"}},
		{"switch's end, options", "Logical_Switch_Port", lease, ovndbtest.Op{"options": ovndbtest.Map(nil)}},
		{"switch's end, external_ids", "Logical_Switch_Port", lease, ovndbtest.Op{"external_ids": marks()}},
		{"claim, external_ids", "Copp", nbtest.KeyOf("fd01::1"), ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/port-name": "shop/blue:shop/r1"})}},
		{"the switch is gone", "Logical_Switch", nbtest.BlueKey, nil},
		{"accepted is gone", "Copp", nbtest.BlueAccepted, nil},
		{"the router is gone", "Logical_Router", routerKey, nil},
		{"the claim is gone", "Copp", nbtest.KeyOf("fd01::1"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.columns == nil {
				w.Remove(t, tt.table, tt.key)
			} else {
				w.Change(t, tt.table, tt.key, tt.columns)
			}
			if reflect.DeepEqual(w.Rows(t), want) {
				t.Fatal("nothing was changed")
			}
			if !nbtest.Ensure(t, w.Networks, n) {
				t.Error("changed is false")
			}
			w.WantRows(t, want)
		})
	}
}
