package netmodel

import (
	"net/netip"
	"reflect"
	"testing"
)

// layer3 reads the keys as a network of that topology.
func layer3(t testing.TB, keys string) *Network {
	t.Helper()
	return parse(t, `"topology":"layer3",`+keys)
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

func TestParseLayer3(t *testing.T) {
	tests := []struct {
		name string
		keys string
		want string
	}{
		{"IPv4", `"subnets":"10.128.0.0/16/26"`, "layer3, 10.128.0.0/16/26"},
		{"IPv6", `"subnets":"fd01::/48/72"`, "layer3, fd01::/48/72"},
		{"blocks of IPv4 by default", `"subnets":"10.128.0.0/16"`, "layer3, 10.128.0.0/16/24"},
		{"blocks of IPv6 by default", `"subnets":"fd01::/48"`, "layer3, fd01::/48/64"},
		{"both", `"subnets":"10.128.0.0/16/25,fd01::/48/56"`, "layer3, 10.128.0.0/16/25, fd01::/48/56"},
		{"both, IPv6 first", `"subnets":" fd01::/48/56 , 10.128.0.0/16/25 "`, "layer3, 10.128.0.0/16/25, fd01::/48/56"},
		{"both, one by default", `"subnets":"fd01::/48/56,10.128.0.0/16"`, "layer3, 10.128.0.0/16/24, fd01::/48/56"},
		{"one block is all", `"subnets":"10.128.0.0/24,fd01::/64/64"`, "layer3, 10.128.0.0/24/24, fd01::/64/64"},
		{"smallest blocks", `"subnets":"10.128.0.0/29/30,fd01::/125/126"`, "layer3, 10.128.0.0/29/30, fd01::/125/126"},
		{"most blocks", `"subnets":"fd01::/32/64"`, "layer3, fd01::/32/64"},
		{"no gateway is asked for", `"subnets":"10.128.0.0/16","gateway":""`, "layer3, 10.128.0.0/16/24"},
		{"exclude", `"subnets":"10.128.0.0/16/24","excludeSubnets":"10.128.7.0/24"`, "layer3, 10.128.0.0/16/24, without 10.128.7.0/24"},
		{"exclude what is leased of the first block of IPv6", `"subnets":"fd01::/48","excludeSubnets":"fd01::/96"`, "layer3, fd01::/48/64, without fd01::/96"},
		{"router", `"subnets":"10.128.0.0/16/24","router":"r1"`, "layer3, 10.128.0.0/16/24, at shop/r1"},
		{"routes", `"subnets":"10.128.0.0/16/24,fd01::/48","routes":[{"dst":"fd02::/64"},{"dst":"192.0.2.0/24"}]`,
			"layer3, 10.128.0.0/16/24, fd01::/48/64, to fd02::/64, to 192.0.2.0/24"},
		{"a route to more than the subnet", `"subnets":"10.128.0.0/16/24","routes":[{"dst":"10.0.0.0/8","gw":""}]`,
			"layer3, 10.128.0.0/16/24, to 10.0.0.0/8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := layer3(t, tt.keys)
			if show(n) != tt.want {
				t.Errorf("got  %s\nwant %s", show(n), tt.want)
			}
			if len(n.Gateways) != 0 || n.Gateway(0).IsValid() || n.Node != "" {
				t.Errorf("the whole has gateways %v, node %q", n.Gateways, n.Node)
			}
			checkNetwork(t, n)
		})
	}
}

func TestParseLayer3Refuses(t *testing.T) {
	const v4 = `"subnets":"10.128.0.0/16/24",`
	tests := []struct {
		name string
		keys string
		want string // after "network shop/blue: "
	}{
		{"no subnets", `"mtu":1400`, `subnets: a layer3 network needs some to give each node its subnet, like "10.128.0.0/16/24"`},
		{"blank subnets", `"subnets":" "`, `subnets: a layer3 network needs some to give each node its subnet, like "10.128.0.0/16/24"`},
		{"blocks of words", `"subnets":"10.128.0.0/16/x"`, `subnets: "10.128.0.0/16/x" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks of nothing", `"subnets":"10.128.0.0/16/"`, `subnets: "10.128.0.0/16/" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks of a broken length", `"subnets":"10.128.0.0/16/24.5"`, `subnets: "10.128.0.0/16/24.5" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks with a space", `"subnets":"10.128.0.0/16/ 24"`, `subnets: "10.128.0.0/16/ 24" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks of /0", `"subnets":"10.128.0.0/16/0"`, `subnets: "10.128.0.0/16/0" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks of less", `"subnets":"10.128.0.0/16/-24"`, `subnets: "10.128.0.0/16/-24" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks beyond all numbers", `"subnets":"10.128.0.0/16/99999999999999999999"`, `subnets: "10.128.0.0/16/99999999999999999999" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks with a sign", `"subnets":"10.128.0.0/16/+24"`, `subnets: "10.128.0.0/16/+24" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"blocks with a zero in front", `"subnets":"10.128.0.0/16/024"`, `subnets: "10.128.0.0/16/024" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"two lines", `"subnets":"10.128.0.0/16/2\n4"`, `subnets: "10.128.0.0/16/2\n4" is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet`},
		{"no length of the subnet", `"subnets":"10.128.0.0//24"`, `subnets: "10.128.0.0/" is not a network like 10.1.0.0/16`},
		{"no subnet before the blocks", `"subnets":"/16/24"`, `subnets: "/16" is not a network like 10.1.0.0/16`},
		{"an address", `"subnets":"10.128.0.0"`, `subnets: "10.128.0.0" is not a network like 10.1.0.0/16`},
		{"host bits", `"subnets":"10.128.0.1/16/24"`, "subnets: 10.128.0.1/16 has host bits set, did you mean 10.128.0.0/16?"},
		{"multicast", `"subnets":"239.0.0.0/8/24"`, "subnets: 239.0.0.0/8/24 is no unicast network that can be shared"},
		{"two of IPv4", `"subnets":"10.128.0.0/16/24,10.1.0.0/16/24"`, "subnets: 10.128.0.0/16 and 10.1.0.0/16 are of one family, only one of each is served"},

		{"blocks wider than the subnet", `"subnets":"10.128.0.0/16/15"`, "subnets: 10.128.0.0/16 has no node subnets of /15; write the prefix length of a node subnet behind it, like 10.128.0.0/16/24"},
		{"a subnet that is narrower than the default", `"subnets":"10.128.0.0/25"`, "subnets: 10.128.0.0/25 has no node subnets of /24; write the prefix length of a node subnet behind it, like 10.128.0.0/25/30"},
		{"the narrowest subnet", `"subnets":"10.128.0.0/30"`, "subnets: 10.128.0.0/30 has no node subnets of /24; write the prefix length of a node subnet behind it, like 10.128.0.0/30/30"},
		{"IPv6 that is narrower than the default", `"subnets":"10.128.0.0/16,fd01::/96"`, "subnets: fd01::/96 has no node subnets of /64; write the prefix length of a node subnet behind it, like fd01::/96/104"},
		{"the second subnet's blocks are wider", `"subnets":"10.128.0.0/16/24,fd01::/64/63"`, "subnets: fd01::/64 has no node subnets of /63; write the prefix length of a node subnet behind it, like fd01::/64/72"},
		{"blocks of two addresses", `"subnets":"10.128.0.0/16/31"`, "subnets: 10.128.0.0/16/31 leaves no room for a gateway and a pod"},
		{"blocks of two addresses of IPv6", `"subnets":"fd01::/112/127"`, "subnets: fd01::/112/127 leaves no room for a gateway and a pod"},
		{"a subnet of two addresses", `"subnets":"10.128.0.0/31"`, "subnets: 10.128.0.0/31 leaves no room for a gateway and a pod"},
		{"blocks longer than an address", `"subnets":"10.128.0.0/16/33"`, "subnets: 10.128.0.0/16/33 leaves no room for a gateway and a pod"},
		{"blocks longer than an address of IPv6", `"subnets":"fd01::/64/129"`, "subnets: fd01::/64/129 leaves no room for a gateway and a pod"},
		{"too many blocks", `"subnets":"fd01::/31/64"`, "subnets: fd01::/31 has more than 2^32 node subnets of /64"},
		{"too many blocks by default", `"subnets":"fd00::/16"`, "subnets: fd00::/16 has more than 2^32 node subnets of /64"},

		{"gateway", v4 + `"gateway":"10.128.0.1"`, "gateway: leave it out, on a layer3 network it is the first address of each node subnet"},
		{"exclude elsewhere", v4 + `"excludeSubnets":"10.129.0.0/24"`, "excludeSubnets: 10.129.0.0/24 is in none of the subnets"},
		{"exclude all", v4 + `"excludeSubnets":"10.128.0.0/16"`, "excludeSubnets: nothing of 10.128.0.0/16 is left for pods"},
		{"a route by a gateway", v4 + `"routes":[{"dst":"192.0.2.0/24","gw":"10.128.0.1"}]`, "routes[0].gw: leave it out, on a layer3 network it is the gateway of each node subnet"},
		{"a route of another family", v4 + `"routes":[{"dst":"192.0.2.0/24"},{"dst":"fd02::/64"}]`, "routes[1].gw: the network has no subnet of the family of fd02::/64"},
		{"a route to the subnet", v4 + `"routes":[{"dst":"10.128.0.0/16"}]`, "routes[0].dst: 10.128.0.0/16 is the network's own subnet, pods reach it without a route"},
		{"a route to a block", v4 + `"routes":[{"dst":"10.128.5.0/24"}]`, "routes[0].dst: 10.128.5.0/24 is of the network's own subnet 10.128.0.0/16, pods reach it without a route"},
		{"a route twice", v4 + `"routes":[{"dst":"192.0.2.0/24"},{"dst":"192.0.2.0/24"}]`, "routes[1].dst: 192.0.2.0/24 is routed twice"},
		{"the default route", v4 + `"routes":[{"dst":"0.0.0.0/0"}]`, "routes[0].dst: 0.0.0.0/0 is the default route, which stays with the pod's first interface"},
		{"snat of its own router", v4 + `"snat":true`, `snat: it is the router's gateway that does it, and there is no "router"`},
		{"a provider's network", v4 + `"physicalNetworkName":"phys"`, `physicalNetworkName: it is for topology "localnet"`},
		{"a VLAN", v4 + `"vlanID":7`, `vlanID: it is for topology "localnet"`},
		{"mtu too small for IPv6", `"subnets":"fd01::/48","mtu":1279`, "mtu: 1279 is not between 1280 and 65535"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { refused(t, config(`"topology":"layer3",`+tt.keys), tt.want) })
	}
}

// Blocks follow each other in the order of their addresses and fill the subnet.
func TestNodeSubnet(t *testing.T) {
	tests := []struct {
		name    string
		subnets string
		subnet  int
		blocks  uint64
		k       uint64
		want    string
	}{
		{"first", "10.128.0.0/16/24", 0, 256, 0, "10.128.0.0/24"},
		{"second", "10.128.0.0/16/24", 0, 256, 1, "10.128.1.0/24"},
		{"middle", "10.128.0.0/16/24", 0, 256, 128, "10.128.128.0/24"},
		{"one of many bits", "10.128.0.0/16/24", 0, 256, 0xa5, "10.128.165.0/24"},
		{"last", "10.128.0.0/16/24", 0, 256, 255, "10.128.255.0/24"},
		{"the whole", "10.128.0.0/24/24", 0, 1, 0, "10.128.0.0/24"},
		{"bits within a byte, first", "10.128.0.0/11/21", 0, 1024, 0, "10.128.0.0/21"},
		{"bits within a byte", "10.128.0.0/11/21", 0, 1024, 33, "10.129.8.0/21"},
		{"bits within a byte, last", "10.128.0.0/11/21", 0, 1024, 1023, "10.159.248.0/21"},
		{"smallest, last", "10.128.0.0/29/30", 0, 2, 1, "10.128.0.4/30"},
		{"IPv6, first", "fd01::/48", 0, 65536, 0, "fd01::/64"},
		{"IPv6, middle", "fd01::/48", 0, 65536, 0x8001, "fd01:0:0:8001::/64"},
		{"IPv6, last", "fd01::/48", 0, 65536, 65535, "fd01:0:0:ffff::/64"},
		{"IPv6 over many bytes, last", "fd01::/32/64", 0, 1 << 32, 1<<32 - 1, "fd01:0:ffff:ffff::/64"},
		{"IPv6 over many bytes", "fd01::/32/64", 0, 1 << 32, 0x12345678, "fd01:0:1234:5678::/64"},
		{"IPv6 within bytes", "fd01::/61/67", 0, 64, 0b101011, "fd01:0:0:5:6000::/67"},
		{"IPv6 within bytes, last", "fd01::/61/67", 0, 64, 63, "fd01:0:0:7:e000::/67"},
		{"IPv6 at the end", "fd01::/125/126", 0, 2, 1, "fd01::4/126"},
		{"IPv4 beside IPv6", "fd01::/48,10.128.0.0/16/25", 0, 512, 511, "10.128.255.128/25"},
		{"IPv6 beside IPv4", "10.128.0.0/16/25,fd01::/48/56", 1, 256, 255, "fd01:0:0:ff00::/56"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := layer3(t, `"subnets":"`+tt.subnets+`"`)
			if got := n.NodeSubnetCount(tt.subnet); got != tt.blocks {
				t.Errorf("%d blocks, want %d", got, tt.blocks)
			}
			if got := n.NodeSubnet(tt.subnet, tt.k).String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if again := layer3(t, `"subnets":"`+tt.subnets+`"`); !reflect.DeepEqual(n, again) {
				t.Errorf("asking has changed the network to %s", show(n))
			}
		})
	}
}

func TestForNode(t *testing.T) {
	tests := []struct {
		name   string
		keys   string
		blocks []netip.Prefix
		want   string
		pools  []string
	}{
		{"IPv4", `"subnets":"10.128.0.0/16/24"`, prefixes("10.128.5.0/24"),
			"layer3, 10.128.5.0/24 gw 10.128.5.1, to 10.128.0.0/16 via 10.128.5.1", []string{"10.128.5.2..10.128.5.254"}},
		{"the first block", `"subnets":"10.128.0.0/16/24"`, prefixes("10.128.0.0/24"),
			"layer3, 10.128.0.0/24 gw 10.128.0.1, to 10.128.0.0/16 via 10.128.0.1", []string{"10.128.0.2..10.128.0.254"}},
		{"the smallest block", `"subnets":"10.128.0.0/16/30"`, prefixes("10.128.0.4/30"),
			"layer3, 10.128.0.4/30 gw 10.128.0.5, to 10.128.0.0/16 via 10.128.0.5", []string{"10.128.0.6..10.128.0.6"}},
		{"IPv6", `"subnets":"fd01::/48"`, prefixes("fd01:0:0:5::/64"),
			"layer3, fd01:0:0:5::/64 gw fd01:0:0:5::1, to fd01::/48 via fd01:0:0:5::1", []string{"fd01:0:0:5::2..fd01::5:0:0:ffff:ffff"}},
		{"both", `"subnets":"10.128.0.0/16/24,fd01::/48"`, prefixes("10.128.5.0/24", "fd01:0:0:7::/64"),
			"layer3, 10.128.5.0/24 gw 10.128.5.1, fd01:0:0:7::/64 gw fd01:0:0:7::1, to 10.128.0.0/16 via 10.128.5.1, to fd01::/48 via fd01:0:0:7::1",
			[]string{"10.128.5.2..10.128.5.254", "fd01:0:0:7::2..fd01::7:0:0:ffff:ffff"}},
		{"a block that is the subnet", `"subnets":"10.128.0.0/24"`, prefixes("10.128.0.0/24"),
			"layer3, 10.128.0.0/24 gw 10.128.0.1", []string{"10.128.0.2..10.128.0.254"}},
		{"of both, one that is the subnet", `"subnets":"10.128.0.0/24,fd01::/48"`, prefixes("10.128.0.0/24", "fd01:0:0:7::/64"),
			"layer3, 10.128.0.0/24 gw 10.128.0.1, fd01:0:0:7::/64 gw fd01:0:0:7::1, to fd01::/48 via fd01:0:0:7::1",
			[]string{"10.128.0.2..10.128.0.254", "fd01:0:0:7::2..fd01::7:0:0:ffff:ffff"}},
		{"the network's routes come after", `"subnets":"10.128.0.0/16/24,fd01::/64","routes":[{"dst":"fd02::/64"},{"dst":"192.0.2.0/24"},{"dst":"10.0.0.0/8"}]`,
			prefixes("10.128.5.0/24", "fd01::/64"),
			"layer3, 10.128.5.0/24 gw 10.128.5.1, fd01::/64 gw fd01::1, to 10.128.0.0/16 via 10.128.5.1, to fd02::/64 via fd01::1, to 192.0.2.0/24 via 10.128.5.1, to 10.0.0.0/8 via 10.128.5.1",
			[]string{"10.128.5.2..10.128.5.254", "fd01::2..fd01::ffff:ffff"}},
		{"a route on the link", `"subnets":"10.128.0.0/24","routes":[{"dst":"224.0.0.0/4","scope":253}]`, prefixes("10.128.0.0/24"),
			"layer3, 10.128.0.0/24 gw 10.128.0.1, to 224.0.0.0/4 on the link", []string{"10.128.0.2..10.128.0.254"}},
		{"excluded within and without", `"subnets":"10.128.0.0/16/24","excludeSubnets":"10.128.5.128/25,10.128.6.0/24,10.128.5.8/32"`, prefixes("10.128.5.0/24"),
			"layer3, 10.128.5.0/24 gw 10.128.5.1, without 10.128.5.128/25, without 10.128.6.0/24, without 10.128.5.8/32, to 10.128.0.0/16 via 10.128.5.1",
			[]string{"10.128.5.2..10.128.5.7 10.128.5.9..10.128.5.127"}},
		{"an excluded block", `"subnets":"10.128.0.0/16/24","excludeSubnets":"10.128.4.0/22"`, prefixes("10.128.5.0/24"),
			"layer3, 10.128.5.0/24 gw 10.128.5.1, without 10.128.4.0/22, to 10.128.0.0/16 via 10.128.5.1", []string{""}},
		{"the rest is as it was", `"subnets":"10.128.0.0/24/24","router":"r1","snat":false,"mtu":1300,"portSecurity":false`, prefixes("10.128.0.0/24"),
			"layer3, 10.128.0.0/24 gw 10.128.0.1, at shop/r1, snat false, mtu 1300, open", []string{"10.128.0.2..10.128.0.254"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			whole := layer3(t, tt.keys)
			view := whole.ForNode("node-a", tt.blocks)
			if show(view) != tt.want || view.Node != "node-a" {
				t.Errorf("got  %s on %q\nwant %s", show(view), view.Node, tt.want)
			}
			for i, want := range tt.pools {
				if got := spans(view.Pool(i)); got != want {
					t.Errorf("pool of %s: got %s, want %s", view.Subnets[i], got, want)
				}
			}
			checkView(t, whole, view)
			if again := layer3(t, tt.keys); !reflect.DeepEqual(whole, again) {
				t.Errorf("the view has changed the whole to %s", show(whole))
			}
		})
	}
}

// checkView is what a view has in common with the whole, of which it is for everyone else.
func checkView(t *testing.T, whole, view *Network) {
	t.Helper()
	if view.ID() != whole.ID() || view.NAD() != whole.NAD() || view.Canonical() != whole.Canonical() || view.Revision() != whole.Revision() {
		t.Errorf("view %s of %s, %s %s\nwhole %s of %s, %s %s", view.ID(), view.NAD(), view.Canonical(), view.Revision(),
			whole.ID(), whole.NAD(), whole.Canonical(), whole.Revision())
	}
	if err := view.CheckEqual(whole); err != nil {
		t.Errorf("the view differs: %v", err)
	}
	if view.RouterName() != whole.RouterName() || view.SwitchName() != whole.SwitchName()+"@"+view.Node || whole.SwitchName() != whole.ID() {
		t.Errorf("router %s and %s, switch %s and %s", view.RouterName(), whole.RouterName(), view.SwitchName(), whole.SwitchName())
	}
}

// What stands in the database may be of another configuration, or of someone's hand.
func TestParseNodeSubnets(t *testing.T) {
	const v4, both = `"subnets":"10.128.0.0/16/24"`, `"subnets":"10.128.0.0/16/24,fd01::/48"`
	tests := []struct {
		name string
		keys string
		text string
		want []netip.Prefix
	}{
		{"IPv4", v4, "10.128.5.0/24", prefixes("10.128.5.0/24")},
		{"both", both, "10.128.5.0/24,fd01:0:0:7::/64", prefixes("10.128.5.0/24", "fd01:0:0:7::/64")},
		{"the last of both", both, "10.128.255.0/24,fd01:0:0:ffff::/64", prefixes("10.128.255.0/24", "fd01:0:0:ffff::/64")},
		{"the subnet is one", `"subnets":"10.128.0.0/24"`, "10.128.0.0/24", prefixes("10.128.0.0/24")},
		{"nothing", v4, "", nil},
		{"words", v4, "x", nil},
		{"an address", v4, "10.128.5.0", nil},
		{"another length", v4, "10.128.5.0/25", nil},
		{"host bits", v4, "10.128.5.1/24", nil},
		{"of another subnet", v4, "10.1.5.0/24", nil},
		{"one too many", v4, "10.128.5.0/24,10.128.6.0/24", nil},
		{"one too few", both, "10.128.5.0/24", nil},
		{"in another order", both, "fd01:0:0:7::/64,10.128.5.0/24", nil},
		{"the second of another subnet", both, "10.128.5.0/24,fd02:0:0:7::/64", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := layer3(t, tt.keys)
			got := n.ParseNodeSubnets(tt.text)
			if !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			if got != nil && n.ForNode("node-a", got).NodeSubnetsText() != tt.text {
				t.Errorf("%s is written as %s", tt.text, n.ForNode("node-a", got).NodeSubnetsText())
			}
		})
	}
	if got := parse(t, `"subnets":"10.128.0.0/16"`).ParseNodeSubnets("10.128.0.0/16"); got != nil {
		t.Errorf("a layer2 network has blocks %v", got)
	}
}

// A pod may ask for what its node has, and is told what that is.
func TestCheckFixedOfANodeView(t *testing.T) {
	n := layer3(t, `"subnets":"10.128.0.0/16/24,fd01::/48","excludeSubnets":"10.128.5.64/26"`).
		ForNode("node-a", prefixes("10.128.5.0/24", "fd01:0:0:7::/64"))
	tests := []struct{ address, want string }{
		{"10.128.5.2", ""},
		{"10.128.5.254", ""},
		{"fd01:0:0:7::2", ""},
		{"fd01:0:0:7:ffff:ffff:ffff:ffff", ""},
		{"10.128.6.2", "address 10.128.6.2 is outside node node-a's subnets 10.128.5.0/24,fd01:0:0:7::/64 of network shop/blue"},
		{"fd01::2", "address fd01::2 is outside node node-a's subnets 10.128.5.0/24,fd01:0:0:7::/64 of network shop/blue"},
		{"10.1.0.2", "address 10.1.0.2 is outside node node-a's subnets 10.128.5.0/24,fd01:0:0:7::/64 of network shop/blue"},
		{"10.128.5.0", "address 10.128.5.0 is the network address of 10.128.5.0/24"},
		{"fd01:0:0:7::", "address fd01:0:0:7:: is the network address of fd01:0:0:7::/64"},
		{"10.128.5.255", "address 10.128.5.255 is the broadcast address of 10.128.5.0/24"},
		{"10.128.5.1", "address 10.128.5.1 is the gateway of network shop/blue"},
		{"fd01:0:0:7::1", "address fd01:0:0:7::1 is the gateway of network shop/blue"},
		{"10.128.5.100", "address 10.128.5.100 is excluded by excludeSubnets 10.128.5.64/26 of network shop/blue"},
	}
	for _, tt := range tests {
		t.Run(tt.address, func(t *testing.T) { wantText(t, n.CheckFixed(netip.MustParseAddr(tt.address)), tt.want) })
	}
}

// Nobody can write these names into a NAD or a "router".
func TestOwnRouter(t *testing.T) {
	tests := []struct {
		name   string
		config string
		router string
		sw     string
	}{
		{"layer2 alone", config(`"subnets":"10.1.0.0/16"`), "", "shop/blue"},
		{"layer2", config(`"subnets":"10.1.0.0/16","router":"r1"`), "shop/r1", "shop/blue"},
		{"localnet", config(`"topology":"localnet","physicalNetworkName":"phys","subnets":"10.1.0.0/16"`), "", "shop/blue"},
		{"layer3 alone", config(`"topology":"layer3","subnets":"10.1.0.0/16"`), "shop/blue:router", "shop/blue"},
		{"layer3", config(`"topology":"layer3","subnets":"10.1.0.0/16","router":"r1"`), "shop/r1", "shop/blue"},
		{"layer3 of ovn-kubernetes", overlay(`"topology":"layer3","subnets":"10.1.0.0/16"`), "l2-network:router", "l2-network"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := mustParse(t, tt.config)
			if n.RouterName() != tt.router || n.SwitchName() != tt.sw {
				t.Errorf("router %q on switch %q, want %q on %q", n.RouterName(), n.SwitchName(), tt.router, tt.sw)
			}
			if n.RouterName() == n.Router {
				return
			}
			for _, namespace := range []string{"shop", "web"} {
				if name, err := routerName(namespace, n.RouterName()); err == nil {
					t.Errorf("a network of namespace %s can name router %s: %s", namespace, n.RouterName(), name)
				}
			}
		})
	}
}

// checkBlocks is what the rest of the program relies on in a network of blocks.
func checkBlocks(t *testing.T, n *Network) {
	t.Helper()
	first, last := make([]netip.Prefix, len(n.Subnets)), make([]netip.Prefix, len(n.Subnets))
	for i, subnet := range n.Subnets {
		blocks := n.NodeSubnetCount(i)
		if blocks < 1 || blocks > 1<<32 {
			t.Fatalf("subnet %s has %d blocks", subnet, blocks)
		}
		first[i], last[i] = n.NodeSubnet(i, 0), n.NodeSubnet(i, blocks-1)
		if first[i].Addr() != subnet.Addr() || LastAddr(last[i]) != LastAddr(subnet) || last[i] != last[i].Masked() || first[i].Bits() != n.NodeSubnetBits[i] {
			t.Errorf("subnet %s has blocks from %s to %s", subnet, first[i], last[i])
		}
	}
	for _, r := range n.Routes {
		if r.GW.IsValid() {
			t.Errorf("route %v of the whole", r)
		}
	}
	for _, blocks := range [][]netip.Prefix{first, last} {
		view := n.ForNode("node-a", blocks)
		checkView(t, n, view)
		checkSubnets(t, view)
		checkRoutes(t, view)
	}
}
