package ovnnet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// dhcpRows are what NB has for DHCP on the network shop/blue: the rows, the ports that refer to them, the advertisements of
// the router's port, and the ACLs.
func dhcpRows(t *testing.T, w *nbtest.World) string {
	t.Helper()
	var words []string
	for _, row := range w.Dump(t, "DHCP_Options") {
		words = append(words, fmt.Sprint(row["cidr"], " ", row["options"]))
	}
	for _, row := range w.Dump(t, "Logical_Switch_Port") {
		for _, column := range []string{"dhcpv4_options", "dhcpv6_options"} {
			if refs := ovndbtest.Strings(row[column]); len(refs) > 0 {
				words = append(words, fmt.Sprint(row["name"], " ", column))
			}
		}
	}
	for _, row := range w.Dump(t, "Logical_Router_Port") {
		if options := fmt.Sprint(row["ipv6_ra_configs"]); options != "map[]" {
			words = append(words, fmt.Sprint(row["name"], " ", options))
		}
	}
	for _, row := range w.Dump(t, "ACL") {
		if match := fmt.Sprint(row["match"]); strings.Contains(match, "udp.dst") {
			words = append(words, fmt.Sprint(row["direction"], " ", row["priority"], " ", row["action"], " ", match, " ", row["options"]))
		}
	}
	slices.Sort(words)
	return strings.Join(words, "\n")
}

// TestDHCP: a network with DHCP has a row for each family, which all ports of pods refer to, also those that were there
// before. Its router's port advertises itself. Rows that somebody deletes come back, and all of it goes with the key.
func TestDHCP(t *testing.T) {
	const with = nbtest.NetDual + nbtest.OnR1
	const keys = `,"routes":[{"dst":"10.9.0.0/16"}],"dhcp":{"dns":["10.1.0.53","10.9.0.53","fd01::53"],"domain":"example.org"}`
	const acl = `(ip4.dst == {255.255.255.255, 10.1.0.1} && udp.src == 68 && udp.dst == 67) || ` +
		`(ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547)`
	w := nbtest.NewWorld(t)
	mtu := 0
	w.Networks.PodMTU = func(*netmodel.Network) int { return mtu }
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", with))
	w.Pod(t, "blue", "10.1.0.7", "web", "net1")
	wanted := func(mtu4, mtu6 string) string {
		return strings.Join([]string{
			`10.1.0.0/24 map[classless_static_route:{10.9.0.0/16,10.1.0.1, 0.0.0.0/0,10.1.0.1} dns_server:{10.1.0.53, 10.9.0.53} ` +
				`domain_name:"example.org" lease_time:3600` + mtu4 + ` router:10.1.0.1 server_id:10.1.0.1 server_mac:0a:58:0a:01:00:01]`,
			`fd01::/64 map[dns_server:{fd01::53} server_id:0a:58:00:00:00:01]`,
			"from-lport 32767 allow " + acl + " map[apply-after-lb:true]",
			"shop/r1:shop/blue map[address_mode:dhcpv6_stateful" + mtu6 + " send_periodic:true]",
			"shop/web/net1 dhcpv4_options", "shop/web/net1 dhcpv6_options",
			"to-lport 32767 drop " + acl + " map[]",
		}, "\n")
	}
	step := func(what, config, want string, changed bool) {
		t.Helper()
		if got := nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", config)); got != changed {
			t.Errorf("%s: changed %v, want %v", what, got, changed)
		}
		if got := dhcpRows(t, w); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
	step("without", with, "", false)
	step("switched on, the MTU is unknown", with+keys, wanted("", ""), true)
	mtu = 1442
	step("the MTU is known", with+keys, wanted(" mtu:1442", " mtu:1442"), true)
	step("again", with+keys, wanted(" mtu:1442", " mtu:1442"), false)
	mtu = 0
	step("unknown again", with+keys, wanted(" mtu:1442", " mtu:1442"), false)
	w.Remove(t, "DHCP_Options", ovndb.DHCPKey("shop/blue", nbtest.Network(t, "blue", with).Subnets[1]))
	mtu = 1400
	step("a row was deleted, and the MTU is another one", with+keys, wanted(" mtu:1400", " mtu:1400"), true)
	step("no default route", with+`,"dhcp":{"defaultRoute":false}`, strings.Join([]string{
		"10.1.0.0/24 map[lease_time:3600 mtu:1400 server_id:10.1.0.1 server_mac:0a:58:0a:01:00:01]",
		"fd01::/64 map[server_id:0a:58:00:00:00:01]", "from-lport 32767 allow " + acl + " map[apply-after-lb:true]",
		"shop/web/net1 dhcpv4_options", "shop/web/net1 dhcpv6_options", "to-lport 32767 drop " + acl + " map[]",
	}, "\n"), true)
	step("switched off", with, "", true)
	step("switched on again", with+keys, wanted(" mtu:1400", " mtu:1400"), true)
	w.MustRemove(t, "shop/blue", true)
	if got := dhcpRows(t, w); got != "" {
		t.Errorf("a deleted network leaves\n%s", got)
	}
}
