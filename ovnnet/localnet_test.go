package ovnnet_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

var blueProvider = ovndb.PartKey("localnet", "shop/blue")

func provider(physical, vlan string) nbtest.Fields {
	f := nbtest.Fields{"name": "shop/blue:localnet", "type": "localnet", "addresses": "unknown", "options": "network_name=" + physical,
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

func TestLocalnetIsMade(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, tt := range []struct{ name, keys, vlan, gateways, other string }{
		{"untagged", nbtest.Localnet("phys", ""), "", "", ""},
		{"a VLAN", nbtest.Localnet("phys", `,"vlanID":42`), "42", "", ""},
		{"with subnets", nbtest.Localnet("phys", `,"vlanID":4094,`+nbtest.Net4), "4094", "10.1.0.1", ""},
		{"with addresses for others", nbtest.Localnet("phys", `,`+nbtest.Net4+`,"excludeSubnets":"10.1.0.128/25"`), "", "10.1.0.1",
			"exclude_ips=10.1.0.1 10.1.0.2..10.1.0.127 subnet=10.1.0.0/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.Clear(t)
			blue := nbtest.Network(t, "blue", tt.keys)
			w.Proxy.Reset()
			nbtest.Ensure(t, w.Networks, blue)
			w.WantCommitted(t, 1)
			book := "physical:phys:" + cmp.Or(tt.vlan, "0")
			marks := ids + " ovn-multinet/address-book=" + book
			sw := nbtest.Fields{"name": "shop/blue", "ports": blueProvider}
			want := map[string]map[string]nbtest.Fields{"Logical_Switch": {nbtest.BlueKey: sw}, "Logical_Switch_Port": {blueProvider: provider("phys", tt.vlan)},
				"Copp": {}}
			if tt.other != "" {
				sw["other_config"] = tt.other
			}
			if tt.gateways != "" {
				want["Copp"] = nbtest.BookClaims(book, "network shop/blue", tt.gateways)
				marks += " ovn-multinet/claims=" + nbtest.KeysInOrder(slices.Collect(maps.Keys(want["Copp"]))...)
			}
			sw["external_ids"], want["Copp"][nbtest.BlueAccepted] = inOrder(marks), nbtest.Accepted(blue)
			w.WantRows(t, want)
			if nbtest.Ensure(t, w.Networks, blue) {
				t.Error("changed is true")
			}
			w.WantCommitted(t, 0)
		})
	}
}

// A wire does not change under pods: their keys are made from it. Without pods it does, and its claims move in the same
// transaction.
func TestBoundaryWireStaysUnderPods(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, tt := range []struct{ name, from, physical, more, vlan, reason string }{
		{"a VLAN comes", nbtest.Localnet("phys", ","+nbtest.Net4), "phys", `,"vlanID":42,` + nbtest.Net4, "42", "vlanID: (untagged) cannot become 42"},
		{"another VLAN", nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4), "phys", `,"vlanID":43,` + nbtest.Net4, "43", "vlanID: 42 cannot become 43"},
		{"the VLAN goes", nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4), "phys", "," + nbtest.Net4, "", "vlanID: 42 cannot become (untagged)"},
		{"another physical network", nbtest.Localnet("phys", ","+nbtest.Net4), "other", "," + nbtest.Net4, "", "physicalNetworkName: phys cannot become other"},
		{"both", nbtest.Localnet("phys", ","+nbtest.Net4), "other", `,"vlanID":7,` + nbtest.Net4, "7", "physicalNetworkName: phys cannot become other"},
		{"without subnets", nbtest.Localnet("phys", ""), "phys", `,"vlanID":7`, "7", "vlanID: (untagged) cannot become 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.Clear(t)
			to := nbtest.Network(t, "blue", nbtest.Localnet(tt.physical, tt.more))
			nbtest.Ensure(t, w.Networks, to)
			want := w.Rows(t)
			w.Clear(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.from))
			w.PodAt(t, "shop/blue", nbtest.Strange, "web-0", "net1")
			before := w.Versions(t)
			w.WantRefused(t, to, tt.reason+", with 1 port on the network")
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
			w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": nbtest.ByKey(nbtest.BlueKey),
				"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(nbtest.Strange)}}})
			w.Proxy.Reset()
			nbtest.Ensure(t, w.Networks, to)
			w.WantCommitted(t, 1)
			w.WantRows(t, want)
		})
	}
}

// The provider's port is no machine: it holds up neither a change nor the end.
func TestLocalnetWithoutPods(t *testing.T) {
	w := nbtest.NewWorld(t)
	all := []string{nbtest.Localnet("phys", ""), nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4), nbtest.Net4 + nbtest.OnR1, nbtest.Layer3, nbtest.Layer3 + nbtest.OnR1, nbtest.Net4 + `,"router":"localnet"`, ""}
	for _, from := range all {
		for _, to := range all {
			t.Run(from+" to "+to, func(t *testing.T) {
				w.Clear(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", to))
				want := w.Rows(t)
				w.Clear(t)
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", from))
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", to))
				w.WantRows(t, want)
				w.MustRemove(t, "shop/blue", false)
				w.WantRows(t, map[string]map[string]nbtest.Fields{})
			})
		}
	}
}

// A pod holds up both.
func TestLocalnetWithPods(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Localnet("phys", ","+nbtest.Net4)))
	w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
	w.WantRefused(t, nbtest.Network(t, "blue", nbtest.Net4), "topology: localnet cannot become layer2, with 1 port on the network")
	w.WantInUse(t, "used by pod shop/web-0")
	if got := w.Names(t, "Logical_Switch_Port"); got != "shop/blue:localnet shop/web-0/net1" {
		t.Errorf("ports %q", got)
	}
}

func TestLocalnetIsMended(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue := nbtest.Network(t, "blue", nbtest.Localnet("phys", `,"vlanID":42`))
	nbtest.Ensure(t, w.Networks, blue)
	want := w.Rows(t)
	none := ovndbtest.Set[any]()
	for name, columns := range map[string]ovndbtest.Op{
		"tag": {"tag": 7}, "no tag": {"tag": none}, "tag_request": {"tag_request": none}, "type": {"type": ""},
		"addresses": {"addresses": none}, "options": {"options": ovndbtest.Map(nil)}, "marks": {"external_ids": ovndbtest.Map(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			w.Change(t, "Logical_Switch_Port", blueProvider, columns)
			if !nbtest.Ensure(t, w.Networks, blue) {
				t.Error("changed is false")
			}
			w.WantRows(t, want)
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		w.DropPorts(t, "Logical_Switch", nbtest.BlueKey)
		nbtest.Ensure(t, w.Networks, blue)
		w.WantRows(t, want)
	})
}
