package netmodel

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

func mustParse(t testing.TB, text string) *Network {
	t.Helper()
	n, err := ParseNetwork("shop", "blue", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ordered returns the network with the lists whose order means nothing in one order.
func ordered(n *Network) *Network {
	c := *n
	c.Exclude, c.Routes = slices.Clone(n.Exclude), slices.Clone(n.Routes)
	slices.SortFunc(c.Exclude, netip.Prefix.Compare)
	slices.SortFunc(c.Routes, func(a, b conf.Route) int { return a.Dst.Compare(b.Dst) })
	c.Guests = slices.Clone(n.Guests)
	slices.SortFunc(c.Guests, func(a, b Guest) int { return strings.Compare(a.Namespace, b.Namespace) })
	for i := range c.Guests {
		c.Guests[i].Subnets = slices.SortedFunc(slices.Values(c.Guests[i].Subnets), netip.Prefix.Compare)
	}
	return &c
}

// checkCanonical reads what Canonical wrote: it must be the same network, and be written alike again.
func checkCanonical(t *testing.T, n *Network) {
	t.Helper()
	text := n.Canonical()
	again, err := ParseNetwork(n.Namespace, n.Name, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if !reflect.DeepEqual(ordered(again), ordered(n)) {
		t.Errorf("%s\nis read as %+v\nand is of  %+v", text, ordered(again), ordered(n))
	}
	if again.Canonical() != text {
		t.Errorf("got  %s\nwant %s", again.Canonical(), text)
	}
	if err := again.CheckEqual(n); err != nil {
		t.Errorf("%s differs from what it is of: %v", text, err)
	}
	if err := n.CheckChange(again); err != nil {
		t.Errorf("%s does not keep what it is of: %v", text, err)
	}
}

// In force is what stands in the database, in this form: agents of another release read it.
func TestCanonical(t *testing.T) {
	tests := []struct {
		name   string
		config string
		want   string
	}{
		{"defaults", config(""), `{"type":"ovn-multinet","topology":"layer2","portSecurity":true}`},
		{"everything", config(`"portSecurity":false,"mtu":1400,"routes":[{"dst":"192.0.2.0/24"},{"dst":"fd02::/64","gw":"fd01::9"}],"router":"r1",` +
			`"gateway":"fd01::ff","excludeSubnets":"10.1.0.0/28","subnets":"fd01::/64,10.1.0.0/16","topology":"layer2","netAttachDefName":"shop/blue"`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/16,fd01::/64","excludeSubnets":"10.1.0.0/28","gateway":"10.1.0.1,fd01::ff",` +
				`"router":"shop/r1","routes":[{"dst":"192.0.2.0/24","gw":"10.1.0.1"},{"dst":"fd02::/64","gw":"fd01::9"}],"mtu":1400,"portSecurity":false}`},
		{"guests and profiles", config(`"subnets":"10.1.0.0/24","router":"r1","securityProfiles":["web-only","db"],` +
			`"routerGuests":[{"namespace":"web","subnets":"fd02::/48,10.2.0.0/16"},{"namespace":"db","subnets":"10.3.0.0/16"}]`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/24","gateway":"10.1.0.1","router":"shop/r1",` +
				`"routerGuests":[{"namespace":"db","subnets":"10.3.0.0/16"},{"namespace":"web","subnets":"10.2.0.0/16,fd02::/48"}],` +
				`"portSecurity":true,"securityProfiles":["db","web-only"]}`},
		{"letters that JSON escapes", config(`"topology":"localnet","physicalNetworkName":"<&>"`),
			`{"type":"ovn-multinet","topology":"localnet","portSecurity":true,"physicalNetworkName":"\u003c\u0026\u003e"}`},
		{"two addresses", config(`"subnets":"fd01::/127,10.1.0.0/31","routes":[{"dst":"192.0.2.0/24","gw":"10.1.0.0"}]`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/31,fd01::/127","routes":[{"dst":"192.0.2.0/24","gw":"10.1.0.0"}],"portSecurity":true}`},
		{"a route on the link", config(`"subnets":"10.1.0.0/16","routes":[{"dst":"224.0.0.0/4","scope":253}]`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/16","gateway":"10.1.0.1","routes":[{"dst":"224.0.0.0/4","scope":253}],"portSecurity":true}`},
		{"lists without an order", config(`"subnets":"10.1.0.0/16","excludeSubnets":"10.1.128.0/17,10.1.0.0/28,10.1.0.0/29",` +
			`"routes":[{"dst":"198.51.100.0/24"},{"dst":"192.0.2.0/25"},{"dst":"192.0.2.0/24"}]`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/16","excludeSubnets":"10.1.0.0/28,10.1.0.0/29,10.1.128.0/17","gateway":"10.1.0.1",` +
				`"routes":[{"dst":"192.0.2.0/24","gw":"10.1.0.1"},{"dst":"192.0.2.0/25","gw":"10.1.0.1"},{"dst":"198.51.100.0/24","gw":"10.1.0.1"}],"portSecurity":true}`},
		{"ovn-kubernetes'", overlay(`"topology":"layer2","subnets":"10.1.0.0/16","excludeSubnets":"10.1.0.0/28","mtu":1400,"netAttachDefName":"shop/blue","role":"secondary","logLevel":"5"`),
			`{"type":"ovn-k8s-cni-overlay","name":"l2-network","topology":"layer2","subnets":"10.1.0.0/16","excludeSubnets":"10.1.0.0/28","mtu":1400}`},
		{"snat", config(`"subnets":"10.1.0.0/16","snat":true,"router":"r1"`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/16","gateway":"10.1.0.1","router":"shop/r1","snat":true,"portSecurity":true}`},
		{"no snat", config(`"subnets":"10.1.0.0/16","snat":false,"router":"r1"`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/16","gateway":"10.1.0.1","router":"shop/r1","snat":false,"portSecurity":true}`},
		{"localnet", config(`"vlanID":7,"physicalNetworkName":"phys","topology":"localnet"`),
			`{"type":"ovn-multinet","topology":"localnet","portSecurity":true,"physicalNetworkName":"phys","vlanID":7}`},
		{"localnet whose ADDs wait", config(`"physicalNetworkName":"phys","topology":"localnet","addressConflictWait":"1500ms"`),
			`{"type":"ovn-multinet","topology":"localnet","portSecurity":true,"physicalNetworkName":"phys","addressConflictWait":"1.5s"}`},
		{"localnet, untagged", config(`"physicalNetworkName":"phys","topology":"localnet","subnets":"10.1.0.0/16"`),
			`{"type":"ovn-multinet","topology":"localnet","subnets":"10.1.0.0/16","gateway":"10.1.0.1","portSecurity":true,"physicalNetworkName":"phys"}`},
		{"localnet of ovn-kubernetes'", overlay(`"topology":"localnet","vlanID":7`),
			`{"type":"ovn-k8s-cni-overlay","name":"l2-network","topology":"localnet","physicalNetworkName":"l2-network","vlanID":7}`},
		{"layer3", config(`"routes":[{"dst":"fd02::/64"},{"dst":"192.0.2.0/24"}],"excludeSubnets":"10.128.0.0/28","subnets":"fd01::/48,10.128.0.0/16","topology":"layer3"`),
			`{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/16/24,fd01::/48/64","excludeSubnets":"10.128.0.0/28",` +
				`"routes":[{"dst":"192.0.2.0/24"},{"dst":"fd02::/64"}],"portSecurity":true}`},
		{"layer3 at a router", config(`"router":"r1","snat":false,"subnets":"10.128.0.0/16/25","topology":"layer3","mtu":1300`),
			`{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/16/25","router":"shop/r1","snat":false,"mtu":1300,"portSecurity":true}`},
		{"layer3 of ovn-kubernetes'", overlay(`"topology":"layer3","subnets":"10.128.0.0/16"`),
			`{"type":"ovn-k8s-cni-overlay","name":"l2-network","topology":"layer3","subnets":"10.128.0.0/16/24"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := mustParse(t, tt.config)
			if got := n.Canonical(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkCanonical(t, n)
		})
	}
}

// Writing it out must not put the network's own lists into another order: routes are given to pods in the user's.
func TestCanonicalLeavesTheNetworkAlone(t *testing.T) {
	const keys = `"subnets":"10.1.0.0/16","excludeSubnets":"10.1.128.0/17,10.1.0.0/28","routes":[{"dst":"198.51.100.0/24"},{"dst":"192.0.2.0/24"}]`
	n := parse(t, keys)
	n.Canonical()
	if want := parse(t, keys); !reflect.DeepEqual(n, want) {
		t.Errorf("got  %s\nwant %s", show(n), show(want))
	}
}

func FuzzCanonical(f *testing.F) {
	for _, text := range []string{
		config(""), config(`"subnets":"10.1.0.0/16,fd01::/64","gateway":"10.1.0.9","excludeSubnets":"10.1.128.0/17,10.1.0.0/28","mtu":1400,"portSecurity":false,"router":"r1"`),
		config(`"subnets":"fd01::/126","routes":[{"dst":"fd03::/64"},{"dst":"fd02::/64","gw":"fd01::2"}]`),
		overlay(`"subnets":"10.1.0.0/16","mtu":1300,"netAttachDefName":"shop/blue"`), overlay(`"role":"secondary","logLevel":"5"`),
		config(`"subnets":"10.1.0.0/16","router":"r1","snat":false`), config(`"topology":"localnet","physicalNetworkName":"phys","vlanID":7,"addressConflictWait":"1750ms"`),
		config(`"topology":"layer3","subnets":"10.128.0.0/16,fd01::/48/56","routes":[{"dst":"fd02::/64"},{"dst":"192.0.2.0/24"}]`),
		overlay(`"topology":"layer3","subnets":"10.128.0.0/16/24"`), overlay(`"topology":"localnet","vlanID":7`),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseNetwork("shop", "blue", []byte(text)); err == nil {
			checkCanonical(t, n)
		}
	})
}

// Every key counts, spelling does not.
func TestCheckEqual(t *testing.T) {
	const base = `"subnets":"10.1.0.0/16,fd01::/64","mtu":1400`
	const blocks, localnet = `"topology":"layer3","subnets":"10.128.0.0/16/24"`, `"topology":"localnet","physicalNetworkName":"phys"`
	const routed = `"subnets":"10.1.0.0/16","router":"r1"`
	shared := overlay(`"subnets":"10.1.0.0/16"`)
	tests := []struct {
		name string
		a, b string
		want string // after a.CheckEqual(b)
	}{
		{"alike", config(base), config(base), ""},
		{"defaults written out", config(base), config(base + `,"gateway":"fd01::1,10.1.0.1","topology":"layer2","portSecurity":true,"routes":[]`), ""},
		{"subnets in another order", config(base), config(`"subnets":"fd01::/64, 10.1.0.0/16","mtu":1400`), ""},
		{"the name of CNI", config(base), strings.Replace(config(base), `"any"`, `"other"`, 1), ""},
		{"cniVersion and log of ovn-kubernetes'", shared, overlay(`"subnets":"10.1.0.0/16","logLevel":"5","netAttachDefName":"shop/blue"`), ""},
		{"blocks written out", config(blocks), config(`"topology":"layer3","subnets":"10.128.0.0/16"`), ""},
		{"the provider's network written out", overlay(`"topology":"localnet"`), overlay(`"topology":"localnet","physicalNetworkName":"l2-network"`), ""},

		{"type", config(base), shared, `type: ovn-k8s-cni-overlay is not ovn-multinet`},
		{"name", shared, strings.Replace(shared, "l2-network", "other", 1), "name: other is not l2-network"},
		{"subnets", config(base), config(`"subnets":"10.1.0.0/16","mtu":1400`), "subnets: 10.1.0.0/16 is not 10.1.0.0/16,fd01::/64"},
		{"no subnets", config(`"subnets":"10.1.0.0/16"`), config(""), "subnets: (none) is not 10.1.0.0/16"},
		{"excludeSubnets", config(base), config(base + `,"excludeSubnets":"10.1.0.0/24"`), "excludeSubnets: 10.1.0.0/24 is not (none)"},
		{"gateway", config(base), config(base + `,"gateway":"10.1.0.9"`), "gateway: 10.1.0.9,fd01::1 is not 10.1.0.1,fd01::1"},
		{"router", config(base + `,"router":"r1"`), config(base + `,"router":"r2"`), "router: shop/r2 is not shop/r1"},
		{"routes", config(base), config(base + `,"routes":[{"dst":"192.0.2.0/24"}]`), `routes: [{"dst":"192.0.2.0/24","gw":"10.1.0.1"}] is not (none)`},
		{"mtu", config(base), config(`"subnets":"10.1.0.0/16,fd01::/64"`), "mtu: (none) is not 1400"},
		{"portSecurity", config(base), config(base + `,"portSecurity":false`), "portSecurity: false is not true"},
		{"topology", config(base), config(`"topology":"layer3","subnets":"10.1.0.0/16,fd01::/64","mtu":1400`), "topology: layer3 is not layer2"},
		{"blocks", config(blocks), config(`"topology":"layer3","subnets":"10.128.0.0/16/25"`), "subnets: 10.128.0.0/16/25 is not 10.128.0.0/16/24"},
		{"routes without a gateway", config(blocks + `,"routes":[{"dst":"192.0.2.0/24"}]`), config(blocks), `routes: (none) is not [{"dst":"192.0.2.0/24"}]`},
		{"snat comes", config(routed), config(routed + `,"snat":true`), "snat: true is not (none)"},
		{"snat goes", config(routed + `,"snat":false`), config(routed), "snat: (none) is not false"},
		{"snat", config(routed + `,"snat":false`), config(routed + `,"snat":true`), "snat: true is not false"},
		{"physicalNetworkName", config(localnet), config(`"topology":"localnet","physicalNetworkName":"other"`), "physicalNetworkName: other is not phys"},
		{"vlanID", config(localnet + `,"vlanID":7`), config(localnet + `,"vlanID":8`), "vlanID: 8 is not 7"},
		{"vlanID comes", config(localnet), config(localnet + `,"vlanID":7`), "vlanID: 7 is not (untagged)"},
		{"addressConflictWait", config(localnet + `,"addressConflictWait":"2s"`), config(localnet), "addressConflictWait: (none) is not 2s"},
		{"addressConflictWait in another form", config(localnet + `,"addressConflictWait":"2s"`), config(localnet + `,"addressConflictWait":"2000ms"`), ""},
		{"several: the first", config(base), config(`"subnets":"10.1.0.0/16,fd01::/64","mtu":1300,"portSecurity":false,"router":"r1"`), "router: shop/r1 is not (none)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := mustParse(t, tt.a), mustParse(t, tt.b)
			wantText(t, a.CheckEqual(b), tt.want)
			// What differs has another revision, and only that.
			if same := a.Revision() == b.Revision(); same != (tt.want == "") {
				t.Errorf("revisions %s and %s", a.Revision(), b.Revision())
			}
		})
	}
}

// A revision names one configuration in every release that runs beside another.
func TestRevisionStaysAsItIs(t *testing.T) {
	n := parse(t, `"subnets":"10.1.0.0/16"`)
	if got, want := n.Revision(), "3ed3469ab709a7ad"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	other := *n
	other.Namespace, other.Name = "infra", "red"
	if other.Revision() != n.Revision() {
		t.Error("the NAD's name is in the revision")
	}
}

// What would cut a running pod off, or let a new one have its MAC, is refused; everything else passes.
func TestCheckChange(t *testing.T) {
	const phys, phys4 = `"topology":"localnet","physicalNetworkName":"phys"`, `"topology":"localnet","physicalNetworkName":"phys","subnets":"10.1.0.0/24"`
	const v4, v6, both = `"subnets":"10.1.0.0/24"`, `"subnets":"fd01::/64"`, `"subnets":"10.1.0.0/24,fd01::/64"`
	tests := []struct {
		name     string
		from, to string
		want     string
	}{
		{"nothing changes", both, both, ""},
		{"MAC only stays so", "", `"mtu":1400`, ""},
		{"excludeSubnets", v4, v4 + `,"excludeSubnets":"10.1.0.128/25"`, ""},
		{"routes", v4, v4 + `,"routes":[{"dst":"192.0.2.0/24"}]`, ""},
		{"mtu", v4 + `,"mtu":1400`, v4 + `,"mtu":1300`, ""},
		{"portSecurity", v4, v4 + `,"portSecurity":false`, ""},
		{"a router comes", v4, v4 + `,"router":"r1"`, ""},
		{"a router goes", v4 + `,"router":"r1"`, v4, ""},
		{"another router", v4 + `,"router":"r1"`, v4 + `,"router":"r2"`, ""},

		{"IPv4 grows", v4, `"subnets":"10.1.0.0/16"`, ""},
		{"IPv4 grows to the front, gateway kept", `"subnets":"10.1.1.0/24"`, `"subnets":"10.1.0.0/16","gateway":"10.1.1.1"`, ""},
		{"IPv4 grows to the front", `"subnets":"10.1.1.0/24"`, `"subnets":"10.1.0.0/16"`,
			`gateway: 10.1.1.1 cannot become 10.1.0.1; write "gateway": "10.1.1.1" to keep it`},
		{"IPv4 shrinks", v4, `"subnets":"10.1.0.0/25"`, "subnets: 10.1.0.0/24 cannot become 10.1.0.0/25, which does not hold all of it"},
		{"IPv4 moves", v4, `"subnets":"10.2.0.0/24"`, "subnets: 10.1.0.0/24 cannot become 10.2.0.0/24, which does not hold all of it"},
		{"IPv4 grows elsewhere", v4, `"subnets":"10.2.0.0/16"`, "subnets: 10.1.0.0/24 cannot become 10.2.0.0/16, which does not hold all of it"},
		{"IPv6 grows", v6, `"subnets":"fd01::/48"`, ""},
		{"IPv6 shrinks", v6, `"subnets":"fd01::/80"`, "subnets: fd01::/64 cannot become fd01::/80, which does not hold all of it"},
		{"IPv6 alone begins elsewhere", `"subnets":"fd01:0:0:1::/64"`, `"subnets":"fd01::/48","gateway":"fd01:0:0:1::1"`,
			"subnets: fd01:0:0:1::/64 cannot become fd01::/48, which begins elsewhere"},
		{"IPv6 beside IPv4 begins elsewhere", `"subnets":"10.1.0.0/24,fd01:0:0:1::/64"`, `"subnets":"10.1.0.0/24,fd01::/48","gateway":"fd01:0:0:1::1"`, ""},
		{"IPv6 beside IPv4 shrinks", both, `"subnets":"10.1.0.0/24,fd01::/80"`, "subnets: fd01::/64 cannot become fd01::/80, which does not hold all of it"},

		{"a subnet of two addresses grows", `"subnets":"10.1.0.0/31"`, v4, "subnets: 10.1.0.0/31 cannot become 10.1.0.0/24, a subnet of two addresses cannot grow"},
		{"IPv6 of two addresses grows", `"subnets":"fd01::/127"`, v6, "subnets: fd01::/127 cannot become fd01::/64, a subnet of two addresses cannot grow"},
		{"a subnet shrinks to two addresses", v4, `"subnets":"10.1.0.0/31"`, "subnets: 10.1.0.0/24 cannot become 10.1.0.0/31, which does not hold all of it"},
		{"IPv6 of two addresses comes beside a gateway", v4, `"subnets":"10.1.0.0/24,fd01::/127"`,
			"subnets: 10.1.0.0/24 cannot become 10.1.0.0/24,fd01::/127, with a subnet of two addresses a network has no gateway"},
		{"IPv6 comes beside two addresses", `"subnets":"10.1.0.0/31"`, `"subnets":"10.1.0.0/31,fd01::/64"`, ""},
		{"two addresses: IPv6 grows", `"subnets":"10.1.0.0/31,fd01::/64"`, `"subnets":"10.1.0.0/31,fd01::/48"`, ""},

		{"IPv6 comes", v4, both, ""},
		{"IPv4 comes", v6, both, "subnets: 10.1.0.0/24 cannot be added, only an IPv6 subnet beside an IPv4 one can"},
		{"IPv6 goes", both, v4, "subnets: fd01::/64 cannot be removed"},
		{"IPv4 goes", both, v6, "subnets: 10.1.0.0/24 cannot be removed"},
		{"all go", v4, "", "subnets: 10.1.0.0/24 cannot be removed"},
		{"MAC only gets subnets", "", v4, "subnets: 10.1.0.0/24 cannot be given to a network that has none"},
		{"MAC only gets both", "", both, "subnets: 10.1.0.0/24 cannot be given to a network that has none"},

		{"another gateway", v4, v4 + `,"gateway":"10.1.0.254"`, `gateway: 10.1.0.1 cannot become 10.1.0.254; write "gateway": "10.1.0.1" to keep it`},
		{"another gateway of IPv6", both, both + `,"gateway":"fd01::ff"`, `gateway: fd01::1 cannot become fd01::ff; write "gateway": "fd01::1" to keep it`},

		{"snat comes", v4 + `,"router":"r1"`, v4 + `,"router":"r1","snat":true`, ""},
		{"snat turns", v4 + `,"router":"r1","snat":true`, v4 + `,"router":"r1","snat":false`, ""},
		{"localnet's VLAN", phys4 + `,"vlanID":7`, phys4 + `,"vlanID":8`, "vlanID: 7 cannot become 8"},
		{"localnet's VLAN goes", phys + `,"vlanID":7`, phys, "vlanID: 7 cannot become (untagged)"},
		{"localnet's VLAN comes", phys, phys + `,"vlanID":7`, "vlanID: (untagged) cannot become 7"},
		{"localnet's addressConflictWait", phys4, phys4 + `,"addressConflictWait":"2s"`, ""},
		{"localnet's portSecurity", phys4 + `,"vlanID":7`, phys4 + `,"vlanID":7,"portSecurity":false`, ""},
		{"another provider's network", phys4, `"topology":"localnet","physicalNetworkName":"other","subnets":"10.1.0.0/24"`, "physicalNetworkName: phys cannot become other"},
		{"localnet's gateway", phys4, phys4 + `,"gateway":"10.1.0.9"`, `gateway: 10.1.0.1 cannot become 10.1.0.9; write "gateway": "10.1.0.1" to keep it`},
		{"localnet gets subnets", phys, phys4, "subnets: 10.1.0.0/24 cannot be given to a network that has none"},
		{"localnet to layer2", phys4, v4, "topology: localnet cannot become layer2"},
		{"layer2 to layer3", v4, `"topology":"layer3",` + v4, "topology: layer2 cannot become layer3"},
		{"layer3 to layer2", `"topology":"layer3",` + v4, v4, "topology: layer3 cannot become layer2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantText(t, parse(t, tt.from).CheckChange(parse(t, tt.to)), tt.want)
		})
	}
}

// A node's block is where its pods are: the subnets may grow around it.
func TestCheckChangeOfNodeSubnets(t *testing.T) {
	const v4, v6, both = `"subnets":"10.128.0.0/16/24"`, `"subnets":"fd01::/48"`, `"subnets":"10.128.0.0/16/24,fd01::/48/64"`
	tests := []struct {
		name     string
		from, to string
		want     string
	}{
		{"nothing changes", both, both, ""},
		{"IPv4 grows", v4, `"subnets":"10.128.0.0/12/24"`, ""},
		{"IPv4 grows to the front", `"subnets":"10.129.0.0/16/24"`, `"subnets":"10.128.0.0/12/24"`, ""},
		{"IPv6 grows to the front", `"subnets":"fd01:0:1::/48"`, `"subnets":"fd01::/32/64"`, ""},
		{"both grow", both, `"subnets":"10.0.0.0/8/24,fd01::/40/64"`, ""},
		{"excludeSubnets, routes, mtu, portSecurity", v4, v4 + `,"excludeSubnets":"10.128.0.0/24","routes":[{"dst":"192.0.2.0/24"}],"mtu":1300,"portSecurity":false`, ""},
		{"a router instead of its own", v4, v4 + `,"router":"r1","snat":true`, ""},
		{"its own router again", v4 + `,"router":"r1"`, v4, ""},

		{"IPv4 shrinks", v4, `"subnets":"10.128.0.0/17/24"`, "subnets: 10.128.0.0/16 cannot become 10.128.0.0/17, which does not hold all of it"},
		{"IPv4 moves", v4, `"subnets":"10.1.0.0/16/24"`, "subnets: 10.128.0.0/16 cannot become 10.1.0.0/16, which does not hold all of it"},
		{"smaller blocks", v4, `"subnets":"10.128.0.0/16/25"`, "subnets: the node subnets of 10.128.0.0/16 cannot become /25, they are /24"},
		{"larger blocks", v4, `"subnets":"10.128.0.0/16/23"`, "subnets: the node subnets of 10.128.0.0/16 cannot become /23, they are /24"},
		{"grown, with other blocks", v4, `"subnets":"10.128.0.0/12/23"`, "subnets: the node subnets of 10.128.0.0/16 cannot become /23, they are /24"},
		{"other blocks of IPv6", both, `"subnets":"10.128.0.0/16/24,fd01::/48/60"`, "subnets: the node subnets of fd01::/48 cannot become /60, they are /64"},
		{"IPv6 comes", v4, both, "subnets: 10.128.0.0/16/24 cannot become 10.128.0.0/16/24,fd01::/48/64, nodes have their subnets"},
		{"IPv4 comes", v6, both, "subnets: fd01::/48/64 cannot become 10.128.0.0/16/24,fd01::/48/64, nodes have their subnets"},
		{"IPv6 goes", both, v4, "subnets: fd01::/48 cannot be removed"},
		{"IPv4 goes", both, v6, "subnets: 10.128.0.0/16 cannot be removed"},
		{"the family turns", v4, v6, "subnets: 10.128.0.0/16 cannot be removed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantText(t, layer3(t, tt.from).CheckChange(layer3(t, tt.to)), tt.want)
		})
	}
}
