package ovnnet_test

import (
	"maps"
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

func TestLocalnetIsMade(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ name, keys, vlan, gateways, other string }{
		{"untagged", localnet("phys", ""), "", "", ""},
		{"a VLAN", localnet("phys", `,"vlanID":42`), "42", "", ""},
		{"with subnets", localnet("phys", `,"vlanID":4094,`+net4), "4094", "10.1.0.1", "exclude_ips=10.1.0.1 10.1.0.2..10.1.0.254 subnet=10.1.0.0/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.clear(t)
			blue := network(t, "blue", tt.keys)
			w.proxy.Reset()
			ensure(t, w.networks, blue)
			w.wantCommitted(t, 1)
			sw := fields{"name": "shop/blue", "external_ids": ids(blue, tt.gateways), "ports": blueProvider}
			if tt.other != "" {
				sw["other_config"] = tt.other
			}
			w.wantRows(t, map[string]map[string]fields{"Logical_Switch": {blueKey: sw}, "Logical_Switch_Port": {blueProvider: provider("phys", tt.vlan)}})
			if ensure(t, w.networks, blue) {
				t.Error("changed is true")
			}
			w.wantCommitted(t, 0)
		})
	}
}

// A VLAN and a provider's network change under the pods.
func TestLocalnetChangesUnderPods(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", localnet("phys", ","+net4)))
	w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
	pod := w.rows(t)["Logical_Switch_Port"][keyOf("10.1.0.7")]
	for _, tt := range []struct{ name, physical, more, vlan string }{
		{"a VLAN comes", "phys", `,"vlanID":42,` + net4, "42"},
		{"another VLAN", "phys", `,"vlanID":43,` + net4, "43"},
		{"the VLAN goes", "phys", "," + net4, ""},
		{"another physical network", "other", "," + net4, ""},
		{"both", "phys", `,"vlanID":7,` + net4, "7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.proxy.Reset()
			ensure(t, w.networks, network(t, "blue", localnet(tt.physical, tt.more)))
			w.wantCommitted(t, 1)
			ports := w.rows(t)["Logical_Switch_Port"]
			if want := provider(tt.physical, tt.vlan); !maps.Equal(ports[blueProvider], want) {
				t.Errorf("the provider's port %v,\nwant %v", ports[blueProvider], want)
			}
			if got := ports[keyOf("10.1.0.7")]; !maps.Equal(got, pod) {
				t.Errorf("the pod's port %v became %v", pod, got)
			}
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
