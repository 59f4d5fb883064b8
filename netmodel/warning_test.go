package netmodel

import (
	"net/netip"
	"testing"
)

func TestWarning(t *testing.T) {
	reserved := []Reserved{
		{Prefix: netip.MustParsePrefix("10.244.0.0/16"), Of: "of --keep-on-primary"},
		{Prefix: netip.MustParsePrefix("192.0.2.17/32"), Of: "an address of node n1", Machine: true},
		{Prefix: netip.MustParsePrefix("fd99::/64"), Of: "the pods of node n1"},
	}
	const physical = `"topology":"localnet","physicalNetworkName":"p",`
	const keep, not = "10.244.0.0/16, of --keep-on-primary, ", "and pods on the network do not reach that by their first interface: "
	const nobody = `routes[0]: no pod has 10.1.0.1, the gateway of this network, and no router has it: name a "router", or the address of a pod as "gw"`
	const link = `write "scope": 253 and no "gw" to send it on the link`
	tests := []struct{ name, keys, want string }{
		{"nothing", `"subnets":"10.1.0.0/16,fd01::/64"`, ""},
		{"MAC only", ``, ""},
		{"pods of a node", `"subnets":"10.244.2.0/24"`, "subnets: 10.244.2.0/24 overlaps " + keep + not + "give the network another subnet"},
		{"IPv6 of a node's pods", `"subnets":"10.1.0.0/16,fd99::/80"`, "subnets: fd99::/80 overlaps fd99::/64, the pods of node n1, " + not + "give the network another subnet"},
		{"more than the pods", `"topology":"layer3","subnets":"10.0.0.0/8/24"`, "subnets: 10.0.0.0/8 overlaps " + keep + not + "give the network another subnet"},
		{"a node", `"subnets":"192.0.2.0/24"`, "subnets: 192.0.2.0/24 overlaps 192.0.2.17/32, an address of node n1, " + not + "give the network another subnet"},
		{"a node on its own physical network", physical + `"subnets":"192.0.2.0/24"`, ""},
		{"pods, on a physical network", physical + `"subnets":"10.244.2.0/24"`, "subnets: 10.244.2.0/24 overlaps " + keep + not + "give the network another subnet"},
		{"a route to pods", `"subnets":"10.1.0.0/16","router":"r1","routes":[{"dst":"172.16.0.0/12"},{"dst":"10.244.0.0/24"}]`,
			"routes[1].dst: 10.244.0.0/24 overlaps " + keep + not + "narrow the route"},
		{"a route on the link to pods", `"subnets":"10.1.0.0/16","routes":[{"dst":"10.244.0.0/24","scope":253}]`,
			"routes[0].dst: 10.244.0.0/24 overlaps " + keep + not + "narrow the route"},

		{"a gateway without a router", `"subnets":"10.1.0.0/16","routes":[{"dst":"172.16.0.0/12"}]`, nobody},
		{"a gateway by its address", `"subnets":"10.1.0.0/16","routes":[{"dst":"172.16.0.0/12","gw":"10.1.0.1"}]`, nobody},
		{"with a router", `"subnets":"10.1.0.0/16","router":"r1","routes":[{"dst":"172.16.0.0/12"}]`, ""},
		{"by a pod", `"subnets":"10.1.0.0/16","routes":[{"dst":"172.16.0.0/12","gw":"10.1.0.9"}]`, ""},
		{"by a physical router", physical + `"subnets":"10.1.0.0/16","routes":[{"dst":"172.16.0.0/12"}]`, ""},
		{"on the link", `"subnets":"10.1.0.0/16","routes":[{"dst":"172.16.0.0/12","scope":253}]`, ""},
		{"by the router of a layer3 network", `"topology":"layer3","subnets":"10.128.0.0/16","routes":[{"dst":"172.16.0.0/12"}]`,
			`routes[0]: the network's own router knows no way to 172.16.0.0/12: name a "router"`},
		{"on the link of a layer3 network", `"topology":"layer3","subnets":"10.128.0.0/16","routes":[{"dst":"224.0.0.0/4","scope":253}]`, ""},

		{"multicast", `"subnets":"10.1.0.0/16","routes":[{"dst":"224.0.0.0/4"}]`, "routes[0]: a gateway forwards no multicast to 224.0.0.0/4: " + link},
		{"multicast of IPv6 with a router", `"subnets":"fd01::/64","router":"r1","routes":[{"dst":"ff05::/16"}]`, "routes[0]: a gateway forwards no multicast to ff05::/16: " + link},
		{"multicast by a pod", `"subnets":"10.1.0.0/16","routes":[{"dst":"239.1.1.1/32","gw":"10.1.0.9"}]`, "routes[0]: a gateway forwards no multicast to 239.1.1.1/32: " + link},
		{"multicast on the link", `"subnets":"10.1.0.0/16","routes":[{"dst":"224.0.0.0/4","scope":253}]`, ""},

		{"DNS on the network", `"subnets":"10.1.0.0/16,fd01::/64","dhcp":{"dns":["10.1.0.53","fd01::53"]}`, ""},
		{"DNS by a router", `"subnets":"10.1.0.0/16","router":"r1","dhcp":{"dns":["198.51.100.53"]}`, ""},
		{"DNS by a route", `"subnets":"10.1.0.0/16","routes":[{"dst":"198.51.100.0/24","gw":"10.1.0.9"}],"dhcp":{"dns":["198.51.100.53"]}`, ""},
		{"DNS elsewhere", `"subnets":"10.1.0.0/16","dhcp":{"dns":["10.1.0.53","198.51.100.53"]}`,
			`dhcp.dns[1]: the network has no route to 198.51.100.53: write an address on the network, or name a "router"`},
		{"DNS without the default route", `"subnets":"10.1.0.0/16","router":"r1","dhcp":{"dns":["198.51.100.53"],"defaultRoute":false}`,
			`dhcp.dns[0]: the network has no route to 198.51.100.53: write an address on the network, or name a "router"`},
		{"DNS of the cluster", `"subnets":"10.1.0.0/16","router":"r1","dhcp":{"dns":["10.244.0.10"]}`,
			"dhcp.dns[0]: 10.244.0.10 is of " + keep + "which machines on the network do not reach: write another server"},

		{"two sorts", `"subnets":"10.244.2.0/24","routes":[{"dst":"224.0.0.0/4"},{"dst":"239.0.0.0/8"}]`,
			"subnets: 10.244.2.0/24 overlaps " + keep + not + "give the network another subnet; routes[0]: a gateway forwards no multicast to 224.0.0.0/4: " + link},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.keys).Warning(reserved); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
