package netmodel

import (
	"fmt"
	"strings"
	"testing"
)

// TestDHCPKey: the two forms of the key, and what DHCP offers: a default route only if a router has the gateway, and with
// other routes in the option that has all of them.
func TestDHCPKey(t *testing.T) {
	const dual, on = `"subnets":"10.1.0.0/24,fd01::/64"`, `,"dhcp":true`
	for _, tt := range []struct{ keys, want string }{
		{dual, "none"},
		{dual + `,"dhcp":false`, "none"},
		{dual + `,"dhcp":null`, "none"},
		{dual + on, `{"leaseTime":"1h0m0s"} [] false`},
		{dual + `,"dhcp":{}`, `{"leaseTime":"1h0m0s"} [] false`},
		{dual + `,"router":"core"` + on, `{"leaseTime":"1h0m0s"} [] true`},
		{`"subnets":"10.1.0.0/24","topology":"localnet","physicalNetworkName":"a"` + on, `{"leaseTime":"1h0m0s"} [] true`},
		{dual + `,"router":"core","routes":[{"dst":"fd09::/64"},{"dst":"10.9.0.0/16"},{"dst":"10.8.0.0/24","scope":253}]` + on,
			`{"leaseTime":"1h0m0s"} [10.8.0.0/24 via 0.0.0.0 10.9.0.0/16 via 10.1.0.1 0.0.0.0/0 via 10.1.0.1] true`},
		{dual + `,"router":"core","routes":[{"dst":"10.9.0.0/16"}],"dhcp":{"defaultRoute":false}`,
			`{"leaseTime":"1h0m0s","defaultRoute":false} [10.9.0.0/16 via 10.1.0.1] false`},
		{dual + `,"routes":[{"dst":"10.9.0.0/16","gw":"10.1.0.9"}]` + on, `{"leaseTime":"1h0m0s"} [10.9.0.0/16 via 10.1.0.9] false`},
		{dual + `,"dhcp":{"dns":["10.1.0.53","fd00::53"],"domain":"example.org","leaseTime":"60s","defaultRoute":true}`,
			`{"dns":["10.1.0.53","fd00::53"],"domain":"example.org","leaseTime":"1m0s"} [] false`},
	} {
		n, got := parse(t, tt.keys), "none"
		if n.DHCP != nil {
			got = fmt.Sprintf("%s %v %v", mustMarshal(n.dhcpText()), n.StaticRoutes(), n.OffersRouter())
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.keys, got, tt.want)
		}
	}
	var routes []string
	for i := range 32 {
		routes = append(routes, fmt.Sprintf(`{"dst":"10.%d.0.0/24"}`, 100+i))
	}
	for _, tt := range []struct{ keys, says string }{
		{on[1:], `dhcp: the network has no subnets, so there is no address to answer with: add "subnets"`},
		{`"subnets":"10.1.0.0/31"` + on, "dhcp: 10.1.0.0/31 has no address left for the server: use a larger subnet"},
		{`"topology":"layer3","subnets":"10.1.0.0/16"` + on, `dhcp: it is for topology "layer2" and "localnet"`},
		{dual + `,"dhcp":"yes"`, `dhcp: it is true, or an object like {"dns": ["10.1.0.53"]}`},
		{dual + `,"dhcp":{"mtu":1400}`, `dhcp: unknown key "mtu"`},
		{dual + `,"dhcp":{"dns":"10.1.0.53"}`, "dhcp: "},
		{dual + `,"dhcp":{"dns":["resolver"]}`, `dhcp.dns: "resolver" is not an IP address`},
		{dual + `,"dhcp":{"dns":["10.1.0.53","10.1.0.53"]}`, "dhcp.dns: 10.1.0.53 is there twice"},
		{dual + `,"dhcp":{"dns":["10.1.0.1","10.1.0.2","10.1.0.3","10.1.0.4","10.1.0.5"]}`, "dhcp.dns: 5 are more than 4"},
		{dual + `,"dhcp":{"domain":"example\".org"}`, `dhcp.domain: "example\".org" is no domain name`},
		{dual + `,"dhcp":{"leaseTime":"1s"}`, `dhcp.leaseTime: "1s" is no duration of whole seconds between 1m0s and 8760h0m0s, like "12h"`},
		{dual + `,"dhcp":{"leaseTime":"61500ms"}`, `dhcp.leaseTime: "61500ms" is no duration`},
		{dual + `,"routes":[` + strings.Join(routes, ",") + `]` + on,
			"dhcp: the IPv4 routes of the network need 256 bytes in an answer, which has room for 255: write fewer routes"},
	} {
		_, err := ParseNetwork("shop", "blue", []byte(config(tt.keys)))
		if err == nil || !strings.Contains(err.Error(), "network shop/blue: "+tt.says) {
			t.Errorf("%s: %v, want %s", tt.keys, err, tt.says)
		}
	}
}
