package netmodel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// config writes a spec.config of ours with further keys.
func config(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return `{"cniVersion":"1.0.0","name":"any","type":"ovn-multinet"` + keys + `}`
}

func parse(t testing.TB, keys string) *Network {
	t.Helper()
	n, err := ParseNetwork("shop", "blue", []byte(config(keys)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// show writes what a network has beyond its name and the defaults.
func show(n *Network) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if n.Topology != Layer2 {
		add("%s", n.Topology)
	}
	for i, s := range n.Subnets {
		if g := n.Gateway(i); g.IsValid() {
			add("%s gw %s", s, g)
		} else {
			add("%s/%d", s, n.NodeSubnetBits[i])
		}
	}
	for _, e := range n.Exclude {
		add("without %s", e)
	}
	if n.Router != "" {
		add("at %s", n.Router)
	}
	for _, g := range n.Guests {
		add("with %s %s", g.Namespace, joinWords(g.Subnets, "+"))
	}
	if n.SNAT != nil {
		add("snat %t", *n.SNAT)
	}
	if n.Physical != "" || n.VLAN != 0 {
		add("VLAN %d of %s", n.VLAN, n.Physical)
	}
	for _, r := range n.Routes {
		add("to %s", r)
	}
	if n.MTU != 0 {
		add("mtu %d", n.MTU)
	}
	if n.ConflictWait != 0 {
		add("wait %s", n.ConflictWait)
	}
	if !n.PortSecurity {
		add("open")
	}
	return strings.Join(words, ", ")
}

func TestParseNetwork(t *testing.T) {
	tests := []struct {
		name string
		keys string
		want string
	}{
		{"defaults", "", ""},
		{"topology", `"topology":"layer2"`, ""},
		{"its own name", `"netAttachDefName":"shop/blue"`, ""},
		{"no subnets", `"subnets":""`, ""},
		{"blank subnets", `"subnets":" "`, ""},
		{"IPv4", `"subnets":"10.1.0.0/16"`, "10.1.0.0/16 gw 10.1.0.1"},
		{"IPv6", `"subnets":"fd01::/64"`, "fd01::/64 gw fd01::1"},
		{"both", `"subnets":"10.1.0.0/16,fd01::/64"`, "10.1.0.0/16 gw 10.1.0.1, fd01::/64 gw fd01::1"},
		{"both, IPv6 first", `"subnets":" fd01::/64 , 10.1.0.0/16 "`, "10.1.0.0/16 gw 10.1.0.1, fd01::/64 gw fd01::1"},
		{"smallest", `"subnets":"10.1.0.4/30,fd01::4/126"`, "10.1.0.4/30 gw 10.1.0.5, fd01::4/126 gw fd01::5"},
		{"largest", `"subnets":"8.0.0.0/5,2000::/3"`, "8.0.0.0/5 gw 8.0.0.1, 2000::/3 gw 2000::1"},
		{"gateway", `"subnets":"10.1.0.0/16","gateway":"10.1.255.254"`, "10.1.0.0/16 gw 10.1.255.254"},
		{"gateway of one family", `"subnets":"10.1.0.0/16,fd01::/64","gateway":"fd01::ff"`, "10.1.0.0/16 gw 10.1.0.1, fd01::/64 gw fd01::ff"},
		{"gateways in any order", `"subnets":"10.1.0.0/16,fd01::/64","gateway":"fd01::ff, 10.1.0.9"`, "10.1.0.0/16 gw 10.1.0.9, fd01::/64 gw fd01::ff"},
		{"IPv6's last address is no broadcast", `"subnets":"fd01::/126","gateway":"fd01::3"`, "fd01::/126 gw fd01::3"},
		{"exclude", `"subnets":"10.1.0.0/16","excludeSubnets":"10.1.128.0/17, 10.1.0.0/28"`,
			"10.1.0.0/16 gw 10.1.0.1, without 10.1.128.0/17, without 10.1.0.0/28"},
		{"exclude the gateway", `"subnets":"10.1.0.0/16","excludeSubnets":"10.1.0.1/32"`, "10.1.0.0/16 gw 10.1.0.1, without 10.1.0.1/32"},
		{"exclude of both", `"subnets":"10.1.0.0/16,fd01::/64","excludeSubnets":"fd01::8000:0/97,10.1.128.0/17"`,
			"10.1.0.0/16 gw 10.1.0.1, fd01::/64 gw fd01::1, without fd01::8000:0/97, without 10.1.128.0/17"},
		{"all but one", `"subnets":"10.1.0.0/29","excludeSubnets":"10.1.0.4/30,10.1.0.3/32"`,
			"10.1.0.0/29 gw 10.1.0.1, without 10.1.0.4/30, without 10.1.0.3/32"},
		{"route by the gateway", `"subnets":"10.1.0.0/16","routes":[{"dst":"192.0.2.0/24"}]`, "10.1.0.0/16 gw 10.1.0.1, to 192.0.2.0/24 via 10.1.0.1"},
		{"routes of both families", `"subnets":"10.1.0.0/16,fd01::/64","routes":[{"dst":"fd02::/64"},{"dst":"192.0.2.0/24","gw":"10.1.0.7"}]`,
			"10.1.0.0/16 gw 10.1.0.1, fd01::/64 gw fd01::1, to fd02::/64 via fd01::1, to 192.0.2.0/24 via 10.1.0.7"},
		{"one destination in two lengths", `"subnets":"10.1.0.0/16","routes":[{"dst":"192.0.2.0/24"},{"dst":"192.0.2.0/25"}]`,
			"10.1.0.0/16 gw 10.1.0.1, to 192.0.2.0/24 via 10.1.0.1, to 192.0.2.0/25 via 10.1.0.1"},
		{"a route on the link", `"subnets":"10.1.0.0/16","routes":[{"dst":"224.0.0.0/4","scope":253}]`, "10.1.0.0/16 gw 10.1.0.1, to 224.0.0.0/4 on the link"},
		{"the scope of CNI's default", `"subnets":"10.1.0.0/16","routes":[{"dst":"192.0.2.0/24","scope":0}]`, "10.1.0.0/16 gw 10.1.0.1, to 192.0.2.0/24 via 10.1.0.1"},
		{"no routes", `"routes":[]`, ""},
		{"router", `"subnets":"10.1.0.0/16","router":"r1"`, "10.1.0.0/16 gw 10.1.0.1, at shop/r1"},
		{"router of IPv6", `"subnets":"fd01::/64","router":"1"`, "fd01::/64 gw fd01::1, at shop/1"},
		{"router of the longest name", `"subnets":"fd01::/64","router":"a-` + strings.Repeat("z", 61) + `"`, "fd01::/64 gw fd01::1, at shop/a-" + strings.Repeat("z", 61)},
		{"snat", `"subnets":"10.1.0.0/16","router":"r1","snat":true`, "10.1.0.0/16 gw 10.1.0.1, at shop/r1, snat true"},
		{"no snat", `"subnets":"10.1.0.0/16","router":"r1","snat":false`, "10.1.0.0/16 gw 10.1.0.1, at shop/r1, snat false"},
		{"snat as the gateway does", `"subnets":"10.1.0.0/16","router":"r1","snat":null`, "10.1.0.0/16 gw 10.1.0.1, at shop/r1"},
		{"localnet", `"topology":"localnet","physicalNetworkName":"phys"`, "localnet, VLAN 0 of phys"},
		{"localnet, untagged", `"topology":"localnet","physicalNetworkName":"phys","vlanID":null,"router":""`, "localnet, VLAN 0 of phys"},
		{"localnet, least VLAN", `"topology":"localnet","physicalNetworkName":"phys","vlanID":1`, "localnet, VLAN 1 of phys"},
		{"localnet, greatest VLAN", `"topology":"localnet","physicalNetworkName":"phys","vlanID":4094`, "localnet, VLAN 4094 of phys"},
		{"localnet, least wait", `"topology":"localnet","physicalNetworkName":"phys","addressConflictWait":"1s"`, "localnet, VLAN 0 of phys, wait 1s"},
		{"localnet, greatest wait", `"topology":"localnet","physicalNetworkName":"phys","addressConflictWait":"10s"`, "localnet, VLAN 0 of phys, wait 10s"},
		{"localnet of every kind of sign", `"topology":"localnet","physicalNetworkName":"0_Z.a-b/c@d=e"`, "localnet, VLAN 0 of 0_Z.a-b/c@d=e"},
		{"localnet of the longest name", `"topology":"localnet","physicalNetworkName":"` + strings.Repeat("p", 64) + `"`, "localnet, VLAN 0 of " + strings.Repeat("p", 64)},
		{"localnet with addresses", `"topology":"localnet","physicalNetworkName":"phys","vlanID":7,"subnets":"10.1.0.0/16","gateway":"10.1.0.254",` +
			`"excludeSubnets":"10.1.0.0/24","routes":[{"dst":"192.0.2.0/24"}]`,
			"localnet, 10.1.0.0/16 gw 10.1.0.254, without 10.1.0.0/24, VLAN 7 of phys, to 192.0.2.0/24 via 10.1.0.254"},
		{"mtu", `"mtu":1400`, "mtu 1400"},
		{"least mtu", `"mtu":68,"subnets":"10.1.0.0/16"`, "10.1.0.0/16 gw 10.1.0.1, mtu 68"},
		{"least mtu with IPv6", `"mtu":1280,"subnets":"fd01::/64"`, "fd01::/64 gw fd01::1, mtu 1280"},
		{"greatest mtu", `"mtu":65535`, "mtu 65535"},
		{"port security", `"portSecurity":true`, ""},
		{"no port security", `"portSecurity":false`, "open"},
		{"null is as good as left out", `"mtu":null,"portSecurity":null,"subnets":null,"routes":null,"router":null,"args":null,"snat":null,"vlanID":null,"topology":null`, ""},
		{"unserved, and not asked for", `"router":"","physicalNetworkName":"","allowPersistentIPs":false,"role":"secondary"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := parse(t, tt.keys)
			if show(n) != tt.want {
				t.Errorf("got  %s\nwant %s", show(n), tt.want)
			}
			if n.ID() != "shop/blue" || n.NAD() != "shop/blue" || n.SharedName != "" {
				t.Errorf("network %s of %s, shared %q", n.ID(), n.NAD(), n.SharedName)
			}
		})
	}
}

func TestParseNetworkRefuses(t *testing.T) {
	const v4 = `"subnets":"10.1.0.0/16",`
	tests := []struct {
		name   string
		config string
		want   string // after "network shop/blue: "
	}{
		{"nothing", "", "not valid JSON: unexpected end of JSON input"},
		{"null", "null", `"type" is missing`},
		{"a list", "[]", "a JSON array where another kind of value is wanted"},
		{"a string", `"x"`, "a JSON string where another kind of value is wanted"},
		{"a number", "1", "a JSON number where another kind of value is wanted"},
		{"no JSON", "{x}", "not valid JSON: invalid character 'x' looking for beginning of object key string"},
		{"not closed", `{"type":"ovn-multinet"`, "not valid JSON: unexpected end of JSON input"},
		{"text after it", config("") + "x", "not valid JSON: invalid character 'x' after top-level value"},
		{"a second object", config("") + config(""), "not valid JSON: invalid character '{' after top-level value"},
		{"no type", `{"cniVersion":"1.0.0","name":"any"}`, `"type" is missing`},
		{"another type", `{"type":"bridge"}`, `type is "bridge", not "ovn-multinet"`},
		{"another key", config(`"subnet":"10.1.0.0/16"`), `unknown key "subnet", did you mean "subnets"?`},
		{"a key in another case", config(`"MTU":1400`), `unknown key "MTU", did you mean "mtu"?`},
		{"a key like none", config(`"colour":"blue"`), `unknown key "colour"`},
		{"two unknown keys", config(`"zzz":1,"aaa":1`), `unknown key "aaa"`},
		{"a long unknown key", config(`"` + strings.Repeat("k", 1000) + `":1`), `unknown key "` + strings.Repeat("k", 64) + `"`},
		{"a key twice", config(`"mtu":1400,"mtu":9000`), `key "mtu" is given twice`},
		{"of another NAD", config(`"netAttachDefName":"shop/red"`), `netAttachDefName is "shop/red", but this is "shop/blue"`},

		{"no topology of the field", config(`"topology":"Layer2"`), `topology: "Layer2" is not known, want "layer2", "layer3" or "localnet"`},
		{"a long topology of two lines", config(`"topology":"a\n` + strings.Repeat("b", 100) + `"`), `topology: "a\n` + strings.Repeat("b", 62) + `" is not known, want "layer2", "layer3" or "localnet"`},
		{"topology is a number", config(`"topology":2`), `"topology" does not take a JSON number`},

		{"router, and no subnets", config(`"router":"r1"`), "router: a network without subnets has nothing to route"},
		{"router in capitals", config(v4 + `"router":"R1"`), `router: "R1" is no router's name: "core", "<namespace>/core" or "/core", with lower-case letters, digits and '-', at most 63`},
		{"router with a dash in front", config(v4 + `"router":"-r1"`), `router: "-r1" is no router's name: "core", "<namespace>/core" or "/core", with lower-case letters, digits and '-', at most 63`},
		{"router with a dash behind", config(v4 + `"router":"r1-"`), `router: "r1-" is no router's name: "core", "<namespace>/core" or "/core", with lower-case letters, digits and '-', at most 63`},
		{"router of two lines", config(v4 + `"router":"r1\n"`), `router: "r1\n" is no router's name: "core", "<namespace>/core" or "/core", with lower-case letters, digits and '-', at most 63`},
		{"router of 64", config(v4 + `"router":"` + strings.Repeat("r", 64) + `"`), `router: "` + strings.Repeat("r", 64) + `" is no router's name: "core", "<namespace>/core" or "/core", with lower-case letters, digits and '-', at most 63`},
		{"router is a list", config(v4 + `"router":["r1"]`), `"router" does not take a JSON array`},
		{"allowPersistentIPs, a text", config(`"allowPersistentIPs":"secondary"`), `"allowPersistentIPs" does not take a JSON string`},
		{"allowPersistentIPs on layer3", config(`"topology":"layer3","subnets":"10.1.0.0/16/24","allowPersistentIPs":true`),
			`allowPersistentIPs: on topology "layer3" an address belongs to one node, and the next pod may be on another one; use layer2 or localnet`},
		{"role", config(`"role":"primary"`), `role: "primary" is not served, only "secondary": a pod's first interface stays with the primary network`},
		{"args", config(`"args":{"cni":{}}`), `"args" is not served yet, leave it out`},
		{"two unserved", config(`"args":{"a":1},"role":"primary"`), `role: "primary" is not served, only "secondary": a pod's first interface stays with the primary network`},

		{"subnets is a list", config(`"subnets":["10.1.0.0/16"]`), `"subnets" does not take a JSON array`},
		{"subnet without length", config(`"subnets":"10.1.0.0"`), `subnets: "10.1.0.0" is not a network like 10.1.0.0/16`},
		{"subnet of words", config(`"subnets":"ten"`), `subnets: "ten" is not a network like 10.1.0.0/16`},
		{"subnet and a comma", config(`"subnets":"10.1.0.0/16,"`), `subnets: "" is not a network like 10.1.0.0/16`},
		{"layer3's form", config(`"subnets":"10.1.0.0/16/24"`), `subnets: "10.1.0.0/16/24" is not a network like 10.1.0.0/16`},
		{"subnet with a zone", config(`"subnets":"fd01::%x/64"`), `subnets: "fd01::%x/64" is not a network like 10.1.0.0/16`},
		{"host bits", config(`"subnets":"10.1.0.7/16"`), "subnets: 10.1.0.7/16 has host bits set, did you mean 10.1.0.0/16?"},
		{"host bits of IPv6", config(`"subnets":"fd01::1/64"`), "subnets: fd01::1/64 has host bits set, did you mean fd01::/64?"},
		{"IPv4 in IPv6", config(`"subnets":"::ffff:10.1.0.0/112"`), "subnets: ::ffff:10.1.0.0/112 is IPv4 in IPv6 notation, write it as IPv4"},
		{"two of IPv4", config(`"subnets":"10.1.0.0/16,10.2.0.0/16"`), "subnets: 10.1.0.0/16 and 10.2.0.0/16 are of one family, only one of each is served"},
		{"two of IPv6", config(`"subnets":"fd01::/64,10.1.0.0/16,fd02::/64"`), "subnets: fd01::/64 and fd02::/64 are of one family, only one of each is served"},
		{"gateway of a /31", config(`"subnets":"10.1.0.0/31","gateway":"10.1.0.0"`), "gateway: leave it out, 10.1.0.0/31 has one address for each of two pods"},
		{"router of a /31", config(`"subnets":"10.1.0.0/31","router":"r1"`), "router: 10.1.0.0/31 has no address for a router beside two pods; make the subnet larger"},
		{"router of a /127 beside IPv4", config(`"subnets":"10.1.0.0/24,fd01::/127","router":"r1"`), "router: fd01::/127 has no address for a router beside two pods; make the subnet larger"},
		{"/31 without an address for pods", config(`"subnets":"10.1.0.0/31","excludeSubnets":"10.1.0.0/31"`), "excludeSubnets: nothing of 10.1.0.0/31 is left for pods"},
		{"route of a /31 without a gateway", config(`"subnets":"10.1.0.0/31","routes":[{"dst":"192.0.2.0/24"}]`), "routes[0].gw: the network has no gateway of the family of 192.0.2.0/24, name one"},
		{"/32", config(`"subnets":"10.1.0.0/32"`), "subnets: 10.1.0.0/32 leaves no room for a gateway and a pod"},
		{"/128", config(`"subnets":"fd01::/128"`), "subnets: fd01::/128 leaves no room for a gateway and a pod"},
		{"multicast", config(`"subnets":"239.0.0.0/24"`), "subnets: 239.0.0.0/24 is no unicast network that can be shared"},
		{"loopback", config(`"subnets":"127.1.0.0/16"`), "subnets: 127.1.0.0/16 is no unicast network that can be shared"},
		{"link-local", config(`"subnets":"fe80::/64"`), "subnets: fe80::/64 is no unicast network that can be shared"},
		{"link-local of IPv4", config(`"subnets":"169.254.7.0/24"`), "subnets: 169.254.7.0/24 is no unicast network that can be shared"},
		{"everything", config(`"subnets":"0.0.0.0/0"`), "subnets: 0.0.0.0/0 is no unicast network that can be shared"},
		{"all of IPv6", config(`"subnets":"::/0"`), "subnets: ::/0 is no unicast network that can be shared"},
		{"loopback within", config(`"subnets":"126.0.0.0/7"`), "subnets: 126.0.0.0/7 is no unicast network that can be shared"},

		{"gateway of words", config(v4 + `"gateway":"one"`), `gateway: "one" is not an IP address`},
		{"gateway with a length", config(v4 + `"gateway":"10.1.0.1/16"`), `gateway: "10.1.0.1/16" is not an IP address`},
		{"gateway elsewhere", config(v4 + `"gateway":"10.2.0.1"`), "gateway: 10.2.0.1 is in none of the subnets"},
		{"gateway of another family", config(v4 + `"gateway":"fd01::1"`), "gateway: fd01::1 is in none of the subnets"},
		{"gateway as IPv4 in IPv6", config(v4 + `"gateway":"::ffff:10.1.0.1"`), "gateway: ::ffff:10.1.0.1 is in none of the subnets"},
		{"gateway with a zone", config(`"subnets":"fd01::/64","gateway":"fd01::1%x"`), `gateway: "fd01::1%x" is not an IP address`},
		{"gateway with a zone of two lines", config(`"subnets":"fd01::/64","gateway":"fd01::1%x\n` + strings.Repeat("z", 100) + `"`), `gateway: "fd01::1%x\n` + strings.Repeat("z", 54) + `" is not an IP address`},
		{"a long gateway", config(v4 + `"gateway":"` + strings.Repeat("1", 100) + `"`), `gateway: "` + strings.Repeat("1", 64) + `" is not an IP address`},
		{"a long subnet", config(`"subnets":"` + strings.Repeat("1", 100) + `"`), `subnets: "` + strings.Repeat("1", 64) + `" is not a network like 10.1.0.0/16`},
		{"gateway and no subnet", config(`"gateway":"10.1.0.1"`), "gateway: 10.1.0.1 is in none of the subnets"},
		{"two gateways in one subnet", config(v4 + `"gateway":"10.1.0.1,10.1.0.2"`), "gateway: 10.1.0.1 and 10.1.0.2 are in one subnet"},
		{"gateway is the network", config(v4 + `"gateway":"10.1.0.0"`), "gateway: address 10.1.0.0 is the network address of 10.1.0.0/16"},
		{"gateway is the broadcast", config(v4 + `"gateway":"10.1.255.255"`), "gateway: address 10.1.255.255 is the broadcast address of 10.1.0.0/16"},
		{"gateway is the anycast", config(`"subnets":"fd01::/64","gateway":"fd01::"`), "gateway: address fd01:: is the network address of fd01::/64"},

		{"exclude of words", config(v4 + `"excludeSubnets":"x"`), `excludeSubnets: "x" is not a network like 10.1.0.0/16`},
		{"exclude with host bits", config(v4 + `"excludeSubnets":"10.1.0.1/24"`), "excludeSubnets: 10.1.0.1/24 has host bits set, did you mean 10.1.0.0/24?"},
		{"exclude elsewhere", config(v4 + `"excludeSubnets":"10.2.0.0/24"`), "excludeSubnets: 10.2.0.0/24 is in none of the subnets"},
		{"exclude more than the subnet", config(v4 + `"excludeSubnets":"10.0.0.0/8"`), "excludeSubnets: 10.0.0.0/8 is in none of the subnets"},
		{"exclude a wider net of the same address", config(`"subnets":"10.0.0.0/16","excludeSubnets":"10.0.0.0/15"`), "excludeSubnets: 10.0.0.0/15 is in none of the subnets"},
		{"exclude and no subnet", config(`"excludeSubnets":"10.1.0.0/24"`), "excludeSubnets: 10.1.0.0/24 is in none of the subnets"},
		{"exclude all", config(v4 + `"excludeSubnets":"10.1.0.0/16"`), "excludeSubnets: nothing of 10.1.0.0/16 is left for pods"},
		{"exclude all in halves", config(v4 + `"excludeSubnets":"10.1.128.0/17,10.1.0.0/17"`), "excludeSubnets: nothing of 10.1.0.0/16 is left for pods"},
		{"exclude all but the gateway", config(`"subnets":"10.1.0.0/30","excludeSubnets":"10.1.0.2/32"`), "excludeSubnets: nothing of 10.1.0.0/30 is left for pods"},
		{"exclude all of IPv6 that is leased", config(`"subnets":"fd01::/64","excludeSubnets":"fd01::/96"`), "excludeSubnets: nothing of fd01::/64 is left for pods"},

		{"routes is an object", config(`"routes":{}`), `"routes" does not take a JSON object`},
		{"route is a string", config(v4 + `"routes":["192.0.2.0/24"]`), "routes[0]: a JSON string where another kind of value is wanted"},
		{"route is null", config(v4 + `"routes":[null]`), "routes[0]: null where an object is wanted"},
		{"route with another key", config(v4 + `"routes":[{"dst":"192.0.2.0/24","gateway":"10.1.0.7"}]`), `routes[0]: unknown key "gateway"`},
		{"route without destination", config(v4 + `"routes":[{"gw":"10.1.0.7"}]`), `routes[0].dst: "" is not a network like 10.1.0.0/16`},
		{"route with host bits", config(v4 + `"routes":[{"dst":"192.0.2.0/24"},{"dst":"192.0.2.1/24"}]`), "routes[1].dst: 192.0.2.1/24 has host bits set, did you mean 192.0.2.0/24?"},
		{"default route", config(v4 + `"routes":[{"dst":"0.0.0.0/0"}]`), "routes[0].dst: 0.0.0.0/0 is the default route, which stays with the pod's first interface"},
		{"default route of IPv6", config(v4 + `"routes":[{"dst":"::/0"}]`), "routes[0].dst: ::/0 is the default route, which stays with the pod's first interface"},
		{"route to the subnet", config(v4 + `"routes":[{"dst":"10.1.0.0/16"}]`), "routes[0].dst: 10.1.0.0/16 is the network's own subnet, pods reach it without a route"},
		{"route twice", config(v4 + `"routes":[{"dst":"192.0.2.0/24"},{"dst":"192.0.2.0/24","gw":"10.1.0.7"}]`), "routes[1].dst: 192.0.2.0/24 is routed twice"},
		{"route of a family without gateway", config(v4 + `"routes":[{"dst":"fd02::/64"}]`), "routes[0].gw: the network has no gateway of the family of fd02::/64, name one"},
		{"route, and no subnets", config(`"routes":[{"dst":"192.0.2.0/24"}]`), "routes[0].gw: the network has no gateway of the family of 192.0.2.0/24, name one"},
		{"route on the link by a gateway", config(v4 + `"routes":[{"dst":"224.0.0.0/4","scope":253,"gw":"10.1.0.7"}]`), `routes[0].gw: leave it out, with "scope": 253 the destination is on the link`},
		{"route on the link of another family", config(v4 + `"routes":[{"dst":"ff00::/8","scope":253}]`), "routes[0].gw: the network has no subnet of the family of ff00::/8"},
		{"route of another scope", config(v4 + `"routes":[{"dst":"192.0.2.0/24","scope":254}]`), "routes[0].scope: 254 is not served, only 253 (on the link)"},
		{"route by words", config(v4 + `"routes":[{"dst":"192.0.2.0/24","gw":"x"}]`), `routes[0].gw: "x" is not an IP address`},
		{"route by another family", config(v4 + `"routes":[{"dst":"192.0.2.0/24","gw":"fd01::1"}]`), "routes[0].gw: fd01::1 is not of the family of 192.0.2.0/24"},
		{"route by IPv4 in IPv6", config(v4 + `"routes":[{"dst":"192.0.2.0/24","gw":"::ffff:10.1.0.1"}]`), "routes[0].gw: ::ffff:10.1.0.1 is not of the family of 192.0.2.0/24"},
		{"route by who is elsewhere", config(v4 + `"routes":[{"dst":"192.0.2.0/24","gw":"10.2.0.1"}]`), "routes[0].gw: 10.2.0.1 is in none of the subnets, pods could not reach it"},
		{"route by the broadcast", config(v4 + `"routes":[{"dst":"192.0.2.0/24","gw":"10.1.255.255"}]`), "routes[0].gw: address 10.1.255.255 is the broadcast address of 10.1.0.0/16"},

		{"mtu too small", config(`"mtu":67`), "mtu: 67 is not between 68 and 65535"},
		{"mtu 0", config(`"mtu":0`), "mtu: 0 is not between 68 and 65535"},
		{"mtu negative", config(`"mtu":-1`), "mtu: -1 is not between 68 and 65535"},
		{"mtu too small for IPv6", config(`"mtu":1279,"subnets":"10.1.0.0/16,fd01::/64"`), "mtu: 1279 is not between 1280 and 65535"},
		{"mtu too great", config(`"mtu":65536`), "mtu: 65536 is not between 68 and 65535"},
		{"mtu is a string", config(`"mtu":"1400"`), `"mtu" does not take a JSON string`},
		{"mtu is broken", config(`"mtu":1400.5`), `"mtu" does not take a JSON number 1400.5`},
		{"portSecurity is a string", config(`"portSecurity":"false"`), `"portSecurity" does not take a JSON string`},
		{"name is a number", config(`"netAttachDefName":1`), `"netAttachDefName" does not take a JSON number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { refused(t, tt.config, tt.want) })
	}
}

// refused reads what must not be taken; want is what the error says of the network.
func refused(t *testing.T, text, want string) {
	t.Helper()
	n, err := ParseNetwork("shop", "blue", []byte(text))
	if err == nil {
		t.Fatalf("taken as %s", show(n))
	}
	code, _, details := conf.Describe(err)
	if want := "network shop/blue: " + want; code != conf.CodeInvalidConfig || err.Error() != want || n != nil {
		t.Errorf("got  %d %s\nwant 7 %s", code, err, want)
	}
	if want := "correct spec.config of the NetworkAttachmentDefinition"; details != want {
		t.Errorf("details %q, want %q", details, want)
	}
}

func TestParseLocalnetRefuses(t *testing.T) {
	const localnet, phys = `"topology":"localnet"`, `"topology":"localnet","physicalNetworkName":"phys"`
	odd := func(shown string) string {
		return "physicalNetworkName: " + shown + " is no name for ovn-bridge-mappings: no blanks, commas, colons or quotes, at most 64"
	}
	noWait := func(text string) string {
		return fmt.Sprintf("addressConflictWait: %q is no duration between 1s and 10s, like \"2s\"; leave it out if pods need not wait", text)
	}
	const missing = "physicalNetworkName is missing: the name that the nodes' ovn-bridge-mappings give the physical network"
	tests := []struct {
		name string
		keys string
		want string
	}{
		{"a wait on an overlay", `"addressConflictWait":"2s"`, `addressConflictWait: it is for topology "localnet"`},
		{"too short a wait", phys + `,"addressConflictWait":"999ms"`, noWait("999ms")},
		{"too long a wait", phys + `,"addressConflictWait":"10001ms"`, noWait("10001ms")},
		{"a wait without a unit", phys + `,"addressConflictWait":"2"`, noWait("2")},
		{"an empty wait", phys + `,"addressConflictWait":""`, noWait("")},
		{"a negative wait", phys + `,"addressConflictWait":"-2s"`, noWait("-2s")},
		{"no provider's network", localnet, missing},
		{"an empty provider's network", localnet + `,"physicalNetworkName":""`, missing},
		{"a VLAN of no provider's network", localnet + `,"vlanID":7`, missing},
		{"two mappings", localnet + `,"physicalNetworkName":"a:br-a,b"`, odd(`"a:br-a,b"`)},
		{"a comma", localnet + `,"physicalNetworkName":"a,b"`, odd(`"a,b"`)},
		{"a colon", localnet + `,"physicalNetworkName":"a:b"`, odd(`"a:b"`)},
		{"a blank", localnet + `,"physicalNetworkName":"a b"`, odd(`"a b"`)},
		{"a blank behind", localnet + `,"physicalNetworkName":"phys "`, odd(`"phys "`)},
		{"a quote", localnet + `,"physicalNetworkName":"\"phys\""`, odd(`"\"phys\""`)},
		{"two lines", localnet + `,"physicalNetworkName":"phys\n"`, odd(`"phys\n"`)},
		{"a sign that none sees", localnet + `,"physicalNetworkName":"a\u0000b"`, odd(`"a\x00b"`)},
		{"a blank beyond ASCII", localnet + `,"physicalNetworkName":"a\u00a0b"`, odd(`"a\u00a0b"`)},
		{"a long name", localnet + `,"physicalNetworkName":"` + strings.Repeat("p", 65) + `"`, odd(`"` + strings.Repeat("p", 64) + `"`)},
		{"a number", localnet + `,"physicalNetworkName":7`, `"physicalNetworkName" does not take a JSON number`},

		{"VLAN 0", phys + `,"vlanID":0`, "vlanID: 0 is not between 1 and 4094; leave it out for an untagged network"},
		{"VLAN 4095", phys + `,"vlanID":4095`, "vlanID: 4095 is not between 1 and 4094; leave it out for an untagged network"},
		{"VLAN -1", phys + `,"vlanID":-1`, "vlanID: -1 is not between 1 and 4094; leave it out for an untagged network"},
		{"a VLAN in a string", phys + `,"vlanID":"7"`, `"vlanID" does not take a JSON string`},
		{"half a VLAN", phys + `,"vlanID":7.5`, `"vlanID" does not take a JSON number 7.5`},
		{"blocks", phys + `,"subnets":"10.1.0.0/16/24"`, `subnets: "10.1.0.0/16/24" is not a network like 10.1.0.0/16`},
		{"a router of ours", phys + `,"subnets":"10.1.0.0/16","router":"r1"`, "router: a localnet network has the routers of its physical network, and none of ours"},
		{"snat and a router of ours", phys + `,"subnets":"10.1.0.0/16","router":"r1","snat":true`, "router: a localnet network has the routers of its physical network, and none of ours"},
		{"snat", phys + `,"subnets":"10.1.0.0/16","snat":false`, `snat: it is the router's gateway that does it, and there is no "router"`},

		{"a provider's network of layer2", `"physicalNetworkName":"phys"`, `physicalNetworkName: it is for topology "localnet"`},
		{"a VLAN of layer2", `"vlanID":7`, `vlanID: it is for topology "localnet"`},
		{"VLAN 0 of layer2", `"topology":"layer2","vlanID":0`, `vlanID: it is for topology "localnet"`},
		{"snat of layer2 without a router", `"subnets":"10.1.0.0/16","snat":true`, `snat: it is the router's gateway that does it, and there is no "router"`},
		{"no snat of layer2 without a router", `"subnets":"10.1.0.0/16","snat":false,"router":""`, `snat: it is the router's gateway that does it, and there is no "router"`},
		{"snat is a string", `"subnets":"10.1.0.0/16","router":"r1","snat":"true"`, `"snat" does not take a JSON string`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { refused(t, config(tt.keys), tt.want) })
	}
}

func TestCheckFixed(t *testing.T) {
	n := parse(t, `"subnets":"10.1.0.0/24,fd01::/64","gateway":"10.1.0.254","excludeSubnets":"10.1.0.64/26,fd01::100/120"`)
	tests := []struct{ address, want string }{
		{"10.1.0.1", ""},
		{"10.1.0.63", ""},
		{"10.1.0.128", ""},
		{"fd01::2", ""},
		{"fd01::ffff:ffff:ffff:ffff", ""},
		{"10.2.0.1", "address 10.2.0.1 is outside the subnets 10.1.0.0/24,fd01::/64 of network shop/blue"},
		{"fd02::1", "address fd02::1 is outside the subnets 10.1.0.0/24,fd01::/64 of network shop/blue"},
		{"::ffff:10.1.0.7", "address ::ffff:10.1.0.7 is outside the subnets 10.1.0.0/24,fd01::/64 of network shop/blue"},
		{"10.1.0.0", "address 10.1.0.0 is the network address of 10.1.0.0/24"},
		{"fd01::", "address fd01:: is the network address of fd01::/64"},
		{"10.1.0.255", "address 10.1.0.255 is the broadcast address of 10.1.0.0/24"},
		{"10.1.0.254", "address 10.1.0.254 is the gateway of network shop/blue"},
		{"fd01::1", "address fd01::1 is the gateway of network shop/blue"},
		{"10.1.0.64", "address 10.1.0.64 is excluded by excludeSubnets 10.1.0.64/26 of network shop/blue"},
		{"10.1.0.127", "address 10.1.0.127 is excluded by excludeSubnets 10.1.0.64/26 of network shop/blue"},
		{"fd01::1ff", "address fd01::1ff is excluded by excludeSubnets fd01::100/120 of network shop/blue"},
	}
	for _, tt := range tests {
		t.Run(tt.address, func(t *testing.T) {
			got := ""
			if err := n.CheckFixed(netip.MustParseAddr(tt.address)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	if err := parse(t, "").CheckFixed(netip.MustParseAddr("10.1.0.1")); err == nil ||
		err.Error() != "address 10.1.0.1 is outside the subnets (none) of network shop/blue" {
		t.Errorf("network without subnets: %v", err)
	}
}

func TestKind(t *testing.T) {
	tests := []struct {
		name, config   string
		want, wantFail string
	}{
		{"ours", config(""), "ovn-multinet", ""},
		{"ovn-kubernetes'", `{"type":"ovn-k8s-cni-overlay"}`, "ovn-k8s-cni-overlay", ""},
		{"another's", `{"type":"bridge"}`, "bridge", ""},
		{"conflist", `{"name":"x","plugins":[{"type":"bridge"}]}`, "conflist", ""},
		{"a list of ours", `{"name":"x","plugins":[{"type":"ovn-multinet"}]}`, "ovn-multinet", ""},
		{"a list whose plugins are no list", `{"plugins":{"type":"ovn-multinet"}}`, "conflist", ""},
		{"conflist without plugins", `{"plugins":[]}`, "conflist", ""},
		{"type and plugins", `{"type":"bridge","plugins":[]}`, "bridge", ""},
		{"neither", `{}`, "", `"type" is missing`},
		{"null", "null", "", `"type" is missing`},
		{"empty", "", "", "not valid JSON: unexpected end of JSON input"},
		{"a list", "[]", "", "a JSON array where another kind of value is wanted"},
		{"type is a number", `{"type":1}`, "", `"type" does not take a JSON number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := nadWith("shop", "blue", tt.config, KeptConfig).Kind()
			fail := ""
			if err != nil {
				fail = err.Error()
			}
			if got != tt.want || fail != tt.wantFail {
				t.Errorf("got %q, %q; want %q, %q", got, fail, tt.want, tt.wantFail)
			}
		})
	}
}
