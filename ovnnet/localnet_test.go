package ovnnet_test

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// localnet is a spec.config's keys of a network of that physical network, with a VLAN or more keys behind it.
func localnet(physical, more string) string {
	return `"topology":"localnet","physicalNetworkName":"` + physical + `"` + more
}

var blueProvider = ovndb.PartKey("localnet", "shop/blue")

func provider(physical, vlan string) fields {
	f := fields{"name": "shop/blue:localnet", "type": "localnet", "addresses": "unknown", "options": "network_name=" + physical,
		"external_ids": "ovn-multinet/network=shop/blue"}
	if vlan != "" {
		f["tag"], f["tag_request"] = vlan, vlan
	}
	return f
}

// inOrder writes external_ids as rows does.
func inOrder(pairs string) string {
	var words []string
	for i, pair := range strings.Split(pairs, " ovn-multinet/") {
		if i > 0 {
			pair = "ovn-multinet/" + pair
		}
		words = append(words, pair)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// wireClaims are the rows that keep addresses of a wire off pods: the claimants are "network <id>" or "router <name>",
// in their order.
func wireClaims(book, claimants string, addresses ...string) map[string]fields {
	ids := "ovn-multinet/address-book=" + book
	for _, who := range strings.Split(claimants, ",") {
		ids += " ovn-multinet/claimant:" + who + "=gateway"
	}
	rows := map[string]fields{}
	for _, a := range addresses {
		rows[ovndb.AddressKey(book, netip.MustParseAddr(a))] = fields{"name": "ovn-multinet " + book + " address " + a, "external_ids": ids}
	}
	return rows
}

func TestLocalnetIsMade(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ name, keys, vlan, gateways, other string }{
		{"untagged", localnet("phys", ""), "", "", ""},
		{"a VLAN", localnet("phys", `,"vlanID":42`), "42", "", ""},
		{"with subnets", localnet("phys", `,"vlanID":4094,`+net4), "4094", "10.1.0.1", ""},
		{"with addresses for others", localnet("phys", `,`+net4+`,"excludeSubnets":"10.1.0.128/25"`), "", "10.1.0.1",
			"exclude_ips=10.1.0.1 10.1.0.2..10.1.0.127 subnet=10.1.0.0/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.clear(t)
			blue := network(t, "blue", tt.keys)
			w.proxy.Reset()
			ensure(t, w.networks, blue)
			w.wantCommitted(t, 1)
			book := "physical:phys:" + cmp.Or(tt.vlan, "0")
			marks := ids(blue, tt.gateways) + " ovn-multinet/address-book=" + book
			sw := fields{"name": "shop/blue", "ports": blueProvider}
			want := map[string]map[string]fields{"Logical_Switch": {blueKey: sw}, "Logical_Switch_Port": {blueProvider: provider("phys", tt.vlan)}}
			if tt.other != "" {
				sw["other_config"] = tt.other
			}
			if tt.gateways != "" {
				want["Copp"] = wireClaims(book, "network shop/blue", tt.gateways)
				marks += " ovn-multinet/claims=" + keysInOrder(slices.Collect(maps.Keys(want["Copp"]))...)
			}
			sw["external_ids"] = inOrder(marks)
			w.wantRows(t, want)
			if ensure(t, w.networks, blue) {
				t.Error("changed is true")
			}
			w.wantCommitted(t, 0)
		})
	}
}

// A wire does not change under pods: their keys are made from it. Without pods it does, and its claims move in the same
// transaction.
func TestBoundaryWireStaysUnderPods(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ name, from, physical, more, vlan, reason string }{
		{"a VLAN comes", localnet("phys", ","+net4), "phys", `,"vlanID":42,` + net4, "42", "vlanID: (untagged) cannot become 42"},
		{"another VLAN", localnet("phys", `,"vlanID":42,`+net4), "phys", `,"vlanID":43,` + net4, "43", "vlanID: 42 cannot become 43"},
		{"the VLAN goes", localnet("phys", `,"vlanID":42,`+net4), "phys", "," + net4, "", "vlanID: 42 cannot become (untagged)"},
		{"another physical network", localnet("phys", ","+net4), "other", "," + net4, "", "physicalNetworkName: phys cannot become other"},
		{"both", localnet("phys", ","+net4), "other", `,"vlanID":7,` + net4, "7", "physicalNetworkName: phys cannot become other"},
		{"without subnets", localnet("phys", ""), "phys", `,"vlanID":7`, "7", "vlanID: (untagged) cannot become 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.clear(t)
			to := network(t, "blue", localnet(tt.physical, tt.more))
			ensure(t, w.networks, to)
			want := w.rows(t)
			w.clear(t)
			ensure(t, w.networks, network(t, "blue", tt.from))
			w.podAt(t, "shop/blue", strange, "web-0", "net1")
			before := w.versions(t)
			w.wantRefused(t, to, tt.reason+", with 1 port on the network")
			if after := w.versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
			w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": byKey(blueKey),
				"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(strange)}}})
			w.proxy.Reset()
			ensure(t, w.networks, to)
			w.wantCommitted(t, 1)
			w.wantRows(t, want)
		})
	}
}

// The provider's port is no machine: it holds up neither a change nor the end.
func TestLocalnetWithoutPods(t *testing.T) {
	w := newWorld(t)
	all := []string{localnet("phys", ""), localnet("phys", `,"vlanID":42,`+net4), net4 + onR1, layer3, layer3 + onR1, net4 + `,"router":"localnet"`, ""}
	for _, from := range all {
		for _, to := range all {
			t.Run(from+" to "+to, func(t *testing.T) {
				w.clear(t)
				ensure(t, w.networks, network(t, "blue", to))
				want := w.rows(t)
				w.clear(t)
				ensure(t, w.networks, network(t, "blue", from))
				ensure(t, w.networks, network(t, "blue", to))
				w.wantRows(t, want)
				w.mustRemove(t, "shop/blue", false)
				w.wantRows(t, map[string]map[string]fields{})
			})
		}
	}
}

// A pod holds up both.
func TestLocalnetWithPods(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", localnet("phys", ","+net4)))
	w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
	w.wantRefused(t, network(t, "blue", net4), "topology: localnet cannot become layer2, with 1 port on the network")
	w.wantInUse(t, "used by pod shop/web-0")
	if got := w.names(t, "Logical_Switch_Port"); got != "shop/blue:localnet shop/web-0/net1" {
		t.Errorf("ports %q", got)
	}
}

func TestLocalnetIsMended(t *testing.T) {
	w := newWorld(t)
	blue := network(t, "blue", localnet("phys", `,"vlanID":42`))
	ensure(t, w.networks, blue)
	want := w.rows(t)
	none := ovndbtest.Set[any]()
	for name, columns := range map[string]ovndbtest.Op{
		"tag": {"tag": 7}, "no tag": {"tag": none}, "tag_request": {"tag_request": none}, "type": {"type": ""},
		"addresses": {"addresses": none}, "options": {"options": ovndbtest.Map(nil)}, "marks": {"external_ids": ovndbtest.Map(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			w.change(t, "Logical_Switch_Port", blueProvider, columns)
			if !ensure(t, w.networks, blue) {
				t.Error("changed is false")
			}
			w.wantRows(t, want)
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		w.dropPorts(t, "Logical_Switch", blueKey)
		ensure(t, w.networks, blue)
		w.wantRows(t, want)
	})
}
