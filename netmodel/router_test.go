package netmodel

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// Keys that every router has to have.
const leastRouter = `"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.5","physicalNetworkName":"phys","gatewayNodes":"gateway="`

// router writes the controller's configuration with one router, of that name.
func router(name, keys string) string { return `{"routers":{"` + name + `":{` + keys + `}}}` }

// without takes a key and its value out of leastRouter.
func without(key string) string {
	var left []string
	for _, pair := range strings.Split(leastRouter, ",") {
		if !strings.HasPrefix(pair, `"`+key+`"`) {
			left = append(left, pair)
		}
	}
	return strings.Join(left, ",")
}

func TestParseRouters(t *testing.T) {
	const both = `"physicalNetworkName":"phys","gatewayNodes":"gateway=",`
	tests := []struct {
		name string
		keys string
		want Router
	}{
		{"defaults", leastRouter, Router{
			Join: prefixes("100.64.0.0/24"), External: prefixes("192.0.2.5/24"), NextHops: make([]netip.Addr, 1), Physical: "phys", Nodes: "gateway=", SNAT: true,
		}},
		{"null and blanks are as good as left out", leastRouter + `,"joinSubnet":"","nextHop":" ","vlanID":null,"snat":null`, Router{
			Join: prefixes("100.64.0.0/24"), External: prefixes("192.0.2.5/24"), NextHops: make([]netip.Addr, 1), Physical: "phys", Nodes: "gateway=", SNAT: true,
		}},
		{"everything", leastRouter + `,"joinSubnet":"10.255.0.0/29","nextHop":"192.0.2.1","vlanID":4094,"snat":false`, Router{
			Join: prefixes("10.255.0.0/29"), External: prefixes("192.0.2.5/24"), NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			Physical: "phys", VLAN: 4094, Nodes: "gateway=",
		}},
		{"IPv6", both + `"externalSubnet":"2001:db8::/64","externalAddress":"2001:db8::5","nextHop":"2001:db8::1","snat":true`, Router{
			Join: prefixes("fd98::/64"), External: prefixes("2001:db8::5/64"), NextHops: []netip.Addr{netip.MustParseAddr("2001:db8::1")},
			Physical: "phys", Nodes: "gateway=", SNAT: true,
		}},
		{"both families, in any order", both + `"externalSubnet":" 2001:db8::/64 , 192.0.2.0/24","externalAddress":"192.0.2.5, 2001:db8::5","nextHop":"2001:db8::1,192.0.2.1","joinSubnet":"fd99::/64,10.255.0.0/30"`, Router{
			Join: prefixes("10.255.0.0/30", "fd99::/64"), External: prefixes("192.0.2.5/24", "2001:db8::5/64"),
			NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, Physical: "phys", Nodes: "gateway=", SNAT: true,
		}},
		{"both families, one next hop", both + `"externalSubnet":"192.0.2.0/24,2001:db8::/64","externalAddress":"2001:db8::5,192.0.2.5","nextHop":"2001:db8::1"`, Router{
			Join: prefixes("100.64.0.0/24", "fd98::/64"), External: prefixes("192.0.2.5/24", "2001:db8::5/64"),
			NextHops: []netip.Addr{{}, netip.MustParseAddr("2001:db8::1")}, Physical: "phys", Nodes: "gateway=", SNAT: true,
		}},
		{"smallest subnets", both + `"externalSubnet":"192.0.2.4/30,2001:db8::4/126","externalAddress":"192.0.2.6,2001:db8::7","joinSubnet":"10.255.0.4/30,fd99::4/126"`, Router{
			Join: prefixes("10.255.0.4/30", "fd99::4/126"), External: prefixes("192.0.2.6/30", "2001:db8::7/126"),
			NextHops: make([]netip.Addr, 2), Physical: "phys", Nodes: "gateway=", SNAT: true,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRouters([]byte(router("/core", tt.keys)))
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Name, tt.want.Namespaces = "/core", map[string]Grant{}
			if want := map[string]*Router{"/core": &tt.want}; !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got["/core"], want["/core"])
			}
		})
	}
}

func TestParseRoutersByName(t *testing.T) {
	longest := strings.Repeat("r", 63)
	tests := []struct {
		name   string
		config string
		want   string
	}{
		{"none", `{}`, "[]"},
		{"no routers", `{"routers":{}}`, "[]"},
		{"null routers", `{"routers":null}`, "[]"},
		{"two, and each its own", `{"routers":{"/edge":{` + leastRouter + `,"vlanID":7},"shop/1":{` + leastRouter + `}}}`, "[shop/1 VLAN 0 /edge VLAN 7]"},
		{"the longest name", router(longest+"/"+longest, leastRouter), "[" + longest + "/" + longest + " VLAN 0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			routers, err := ParseRouters([]byte(tt.config))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range []string{"shop/1", "/edge", longest + "/" + longest} {
				if r := routers[name]; r != nil {
					got = append(got, fmt.Sprintf("%s VLAN %d", r.Name, r.VLAN))
				}
			}
			if fmt.Sprint(got) != tt.want || len(got) != len(routers) {
				t.Errorf("got %v of %d, want %s", got, len(routers), tt.want)
			}
		})
	}
}

func TestParseRoutersRefuses(t *testing.T) {
	const badName = ` is no name: "/core" or "<namespace>/core", with lower-case letters, digits and '-', at most 63`
	const both = `"physicalNetworkName":"phys","gatewayNodes":"gateway=","externalSubnet":"192.0.2.0/24,2001:db8::/64",`
	of := func(key, value string) string { return router("/core", without(key)+`,"`+key+`":`+value) }
	tests := []struct {
		name   string
		config string
		want   string
	}{
		{"nothing", "", "not valid JSON: EOF"},
		{"null", "null", "null where an object is wanted"},
		{"a list", "[]", "a JSON array where another kind of value is wanted"},
		{"no JSON", "routers: {}", "not valid JSON: invalid character 'r' looking for beginning of value"},
		{"another key", `{"router":{}}`, `unknown key "router", did you mean "routers"?`},
		{"a key twice", `{"routers":{},"routers":{}}`, `key "routers" is given twice`},
		{"routers is a list", `{"routers":[]}`, `"routers" does not take a JSON array`},
		{"a router is null", `{"routers":{"/core":null}}`, "router /core: null where an object is wanted"},
		{"a router is a string", `{"routers":{"/core":"x"}}`, "router /core: a JSON string where another kind of value is wanted"},
		{"the second router", `{"routers":{"shop/edge":{},"/core":{` + leastRouter + `}}}`, "router shop/edge: gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway="},
		{"the first of two by name", `{"routers":{"/edge":{},"/core":null}}`, "router /core: null where an object is wanted"},
		{"a key nearly right", router("/core", leastRouter+`,"vlanId":7`), `router /core: unknown key "vlanId", did you mean "vlanID"?`},
		{"a key of another's", router("/core", leastRouter+`,"nexthop":"192.0.2.1"`), `router /core: unknown key "nexthop", did you mean "nextHop"?`},
		{"a key like none", router("/core", leastRouter+`,"colour":"blue"`), `router /core: unknown key "colour"`},
		{"a router's key twice", router("/core", leastRouter+`,"snat":true,"snat":false`), `router /core: key "snat" is given twice`},

		{"a name in capitals", router("Core", leastRouter), `routers: "Core"` + badName},
		{"no name", router("", leastRouter), `routers: ""` + badName},
		{"a name with a dash behind", router("core-", leastRouter), `routers: "core-"` + badName},
		{"a name of 64", router(strings.Repeat("r", 64), leastRouter), `routers: "` + strings.Repeat("r", 64) + `"` + badName},

		{"a name of two lines", router(`a\nb`, leastRouter), `routers: "a\nb"` + badName},
		{"two gateways of one address", `{"routers":{"/edge":{` + leastRouter + `},"/core":{` + leastRouter + `}}}`, "router /edge: externalAddress: 192.0.2.5 is that of router /core"},
		{"blank gatewayNodes", of("gatewayNodes", `" "`), "router /core: gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway="},
		{"no gatewayNodes", router("/core", without("gatewayNodes")), "router /core: gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway="},
		{"gatewayNodes is a list", of("gatewayNodes", `["node-a"]`), `router /core: "gatewayNodes" does not take a JSON array`},
		{"no provider's network", router("/core", without("physicalNetworkName")), "router /core: physicalNetworkName is missing: the name that the nodes' ovn-bridge-mappings give the physical network"},
		{"a mapping", of("physicalNetworkName", `"phys:br-ex"`), `router /core: physicalNetworkName: "phys:br-ex" is no name for ovn-bridge-mappings: no blanks, commas, colons or quotes, at most 64`},
		{"VLAN 0", of("vlanID", "0"), "router /core: vlanID: 0 is not between 1 and 4094; leave it out for an untagged network"},
		{"VLAN 4095", of("vlanID", "4095"), "router /core: vlanID: 4095 is not between 1 and 4094; leave it out for an untagged network"},
		{"VLAN -1", of("vlanID", "-1"), "router /core: vlanID: -1 is not between 1 and 4094; leave it out for an untagged network"},
		{"a VLAN in a string", of("vlanID", `"7"`), `router /core: "vlanID" does not take a JSON string`},
		{"snat is a string", of("snat", `"no"`), `router /core: "snat" does not take a JSON string`},

		{"no externalSubnet", router("/core", without("externalSubnet")), "router /core: externalSubnet is missing: the subnet of the physical network, like 192.0.2.0/24"},
		{"externalSubnet of words", of("externalSubnet", `"x"`), `router /core: externalSubnet: "x" is not a network like 10.1.0.0/16`},
		{"externalSubnet with host bits", of("externalSubnet", `"192.0.2.5/24"`), "router /core: externalSubnet: 192.0.2.5/24 has host bits set, did you mean 192.0.2.0/24?"},
		{"externalSubnet of two addresses", of("externalSubnet", `"192.0.2.4/31"`), "router /core: externalSubnet: 192.0.2.4/31 leaves no room for two addresses"},
		{"externalSubnet of IPv6 of two addresses", of("externalSubnet", `"2001:db8::/127"`), "router /core: externalSubnet: 2001:db8::/127 leaves no room for two addresses"},
		{"externalSubnet that nobody shares", of("externalSubnet", `"169.254.0.0/16"`), "router /core: externalSubnet: 169.254.0.0/16 is no unicast network that can be shared"},
		{"two externalSubnets of IPv4", of("externalSubnet", `"192.0.2.0/24,198.51.100.0/24"`), "router /core: externalSubnet: 192.0.2.0/24 and 198.51.100.0/24 are of one family, only one of each is served"},
		{"two externalSubnets of IPv6", of("externalSubnet", `"2001:db8::/64,192.0.2.0/24,2001:db8:1::/64"`), "router /core: externalSubnet: 2001:db8::/64 and 2001:db8:1::/64 are of one family, only one of each is served"},

		{"no externalAddress", router("/core", without("externalAddress")), "router /core: externalAddress: none is in 192.0.2.0/24; give the gateway an address that nobody else has"},
		{"externalAddress of one family", router("/core", both+`"externalAddress":"192.0.2.5"`), "router /core: externalAddress: none is in 2001:db8::/64; give the gateway an address that nobody else has"},
		{"externalAddress of words", of("externalAddress", `"x"`), `router /core: externalAddress: "x" is not an IP address`},
		{"externalAddress with a length", of("externalAddress", `"192.0.2.5/24"`), `router /core: externalAddress: "192.0.2.5/24" is not an IP address`},
		{"externalAddress elsewhere", of("externalAddress", `"198.51.100.5"`), "router /core: externalAddress: 198.51.100.5 is not in externalSubnet 192.0.2.0/24"},
		{"externalAddress outside both", router("/core", both+`"externalAddress":"192.0.2.5,2001:db8:1::5"`), "router /core: externalAddress: 2001:db8:1::5 is not in externalSubnet 192.0.2.0/24,2001:db8::/64"},
		{"externalAddress as IPv4 in IPv6", of("externalAddress", `"::ffff:192.0.2.5"`), "router /core: externalAddress: ::ffff:192.0.2.5 is not in externalSubnet 192.0.2.0/24"},
		{"externalAddress with a zone", of("externalAddress", `"fd01::1%a\nb"`), `router /core: externalAddress: "fd01::1%a\nb" is not an IP address`},
		{"two externalAddresses", of("externalAddress", `"192.0.2.5,192.0.2.6"`), "router /core: externalAddress: 192.0.2.5 and 192.0.2.6 are in one subnet"},
		{"externalAddress is the network", of("externalAddress", `"192.0.2.0"`), "router /core: externalAddress: address 192.0.2.0 is the network address of 192.0.2.0/24"},
		{"externalAddress is the broadcast", of("externalAddress", `"192.0.2.255"`), "router /core: externalAddress: address 192.0.2.255 is the broadcast address of 192.0.2.0/24"},
		{"externalAddress is the anycast", router("/core", both+`"externalAddress":"2001:db8::"`), "router /core: externalAddress: address 2001:db8:: is the network address of 2001:db8::/64"},

		{"nextHop of words", of("nextHop", `"x"`), `router /core: nextHop: "x" is not an IP address`},
		{"nextHop elsewhere", of("nextHop", `"198.51.100.1"`), "router /core: nextHop: 198.51.100.1 is not in externalSubnet 192.0.2.0/24"},
		{"nextHop of another family", of("nextHop", `"2001:db8::1"`), "router /core: nextHop: 2001:db8::1 is not in externalSubnet 192.0.2.0/24"},
		{"two nextHops", of("nextHop", `"192.0.2.1,192.0.2.2"`), "router /core: nextHop: 192.0.2.1 and 192.0.2.2 are in one subnet"},
		{"nextHop is the broadcast", of("nextHop", `"192.0.2.255"`), "router /core: nextHop: address 192.0.2.255 is the broadcast address of 192.0.2.0/24"},
		{"nextHop is the gateway", of("nextHop", `"192.0.2.5"`), "router /core: nextHop: 192.0.2.5 is the gateway's own address"},
		{"nextHop is the gateway in IPv6", router("/core", both+`"externalAddress":"192.0.2.5,2001:db8::5","nextHop":"192.0.2.1,2001:db8::5"`), "router /core: nextHop: 2001:db8::5 is the gateway's own address"},

		{"joinSubnet of words", of("joinSubnet", `"x"`), `router /core: joinSubnet: "x" is not a network like 10.1.0.0/16`},
		{"joinSubnet of two addresses", of("joinSubnet", `"10.255.0.0/31"`), "router /core: joinSubnet: 10.255.0.0/31 leaves no room for two addresses"},
		{"joinSubnet that nobody shares", of("joinSubnet", `"fe80::/64"`), "router /core: joinSubnet: fe80::/64 is no unicast network that can be shared"},
		{"two joinSubnets", of("joinSubnet", `"10.255.0.0/24,10.254.0.0/24"`), "router /core: joinSubnet: 10.255.0.0/24 and 10.254.0.0/24 are of one family, only one of each is served"},
		{"joinSubnet of another family", of("joinSubnet", `"fd99::/64"`), "router /core: joinSubnet: there is no externalSubnet of the family of fd99::/64"},
		{"joinSubnet of another family too", of("joinSubnet", `"10.255.0.0/24,fd99::/64"`), "router /core: joinSubnet: there is no externalSubnet of the family of fd99::/64"},
		{"joinSubnet of one family of two", router("/core", both+`"externalAddress":"192.0.2.5,2001:db8::5","joinSubnet":"10.255.0.0/24"`), "router /core: joinSubnet: there is none of the family of 2001:db8::/64"},
		{"joinSubnet within the external one", of("joinSubnet", `"192.0.2.128/25"`), "router /core: joinSubnet: 192.0.2.128/25 overlaps externalSubnet 192.0.2.0/24"},
		{"joinSubnet around the external one", of("joinSubnet", `"192.0.0.0/16"`), "router /core: joinSubnet: 192.0.0.0/16 overlaps externalSubnet 192.0.2.0/24"},
		{"the default joinSubnet within the external one", router("/core", `"physicalNetworkName":"phys","gatewayNodes":"gateway=","externalSubnet":"100.64.0.0/10","externalAddress":"100.64.1.1"`),
			"router /core: joinSubnet: 100.64.0.0/24 overlaps externalSubnet 100.64.0.0/10"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			routers, err := ParseRouters([]byte(tt.config))
			wantText(t, err, tt.want)
			if routers != nil {
				t.Errorf("taken as %+v", routers)
			}
		})
	}
}

func TestRouterJoin(t *testing.T) {
	routers, err := ParseRouters([]byte(router("/core", `"physicalNetworkName":"phys","gatewayNodes":"gateway=","externalSubnet":"192.0.2.0/24,2001:db8::/64",`+
		`"externalAddress":"192.0.2.5,2001:db8::5","joinSubnet":"10.255.0.252/30,fd99::fffc/126"`)))
	if err != nil {
		t.Fatal(err)
	}
	r := routers["/core"]
	want := "10.255.0.253/30 10.255.0.254/30 fd99::fffd/126 fd99::fffe/126"
	if got := fmt.Sprint(r.RouterJoin(0), " ", r.GatewayJoin(0), " ", r.RouterJoin(1), " ", r.GatewayJoin(1)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheckSubnet(t *testing.T) {
	routers, err := ParseRouters([]byte(router("/core", `"physicalNetworkName":"phys","gatewayNodes":"gateway=","externalSubnet":"192.0.2.0/24,2001:db8::/64",`+
		`"externalAddress":"192.0.2.5,2001:db8::5"`)))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ subnet, want string }{
		{"10.1.0.0/16", ""},
		{"fd01::/64", ""},
		{"100.64.1.0/24", ""},
		{"192.0.3.0/24", ""},
		{"fd98:0:0:1::/64", ""},
		{"2001:db8:0:1::/64", ""},
		{"100.64.0.0/24", "router: subnet 100.64.0.0/24 overlaps joinSubnet 100.64.0.0/24 of router /core"},
		{"100.64.0.128/25", "router: subnet 100.64.0.128/25 overlaps joinSubnet 100.64.0.0/24 of router /core"},
		{"100.64.0.0/10", "router: subnet 100.64.0.0/10 overlaps joinSubnet 100.64.0.0/24 of router /core"},
		{"fd98::/32", "router: subnet fd98::/32 overlaps joinSubnet fd98::/64 of router /core"},
		{"192.0.2.0/24", "router: subnet 192.0.2.0/24 overlaps externalSubnet 192.0.2.0/24 of router /core"},
		{"192.0.2.128/25", "router: subnet 192.0.2.128/25 overlaps externalSubnet 192.0.2.0/24 of router /core"},
		{"192.0.0.0/16", "router: subnet 192.0.0.0/16 overlaps externalSubnet 192.0.2.0/24 of router /core"},
		{"2001:db8::8000:0/97", "router: subnet 2001:db8::8000:0/97 overlaps externalSubnet 2001:db8::/64 of router /core"},
		{"2001:db8::/32", "router: subnet 2001:db8::/32 overlaps externalSubnet 2001:db8::/64 of router /core"},
	}
	for _, tt := range tests {
		t.Run(tt.subnet, func(t *testing.T) {
			wantText(t, routers["/core"].CheckSubnet(netip.MustParsePrefix(tt.subnet)), tt.want)
		})
	}
}

func FuzzRouters(f *testing.F) {
	for _, keys := range []string{
		"", leastRouter, without("gatewayNodes"), leastRouter + `,"joinSubnet":"10.255.0.0/29","nextHop":"192.0.2.1","vlanID":4094,"snat":false`,
		`"physicalNetworkName":"phys","gatewayNodes":"a","externalSubnet":"2001:db8::/64,192.0.2.0/24","externalAddress":"192.0.2.5,2001:db8::5","joinSubnet":"fd99::/64,10.255.0.0/30"`,
		without("externalSubnet") + `,"externalSubnet":"192.0.2.4/30"`, without("externalAddress") + `,"externalAddress":","`,
		leastRouter + `,"snat":true,"snat":false`, leastRouter + `,"nextHop":"192.0.2.5"`, leastRouter + `,"joinSubnet":"192.0.0.0/16"`,
	} {
		f.Add(router("/core", keys))
	}
	for _, text := range []string{"", "null", "[]", "{}", `{"routers":null}`, `{"routers":{"/core":null}}`, router("Core", "")} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		routers, err := ParseRouters([]byte(text))
		if err != nil {
			// The longest that is said: some words, and a few values that are cut where they are of any length.
			if len(err.Error()) > 1024 || strings.ContainsAny(err.Error(), "\r\n") || routers != nil {
				t.Errorf("%.2000q, with %v", err, routers)
			}
			return
		}
		for name, r := range routers {
			checkRouter(t, name, r)
		}
	})
}

// checkRouter is what the rest of the program relies on.
func checkRouter(t *testing.T, name string, r *Router) {
	t.Helper()
	n := len(r.External)
	if n == 0 && RouterNamespace(name) == "" {
		if want := (&Router{Name: name, Namespaces: r.Namespaces}); !reflect.DeepEqual(r, want) {
			t.Errorf("got %+v, want %+v", r, want)
		}
		return
	}
	if r.Name != name || checkRouterName(name) != nil || n < 1 || n > 2 || len(r.Join) != n || len(r.NextHops) != n || r.Nodes == "" ||
		!physicalName.MatchString(r.Physical) || r.VLAN < 0 || r.VLAN > 4094 {
		t.Fatalf("router %s: %+v", name, r)
	}
	for i, e := range r.External {
		hop, join := r.NextHops[i], r.Join[i]
		if e.Addr() == e.Masked().Addr() || e.Addr().Is4() != (i == 0 && e.Addr().BitLen() == 32) {
			t.Errorf("external %d is %s", i, e)
		}
		if hop.IsValid() && (hop == e.Addr() || !e.Contains(hop)) {
			t.Errorf("next hop %s of %s", hop, e)
		}
		own, gateway := r.RouterJoin(i), r.GatewayJoin(i)
		if join.Overlaps(e) || join.Addr().Is4() != e.Addr().Is4() || own.Masked() != join || gateway.Masked() != join || own.Addr().Next() != gateway.Addr() {
			t.Errorf("join %s has %s and %s, beside %s", join, own, gateway, e)
		}
		if r.CheckSubnet(join) == nil || r.CheckSubnet(e.Masked()) == nil {
			t.Errorf("a network may be %s or %s", join, e)
		}
	}
}

// wantText compares the text of an error, or of none, with what is wanted.
func wantText(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
