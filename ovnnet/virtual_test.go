package ovnnet_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// virtualRows are what NB has of virtual addresses: the claims, the groups with the numbers of their ports and ACLs, and the
// ACLs for VRRP.
func virtualRows(t *testing.T, w *nbtest.World) string {
	t.Helper()
	var words []string
	for _, row := range w.Dump(t, "Copp") {
		if name := fmt.Sprint(row["name"]); strings.Contains(name, " address ") || strings.Contains(name, " MAC 00:00:5e") {
			words = append(words, fmt.Sprint(name, " ", row["external_ids"]))
		}
	}
	names := map[string]string{}
	for _, row := range w.Dump(t, "Port_Group") {
		name := row["name"].(string)
		names[name] = fmt.Sprintf("group%d", len(names)+1)
		words = append(words, fmt.Sprintf("group: %d ports, %d ACLs", len(ovndbtest.Strings(row["ports"])), len(ovndbtest.Strings(row["acls"]))))
	}
	for _, row := range w.Dump(t, "ACL") {
		if match := fmt.Sprint(row["match"]); strings.Contains(match, "112") {
			for name := range names {
				match = strings.ReplaceAll(match, name, "group")
			}
			words = append(words, fmt.Sprint(row["direction"], " ", row["priority"], " ", row["action"], " ", match, " ", row["options"]))
		}
	}
	slices.Sort(words)
	return strings.Join(words, "\n")
}

// TestVirtualAddresses: each has a claim, a group, and ACLs for VRRP. What somebody deletes comes back, the members of a
// group stay, and all of it goes with the address, and with the network.
func TestVirtualAddresses(t *testing.T) {
	const one = `,"virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a"}}]`
	const two = `,"virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a"}},{"address":"fd01::9","selector":{"app":"b"},"vrid":7}]`
	for _, tt := range []struct{ keys, book, others string }{
		{nbtest.NetDual + nbtest.OnR1, "shop/blue", "ip.proto == 112"},
		{nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.NetDual), "physical:phys:42", `inport != "shop/blue:localnet" && ip.proto == 112`},
	} {
		w := nbtest.NewWorld(t)
		claim := func(a string) string {
			return "ovn-multinet " + tt.book + " address " + a +
				" map[ovn-multinet/address-book:" + tt.book + " ovn-multinet/claimant:network shop/blue:virtual address of pods]"
		}
		without := ""
		const group = "from-lport 32767 allow (inport == @group && ip.proto == 112 && ip4.dst == {224.0.0.18, $group_ip4}) || " +
			"(inport == @group && ip.proto == 112 && ip6.dst == {ff02::12, fe80::/10, $group_ip6}) map[apply-after-lb:true]"
		const in = "to-lport 32767 allow outport == @group && ip.proto == 112 && ip.ttl == 255 map[]"
		const other = "to-lport 32766 drop outport == @group && ip.proto == 112 map[]"
		mac := strings.Replace(claim("fd01::9"), "address fd01::9", "MAC 00:00:5e:00:02:07", 1)
		others := "from-lport 32766 drop " + tt.others + " map[apply-after-lb:true]"
		step := func(what, config, want string, changed bool) {
			t.Helper()
			if got := nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", config)); got != changed {
				t.Errorf("%s: changed %v, want %v", what, got, changed)
			}
			if got := virtualRows(t, w); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
			}
		}
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.keys))
		without = virtualRows(t, w)
		with := func(lines ...string) string {
			if without != "" {
				lines = append(lines, strings.Split(without, "\n")...)
			}
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		}
		oneRows := with(others, group, in, other, "group: 0 ports, 3 ACLs", claim("10.1.0.9"))
		step("one", tt.keys+one, oneRows, true)
		step("again", tt.keys+one, oneRows, false)
		key, name := ovndb.VirtualGroup(ovndb.AddressKey(tt.book, netip.MustParseAddr("10.1.0.9")))
		w.Pod(t, "blue", "10.1.0.7", "a", "net1")
		w.NBCtl("pg-set-ports", name, "shop/a/net1")
		joined := strings.Replace(oneRows, "0 ports", "1 ports", 1)
		step("with a port", tt.keys+one, joined, false)
		step("two", tt.keys+two, with(others, group, group, in, in, other, other, "group: 0 ports, 3 ACLs", "group: 1 ports, 3 ACLs", mac,
			claim("10.1.0.9"), claim("fd01::9")), true)
		w.WantRefused(t, nbtest.Network(t, "blue", tt.keys+one), "virtualAddresses: fd01::9 cannot be removed, with 1 port on the network")
		w.NBCtl("lsp-del", "shop/a/net1")
		step("one again", tt.keys+one, oneRows, true)
		w.NBCtl("clear", "Port_Group", name, "acls")
		step("ACLs were deleted", tt.keys+one, oneRows, true)
		w.Remove(t, "Port_Group", key)
		step("the group was deleted", tt.keys+one, oneRows, true)
		w.Remove(t, "Copp", ovndb.AddressKey(tt.book, netip.MustParseAddr("10.1.0.9")))
		step("the claim was deleted", tt.keys+one, oneRows, true)
		step("none", tt.keys, without, true)
		step("two at once", tt.keys+two, with(others, group, group, in, in, other, other, "group: 0 ports, 3 ACLs", "group: 0 ports, 3 ACLs", mac,
			claim("10.1.0.9"), claim("fd01::9")), true)
		w.MustRemove(t, "shop/blue", true)
		if got := virtualRows(t, w); got != "" {
			t.Errorf("a deleted network leaves\n%s", got)
		}
	}
}

// TestVirtualAddressIsNotAllocatedByOVN: OVN's own allocator, which serves the addresses in excludeSubnets, does not give one
// to a machine outside Kubernetes.
func TestVirtualAddressIsNotAllocatedByOVN(t *testing.T) {
	const virtual = `,"virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a"}}]`
	w := nbtest.NewWorld(t)
	for keys, want := range map[string]string{
		nbtest.Net4 + virtual: "",
		nbtest.Net4 + `,"excludeSubnets":"10.1.0.0/25"` + virtual: "exclude_ips=10.1.0.1 10.1.0.9 10.1.0.128..10.1.0.254 subnet=10.1.0.0/24",
	} {
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", keys))
		if got := w.Rows(t)["Logical_Switch"][nbtest.BlueKey]["other_config"]; got != want {
			t.Errorf("%s: other_config %q, want %q", keys, got, want)
		}
	}
}

// TestBoundaryVirtualAddressInUse: an address that a pod, a Service, a router or another network of the same VLAN has does not
// become a virtual one, and a virtual one does not become theirs.
func TestBoundaryVirtualAddressInUse(t *testing.T) {
	const virtual = `,"virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a"}}]`
	onPhys := nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	w.Pod(t, "blue", "10.1.0.9", "a", "net1")
	w.WantRefused(t, nbtest.Network(t, "blue", nbtest.Net4+virtual),
		"virtualAddresses: address 10.1.0.9 on network shop/blue belongs to port shop/a/net1; delete its pod, or choose another address")
	w.Clear(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	w.Claim(t, nbtest.KeyOf("10.1.0.9"))
	w.WantRefused(t, nbtest.Network(t, "blue", nbtest.Net4+virtual), "virtualAddresses: address 10.1.0.9 on network shop/blue "+
		"belongs to port shop/web-0/net1; delete its pod, or choose another address")
	w.Clear(t)

	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "green", onPhys+virtual))
	w.WantRefused(t, nbtest.Network(t, "blue", onPhys+virtual), "virtualAddresses: address 10.1.0.9 on physical network phys, VLAN 42 "+
		"is in use by network shop/green (virtual address of pods); choose another address")
	w.WantRefused(t, nbtest.Network(t, "blue", onPhys+`,"gateway":"10.1.0.9"`), "gateway: address 10.1.0.9 on physical network phys, "+
		"VLAN 42 is in use by network shop/green (virtual address of pods); choose another address")
	const other = `,"virtualAddresses":[{"address":"10.1.0.10","selector":{"app":"a"},"vrid":7}]`
	w.Clear(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "green", onPhys+strings.Replace(virtual, "}}", `},"vrid":7}`, 1)))
	w.WantRefused(t, nbtest.Network(t, "blue", onPhys+other), "virtualAddresses: MAC 00:00:5e:00:01:07 on physical network phys, "+
		"VLAN 42 is in use by network shop/green (virtual address of pods); choose another address")
	w.Clear(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "green", onPhys+`,"gateway":"10.1.0.9"`))
	w.WantRefused(t, nbtest.Network(t, "blue", onPhys+virtual), "virtualAddresses: address 10.1.0.9 on physical network phys, VLAN 42 "+
		"is in use by network shop/green (gateway); choose another address")
}
