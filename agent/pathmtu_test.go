package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

func TestOverheadOfTunnels(t *testing.T) {
	for _, tt := range []struct {
		ip, types string
		want      int
	}{
		{"192.0.2.1", "geneve", 58}, {"2001:db8::1", "geneve", 78}, {"192.0.2.1", "vxlan", 50}, {"2001:db8::1", "vxlan", 70},
		{"192.0.2.1", "geneve,vxlan", 58}, {"192.0.2.1", "", 58},
	} {
		if got := overhead(netip.MustParseAddr(tt.ip), tt.types); got != tt.want {
			t.Errorf("%s by %q: %d, want %d", tt.ip, tt.types, got, tt.want)
		}
	}
}

// TestMTUOfANetwork: its own, or the smallest of all nodes. What this node does not carry is refused, with the next step.
func TestMTUOfANetwork(t *testing.T) {
	lo := mtuOfLo(t)
	const wired = `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"ext","subnets":"10.9.0.0/24"`
	const overlay, six = `{"type":"ovn-multinet","subnets":"10.9.0.0/24"`, `{"type":"ovn-multinet","subnets":"fd09::/64"`
	limits := func(overlay, ext int) pathmtu.Smallest {
		return pathmtu.Smallest{pathmtu.Overlay: {MTU: overlay, Node: "node7"}, "ext": {MTU: ext, Node: "node8"}}
	}
	for _, tt := range []struct {
		name, config string
		encap        string
		limits       pathmtu.Smallest
		want         int
		refused      string
	}{
		{"no other node is known", overlay, "127.0.0.1", nil, lo - 58, ""},
		{"a smaller node", overlay, "127.0.0.1", limits(1442, 1500), 1442, ""},
		{"a larger node", overlay, "127.0.0.1", limits(1<<20, 1500), lo - 58, ""},
		{"localnet, a smaller node", wired, "127.0.0.1", limits(1442, 1500), 1500, ""},
		{"localnet, a larger node", wired, "127.0.0.1", limits(1442, 1<<20), lo, ""},
		{"its own, which a smaller node does not carry", overlay + `,"mtu":9000`, "127.0.0.1", limits(1442, 1500), 9000, ""},
		{"its own, and no tunnel's address to take another from", overlay + `,"mtu":9000`, "", nil, 9000, ""},
		{"several addresses", overlay, "127.0.0.1,127.0.0.1", nil, lo - 58, ""},
		{"an address of another node", overlay, "127.0.0.1,192.0.2.1", nil, 0, "no interface of this node has the address 192.0.2.1 of external_ids:ovn-encap-ip, to take the MTU from"},
		{"its own is too large", overlay + fmt.Sprintf(`,"mtu":%d`, lo-1), "127.0.0.1", limits(1442, 1500), 0,
			fmt.Sprintf("mtu: %d is larger than %d, which is the largest that the underlay of node node1 carries", lo-1, lo-58)},
		{"IPv6 on a small underlay", six, "127.0.0.1", limits(1242, 1500), 0,
			"subnets: IPv6 needs an MTU of 1280, and the largest that the underlay of node node7 carries is 1242"},
		{"IPv6 on the smallest underlay for it", six, "127.0.0.1", limits(1280, 1500), 1280, ""},
		{"IPv4 on a small underlay", overlay, "127.0.0.1", limits(1242, 1500), 1242, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			network, err := netmodel.ParseNetwork("shop", "blue", []byte(tt.config+"}"))
			if err != nil {
				t.Fatal(err)
			}
			n := &node{conf: conf.Agent{NodeName: "node1"}, paths: &pathMTU{}}
			n.paths.set(tt.limits)
			got, err := n.mtuOf(network, &ovnport.Settings{EncapIP: tt.encap, EncapType: "geneve", Mappings: map[string]string{"ext": "lo"}})
			if tt.refused != "" {
				wantCoded(t, err, conf.CodeTryAgain, tt.refused)
			} else if err != nil || got != tt.want {
				t.Errorf("%d, %v; want %d", got, err, tt.want)
			}
		})
	}
}

// TestPublishedMTUs: NB has the MTUs of the node, at once after a change, and the agent knows the smallest of all nodes
// after its next pass. The owners of pods whose interfaces are too large then are told, once for each size.
func TestPublishedMTUs(t *testing.T) {
	k := newKeeper(t)
	lo := mtuOfLo(t)
	published := func() string {
		for _, row := range k.nb.Dump(t, "Copp") {
			if row["name"] == "ovn-multinet node node1" {
				ids := row["external_ids"].(map[string]string)
				return ids["ovn-multinet/mtu"] + " " + ids["ovn-multinet/mtu:ext"]
			}
		}
		return "no row"
	}
	wantPublished := func(want string) {
		t.Helper()
		k.look()
		if got := published(); got != want {
			t.Errorf("NB has %q, want %q", got, want)
		}
	}
	wantPublished(" ")
	becomes := func(want string) {
		t.Helper()
		k.eventually("published", func() bool { // the agent hears of the change; its clock stands still
			k.agent.gateways.pass(t.Context(), k.now)
			return published() == want
		})
	}
	k.openVSwitch("ovn-encap-ip=127.0.0.1", "ovn-encap-type=geneve")
	becomes(fmt.Sprintf("%d ", lo-58))
	k.openVSwitch("ovn-encap-type=vxlan", "ovn-bridge-mappings=ext:lo")
	becomes(fmt.Sprintf("%d %d", lo-50, lo))

	k.source.nads["own"] = testNAD{Config: `{"type":"ovn-multinet","subnets":"10.3.0.0/24","mtu":1400}`}
	k.source.nads["vast"] = testNAD{Config: fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.5.0.0/24","mtu":%d}`, lo-49)}
	k.source.nads["plain"] = testNAD{Config: `{"type":"ovn-multinet","subnets":"10.4.0.0/24"}`}
	entry := k.attachedTo("c1", "0000:01:00.1")
	entry.Plan = &agentapi.Plan{Interfaces: []agentapi.Interface{
		{Name: "net1", Network: "shop/plain", MTU: 1442}, {Name: "net2", Network: "shop/own", MTU: 1400, Position: 1},
		{Name: "net3", Network: "shop/gone", MTU: 9000, Position: 2}, {Name: "net4", Network: "shop/vast", MTU: lo - 49, Position: 3},
	}}
	k.writeAttached(entry)
	smallest := func(mtu int, node string) {
		t.Helper()
		limits := pathmtu.Smallest{pathmtu.Overlay: {MTU: mtu, Node: node}}
		if _, err := pathmtu.Ensure(t.Context(), k.networks.Store, limits, true); err != nil {
			t.Fatal(err)
		}
		k.look()
	}
	told := func() string {
		_, events := k.source.told()
		return strings.Join(slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, "MTUTooLarge") }), "\n")
	}
	const event = "Warning MTUTooLarge: interface net1 on network shop/plain keeps MTU 1442, and the underlay of node %s " +
		"carries %d: larger packets are lost; recreate the pod, its interface then has that MTU"
	want := fmt.Sprintf("Warning MTUTooLarge: interface net4 on network shop/vast keeps MTU %d, and the underlay of node node1 "+
		`carries %d: larger packets are lost; set "mtu" of the network to that MTU or less, and recreate the pod`, lo-49, lo-50)
	for _, step := range []struct {
		mtu  int
		node string
		told bool
	}{{1442, "node7", false}, {1400, "node7", true}, {1400, "node5", false}, {1300, "node5", true}, {1542, "node5", false}, {1300, "node5", true}} {
		if smallest(step.mtu, step.node); step.told {
			want = strings.TrimSpace(want + "\n" + fmt.Sprintf(event, step.node, step.mtu))
		}
		if got := told(); got != want {
			t.Errorf("after %d of %s the owners are told %s\nwant %s", step.mtu, step.node, got, want)
		}
		if got := k.agent.paths.now()[pathmtu.Overlay]; got.MTU != step.mtu || got.Node != step.node {
			t.Errorf("the agent knows %v, want %d of %s", got, step.mtu, step.node)
		}
	}
}
