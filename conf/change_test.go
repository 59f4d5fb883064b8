package conf

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
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
	slices.SortFunc(c.Routes, func(a, b Route) int { return a.Dst.Compare(b.Dst) })
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
	if err := again.Differs(n); err != nil {
		t.Errorf("%s differs from what it is of: %v", text, err)
	}
	if err := n.Keeps(again); err != nil {
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
				`"router":"r1","routes":[{"dst":"192.0.2.0/24","gw":"10.1.0.1"},{"dst":"fd02::/64","gw":"fd01::9"}],"mtu":1400,"portSecurity":false}`},
		{"lists without an order", config(`"subnets":"10.1.0.0/16","excludeSubnets":"10.1.128.0/17,10.1.0.0/28,10.1.0.0/29",` +
			`"routes":[{"dst":"198.51.100.0/24"},{"dst":"192.0.2.0/25"},{"dst":"192.0.2.0/24"}]`),
			`{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/16","excludeSubnets":"10.1.0.0/28,10.1.0.0/29,10.1.128.0/17","gateway":"10.1.0.1",` +
				`"routes":[{"dst":"192.0.2.0/24","gw":"10.1.0.1"},{"dst":"192.0.2.0/25","gw":"10.1.0.1"},{"dst":"198.51.100.0/24","gw":"10.1.0.1"}],"portSecurity":true}`},
		{"ovn-kubernetes'", overlay(`"topology":"layer2","subnets":"10.1.0.0/16","excludeSubnets":"10.1.0.0/28","mtu":1400,"netAttachDefName":"shop/blue","role":"secondary","logLevel":"5"`),
			`{"type":"ovn-k8s-cni-overlay","name":"l2-network","topology":"layer2","subnets":"10.1.0.0/16","excludeSubnets":"10.1.0.0/28","mtu":1400}`},
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
func TestDiffers(t *testing.T) {
	const base = `"subnets":"10.1.0.0/16,fd01::/64","mtu":1400`
	shared := overlay(`"subnets":"10.1.0.0/16"`)
	tests := []struct {
		name string
		a, b string
		want string // after a.Differs(b)
	}{
		{"alike", config(base), config(base), ""},
		{"defaults written out", config(base), config(base + `,"gateway":"fd01::1,10.1.0.1","topology":"layer2","portSecurity":true,"routes":[]`), ""},
		{"subnets in another order", config(base), config(`"subnets":"fd01::/64, 10.1.0.0/16","mtu":1400`), ""},
		{"the name of CNI", config(base), strings.Replace(config(base), `"any"`, `"other"`, 1), ""},
		{"cniVersion and log of ovn-kubernetes'", shared, overlay(`"subnets":"10.1.0.0/16","logLevel":"5","netAttachDefName":"shop/blue"`), ""},

		{"type", config(base), shared, `type: ovn-k8s-cni-overlay is not ovn-multinet`},
		{"name", shared, strings.Replace(shared, "l2-network", "other", 1), "name: other is not l2-network"},
		{"subnets", config(base), config(`"subnets":"10.1.0.0/16","mtu":1400`), "subnets: 10.1.0.0/16 is not 10.1.0.0/16,fd01::/64"},
		{"no subnets", config(`"subnets":"10.1.0.0/16"`), config(""), "subnets: (none) is not 10.1.0.0/16"},
		{"excludeSubnets", config(base), config(base + `,"excludeSubnets":"10.1.0.0/24"`), "excludeSubnets: 10.1.0.0/24 is not (none)"},
		{"gateway", config(base), config(base + `,"gateway":"10.1.0.9"`), "gateway: 10.1.0.9,fd01::1 is not 10.1.0.1,fd01::1"},
		{"router", config(base + `,"router":"r1"`), config(base + `,"router":"r2"`), "router: r2 is not r1"},
		{"routes", config(base), config(base + `,"routes":[{"dst":"192.0.2.0/24"}]`), `routes: [{"dst":"192.0.2.0/24","gw":"10.1.0.1"}] is not (none)`},
		{"mtu", config(base), config(`"subnets":"10.1.0.0/16,fd01::/64"`), "mtu: 0 is not 1400"},
		{"portSecurity", config(base), config(base + `,"portSecurity":false`), "portSecurity: false is not true"},
		{"several: the first", config(base), config(`"subnets":"10.1.0.0/16,fd01::/64","mtu":1300,"portSecurity":false,"router":"r1"`), "router: r1 is not (none)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := mustParse(t, tt.a), mustParse(t, tt.b)
			wantText(t, a.Differs(b), tt.want)
			// What differs has another revision, and only that.
			if same := a.Revision() == b.Revision(); same != (tt.want == "") {
				t.Errorf("revisions %s and %s", a.Revision(), b.Revision())
			}
		})
	}
	other := mustParse(t, config(base))
	other.Topology = "layer3"
	wantText(t, mustParse(t, config(base)).Differs(other), "topology: layer3 is not layer2")
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
func TestKeeps(t *testing.T) {
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

		{"IPv6 comes", v4, both, ""},
		{"IPv4 comes", v6, both, "subnets: 10.1.0.0/24 cannot be added, only an IPv6 subnet beside an IPv4 one can"},
		{"IPv6 goes", both, v4, "subnets: fd01::/64 cannot be taken away"},
		{"IPv4 goes", both, v6, "subnets: 10.1.0.0/24 cannot be taken away"},
		{"all go", v4, "", "subnets: 10.1.0.0/24 cannot be taken away"},
		{"MAC only gets subnets", "", v4, "subnets: 10.1.0.0/24 cannot be given to a network that has none"},
		{"MAC only gets both", "", both, "subnets: 10.1.0.0/24 cannot be given to a network that has none"},

		{"another gateway", v4, v4 + `,"gateway":"10.1.0.254"`, `gateway: 10.1.0.1 cannot become 10.1.0.254; write "gateway": "10.1.0.1" to keep it`},
		{"another gateway of IPv6", both, both + `,"gateway":"fd01::ff"`, `gateway: fd01::1 cannot become fd01::ff; write "gateway": "fd01::1" to keep it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantText(t, parse(t, tt.from).Keeps(parse(t, tt.to)), tt.want)
		})
	}
	other := parse(t, v4)
	other.Topology = "layer3"
	wantText(t, parse(t, v4).Keeps(other), "topology: layer2 cannot become layer3")
}
