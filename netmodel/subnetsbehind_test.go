package netmodel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestSubnetsBehindRefused: subnets that cannot be behind pods are refused in words.
func TestSubnetsBehindRefused(t *testing.T) {
	const nets = `"subnets":"10.1.0.0/24,fd01::/64","excludeSubnets":"10.1.0.64/28",` +
		`"virtualAddresses":[{"address":"10.1.0.100","namespace":"web","selector":{"app":"a"}}],"subnetsBehind":`
	one := func(keys string) string { return nets + `[{` + keys + `}]` }
	var many, vias []string
	for i := range MaxSubnetsBehind + 1 {
		many = append(many, fmt.Sprintf(`{"subnet":"10.%d.0.0/16","via":"10.1.0.5"}`, 60+i))
	}
	for i := range MaxVia + 1 {
		vias = append(vias, fmt.Sprintf("10.1.0.%d", 5+i))
	}
	for _, tt := range []struct{ keys, says string }{
		{one(`"subnets":"10.60.0.0/16"`), `subnetsBehind[0]: unknown key "subnets", did you mean "subnet"?`},
		{one(`"via":"10.1.0.5"`), `subnetsBehind[0].subnet: "" is not a network like 10.1.0.0/16`},
		{one(`"subnet":"10.60.0.1/16","via":"10.1.0.5"`), "subnetsBehind[0].subnet: 10.60.0.1/16 has host bits set"},
		{one(`"subnet":"0.0.0.0/0","via":"10.1.0.5"`), "subnetsBehind[0].subnet: 0.0.0.0/0 is no unicast network"},
		{one(`"subnet":"224.0.0.0/8","via":"10.1.0.5"`), "subnetsBehind[0].subnet: 224.0.0.0/8 is no unicast network"},
		{one(`"subnet":"10.1.0.128/25","via":"10.1.0.5"`), "subnetsBehind[0].subnet: 10.1.0.128/25 overlaps 10.1.0.0/24 of this network"},
		{one(`"subnet":"10.60.0.0/16"`), `subnetsBehind[0].via: 0 addresses, write 1 to 8 addresses of pods, like "10.1.0.5"`},
		{one(`"subnet":"10.60.0.0/16","via":"` + strings.Join(vias, ",") + `"`), "subnetsBehind[0].via: 9 addresses"},
		{one(`"subnet":"10.60.0.0/16","via":"upf"`), `subnetsBehind[0].via: "upf" is not an IP address`},
		{one(`"subnet":"10.60.0.0/16","via":"10.2.0.5"`), "subnetsBehind[0].via: address 10.2.0.5 is outside the subnets"},
		{one(`"subnet":"10.60.0.0/16","via":"10.1.0.1"`), "subnetsBehind[0].via: address 10.1.0.1 is the gateway"},
		{one(`"subnet":"10.60.0.0/16","via":"10.1.0.70"`), "subnetsBehind[0].via: address 10.1.0.70 is excluded"},
		{one(`"subnet":"10.60.0.0/16","via":"fd01::5"`), "subnetsBehind[0].via: fd01::5 is not of the family of 10.60.0.0/16"},
		{one(`"subnet":"10.60.0.0/16","via":"10.1.0.5,10.1.0.5"`), "subnetsBehind[0].via: 10.1.0.5 is there twice"},
		{one(`"subnet":"10.60.0.0/16","via":"10.1.0.100"`), "subnetsBehind[0].via: 10.1.0.100 is a virtual address of pods of namespace web"},
		{one(`"subnet":"10.60.0.0/16","via":"10.1.0.5","standby":true`), "subnetsBehind[0].standby: leave it out, or write a second address"},
		{one(`"subnet":"10.60.0.0/16","via":"10.1.0.5","namespace":"A"`), `subnetsBehind[0].namespace: "A" is no namespace`},
		{nets + `[{"subnet":"10.60.0.0/16","via":"10.1.0.5"},{"subnet":"10.60.4.0/24","via":"10.1.0.6"}]`, "subnetsBehind: 10.60.0.0/16 and 10.60.4.0/24 overlap"},
		{nets + `[{"subnet":"10.60.0.0/16","via":"10.1.0.5"},{"subnet":"10.61.0.0/16","via":"10.1.0.5","namespace":"web"}]`,
			"subnetsBehind: via 10.1.0.5 is for pods of namespace shop and of namespace web"},
		{nets + "[" + strings.Join(many, ",") + "]", "subnetsBehind: 17 are more than 16"},
		{`"subnets":"10.1.0.0/30","subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.2"}]`, "nothing of 10.1.0.0/30 is left for pods"},
		{`"topology":"layer3","subnets":"10.1.0.0/16","subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.9"}]`, "subnetsBehind: leave it out"},
		{`"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.9"}]`, "subnetsBehind[0].via: address 10.1.0.9 is outside the subnets (none)"},
	} {
		_, err := ParseNetwork("shop", "blue", []byte(config(tt.keys)))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s", tt.keys, err, tt.says)
		}
	}
}

const behindKeys = `"subnets":"10.1.0.0/24,fd01::/64","routes":[{"dst":"10.60.0.0/16"},{"dst":"10.60.7.0/24","gw":"10.1.0.9"},` +
	`{"dst":"10.0.0.0/8"},{"dst":"192.0.2.0/24","gw":"10.1.0.5"}],"router":"r1",` +
	`"virtualAddresses":[{"address":"10.1.0.100","selector":{"app":"a"}}],"subnetsBehind":[` +
	`{"subnet":"10.60.0.0/16","via":"10.1.0.5,10.1.0.6"},{"subnet":"10.61.0.0/16","via":"10.1.0.6,10.1.0.5","standby":true},` +
	`{"subnet":"10.62.0.0/16","via":"10.1.0.100"},{"subnet":"10.63.0.0/16","via":"10.1.0.7","namespace":"web"},` +
	`{"subnet":"fd60::/64","via":"fd01::5"}]`

// TestSubnetsBehind: a pod may use the subnets behind its own addresses if it is in their namespace. It gets no route that
// leads to itself. Nobody gets an address of a next hop without a request, no Service gets one, and no pod of another
// namespace.
func TestSubnetsBehind(t *testing.T) {
	n := mustParse(t, config(behindKeys))
	for _, tt := range []struct{ namespace, value, want string }{
		{"shop", "0a:58:0a:01:00:05 10.1.0.5 fd01::5 fe80::5", "0a:58:0a:01:00:05 10.1.0.5 fd01::5 fe80::5 10.60.0.0/16 10.61.0.0/16 fd60::/64"},
		{"shop", "0a:58:0a:01:00:05 10.1.0.5 10.9.0.0/16 fe80::/64", "0a:58:0a:01:00:05 10.1.0.5 fe80::/64 10.60.0.0/16 10.61.0.0/16"},
		{"shop", "00:00:5e:00:01:07 10.1.0.50 10.1.0.100", "00:00:5e:00:01:07 10.1.0.50 10.1.0.100 10.62.0.0/16"},
		{"web", "0a:58:0a:01:00:05 10.1.0.5", "0a:58:0a:01:00:05 10.1.0.5"},
		{"web", "0a:58:0a:01:00:07 10.1.0.7", "0a:58:0a:01:00:07 10.1.0.7 10.63.0.0/16"},
		{"shop", "0a:58:0a:01:00:07 10.1.0.7", "0a:58:0a:01:00:07 10.1.0.7"},
		{"shop", "0a:58:0a:01:00:08 10.1.0.8 10.60.0.0/16", "0a:58:0a:01:00:08 10.1.0.8"},
		{"shop", "0a:58:0a:01:00:08", "0a:58:0a:01:00:08"},
	} {
		if got := n.Secured(tt.namespace, tt.value); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.namespace, tt.value, got, tt.want)
		}
		if again := n.Secured(tt.namespace, tt.want); again != tt.want {
			t.Errorf("%s %s becomes %s", tt.namespace, tt.want, again)
		}
	}
	for _, tt := range []struct{ address, own string }{
		{"10.1.0.5", "10.60.0.0/16 10.60.7.0/24 192.0.2.0/24"},
		{"10.1.0.6", "10.60.0.0/16 10.60.7.0/24"},
		{"10.1.0.9", "10.60.7.0/24"},
		{"10.1.0.100", ""},
	} {
		var own []string
		for _, r := range n.ForOthers([]netip.Addr{netip.MustParseAddr(tt.address)}) {
			own = append(own, r.Dst.String())
		}
		if got := strings.Join(own, " "); got != tt.own {
			t.Errorf("%s leaves out %q, want %q", tt.address, got, tt.own)
		}
	}
	for address, says := range map[string]string{"10.1.0.7": "address 10.1.0.7 is for pods of namespace web: subnetsBehind of network " +
		"shop/blue leads 10.63.0.0/16 there", "10.1.0.8": "", "10.1.0.5": ""} {
		err := n.CheckNamespace(netip.MustParseAddr(address), "shop")
		if got := fmt.Sprint(err); got != says && (err != nil || says != "") {
			t.Errorf("%s: %v, want %s", address, err, says)
		}
	}
	five := netip.MustParseAddr("10.1.0.5")
	if err := n.CheckVirtual(five); err == nil {
		t.Error("a Service gets the address of a next hop")
	}
	if err := n.CheckFixed(five); err != nil {
		t.Error(err)
	}
	if size := n.Pool(0).Size(); size != 254-5 {
		t.Errorf("%d addresses are given without a request, want 249", size)
	}
	const words = "10.60.0.0/16 via 10.1.0.5 and 10.1.0.6 (pods of shop), 10.61.0.0/16 via 10.1.0.6, else 10.1.0.5 (pods of shop), " +
		"10.62.0.0/16 via 10.1.0.100 (pods of shop), 10.63.0.0/16 via 10.1.0.7 (pods of web), fd60::/64 via fd01::5 (pods of shop)"
	if got := n.subnetBehindWords(); got != words {
		t.Errorf("in words: %s", got)
	}
}

// TestConsentToSubnetsBehind: the owner of a router consents to the subnets behind the pods of a guest, too.
func TestConsentToSubnetsBehind(t *testing.T) {
	guest := mustParse(t, config(strings.Replace(behindKeys, `"router":"r1"`, `"router":"infra/r1"`, 1)))
	for _, tt := range []struct{ list, says string }{
		{"10.0.0.0/8,fd00::/8", ""},
		{"10.1.0.0/24,fd00::/8", "namespace shop may bring 10.1.0.0/24,fd00::/8 to router infra/r1, not 10.60.0.0/16"},
		{"", `"subnets": "10.1.0.0/24,fd01::/64,10.60.0.0/16,10.61.0.0/16,10.62.0.0/16,10.63.0.0/16,fd60::/64"`},
	} {
		var guests []Guest
		grants := map[string]Grant{}
		if tt.list != "" {
			var list []netip.Prefix
			for _, text := range strings.Split(tt.list, ",") {
				p, err := conf.ParsePrefix("subnets", text)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, p)
			}
			guests, grants = []Guest{{Namespace: "shop", Subnets: list}}, map[string]Grant{"shop": {Subnets: list}}
		}
		for what, err := range map[string]error{
			"a guest": guest.CheckGuest(guests), "the operator's router": (&Router{Name: "infra/r1", Namespaces: grants}).CheckJoin(guest),
		} {
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "{subnets:", `"subnets":`), tt.says)) {
				t.Errorf("%s, with %s: %v, want %s", what, tt.list, err, tt.says)
			}
		}
	}
}
