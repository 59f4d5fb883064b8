package nad

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// routed is Route of a pod in the namespace shop.
func routed(t testing.TB, text string, routes *string) ([]Attachment, *Routing, error) {
	t.Helper()
	attachments, _, err := resolve(t, text)
	if err != nil {
		t.Fatal(err)
	}
	annotations := networks(text)
	if routes != nil {
		annotations[conf.RoutesAnnotation] = *routes
	}
	r, err := ParseRouting(annotations, attachments, "eth0")
	return attachments, r, err
}

// showRouting writes "default net1 via a,b; 10.9.0.0/16 via c on net1".
func showRouting(r *Routing) string {
	var words []string
	if r.Default != nil {
		gateways := make([]string, len(r.Gateways))
		for i, g := range r.Gateways {
			gateways[i] = g.String()
		}
		words = append(words, "default "+r.Default.Interface+" via "+strings.Join(gateways, ","))
	}
	for _, p := range r.Routes {
		if p.Scope == conf.ScopeLink {
			words = append(words, fmt.Sprintf("%s of %s", p.Route, p.Interface))
			continue
		}
		words = append(words, fmt.Sprintf("%s via %s on %s", p.Dst, p.GW, p.Interface))
	}
	return strings.Join(words, "; ")
}

// Conformance: N-78
func TestDefaultRoute(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"not asked for", "blue,dual", ""},
		{"given", `[{"name":"dual"},{"name":"blue","default-route":["10.1.0.9"]}]`, "default net2 via 10.1.0.9"},
		{"the network's", `[{"name":"blue","default-route":[],"interface":"x"}]`, "default x via 10.1.0.1"},
		{"the network's of both families", `[{"name":"dual","default-route":[]}]`, "default net1 via 10.2.0.1,fd01::1"},
		{"one family of two", `[{"name":"dual","default-route":["10.2.0.9"]}]`, "default net1 via 10.2.0.9"},
		{"both families, in the user's order", `[{"name":"dual","default-route":["10.2.0.9","fd01::9"]}]`, "default net1 via 10.2.0.9,fd01::9"},
		{"an excluded address", `[{"name":"blue","default-route":["10.1.0.200"]}]`, "default net1 via 10.1.0.200"},
		{"no subnets, on the link of a fixed address", `[{"name":"mac","ips":["10.9.0.7/29"],"default-route":["10.9.0.1"]}]`, "default net1 via 10.9.0.1"},
		{"a delegate", `[{"name":"bridge","default-route":["192.0.2.1","fd09::1"]}]`, "default net1 via 192.0.2.1,fd09::1"},
		{"as a delegate's plugins make it", `[{"name":"blue"},{"name":"bridge","default-route":[]}]`, "default net2 via "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			attachments, r, err := routed(t, tt.text, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := showRouting(r); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if r.Default != nil && !slices.ContainsFunc(attachments, func(a Attachment) bool { return a.Interface == r.Default.Interface && a.DefaultRoute != nil }) {
				t.Errorf("%s did not ask for it", r.Default.Interface)
			}
		})
	}
}

// Conformance: N-74 N-76
func TestDefaultRouteRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"twice", `[{"name":"blue","default-route":[]},{"name":"mac"},{"name":"dual","default-route":["10.2.0.1"]}]`,
			"interfaces net1 and net3 both ask for the default-route, one may"},
		{"twice on one network", `[{"name":"blue","default-route":[]},{"name":"blue","default-route":[]}]`, "interfaces net1 and net2 both ask for the default-route, one may"},
		{"twice, delegates", `[{"name":"bridge","default-route":[]},{"name":"bridge","default-route":["10.1.0.1"],"interface":"x"}]`,
			"interfaces net1 and x both ask for the default-route, one may"},
		{"unreachable", `[{"name":"blue","default-route":["10.2.0.1"]}]`,
			"interface net1: default-route: 10.2.0.1 is in none of the subnets of network shop/blue, the pod could not reach it"},
		{"the second is unreachable", `[{"name":"dual","default-route":["10.2.0.1","fd02::1"]}]`,
			"interface net1: default-route: fd02::1 is in none of the subnets of network shop/dual, the pod could not reach it"},
		{"its own address", `[{"name":"blue","ips":["10.1.0.7"],"default-route":["10.1.0.7"]}]`, "interface net1: default-route: 10.1.0.7 is the interface's own address"},
		{"no subnets, not given", `[{"name":"mac","default-route":[]}]`, "interface net1: default-route: network shop/mac has no gateway, name one"},
		{"no subnets, given, no address", `[{"name":"mac","default-route":["10.9.0.1"]}]`,
			"interface net1: default-route: 10.9.0.1 is in none of the subnets of network shop/mac, the pod could not reach it"},
		{"no subnets, not on the address's link", `[{"name":"mac","ips":["10.9.0.7/29"],"default-route":["10.9.0.8"]}]`,
			"interface net1: default-route: 10.9.0.8 is in none of the subnets of network shop/mac, the pod could not reach it"},
		{"no subnets, its own address", `[{"name":"mac","ips":["10.9.0.7/29"],"default-route":["10.9.0.7"]}]`, "interface net1: default-route: 10.9.0.7 is the interface's own address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, r, err := routed(t, tt.text, nil)
			if err == nil {
				t.Fatalf("taken as %s", showRouting(r))
			}
			wantRefusal(t, err, tt.want)
		})
	}
}

func TestRoutesOfAPod(t *testing.T) {
	const routedTwice = "192.0.2.0/24 via 10.3.0.1, 198.51.100.0/24 via 10.3.0.9"
	tests := []struct {
		name, text, routes string
		want               string
		networks           string // the networks' own routes, by then
	}{
		{"none", "blue", `[]`, "", ""},
		{"all given", "blue", `[{"dst":"10.9.0.0/16","gw":"10.1.0.9","interface":"net1"}]`, "10.9.0.0/16 via 10.1.0.9 on net1", ""},
		{"the interface by the gateway", "mac,dual,blue", `[{"dst":"10.9.0.0/16","gw":"10.1.0.9"},{"dst":"fd09::/16","gw":"fd01::9"}]`,
			"10.9.0.0/16 via 10.1.0.9 on net3; fd09::/16 via fd01::9 on net2", ""},
		{"the first of two interfaces", "blue,blue", `[{"dst":"10.9.0.0/16","gw":"10.1.0.9"}]`, "10.9.0.0/16 via 10.1.0.9 on net1", ""},
		{"not by the interface whose own address it is", `[{"name":"blue","ips":["10.1.0.9"]},{"name":"blue"}]`, `[{"dst":"10.9.0.0/16","gw":"10.1.0.9"}]`, "10.9.0.0/16 via 10.1.0.9 on net2", ""},
		{"the interface by a fixed address's link", `[{"name":"mac"},{"name":"mac","ips":["10.8.0.7/29"]}]`, `[{"dst":"10.9.0.0/16","gw":"10.8.0.1"}]`, "10.9.0.0/16 via 10.8.0.1 on net2", ""},
		{"the gateway by the network", "blue@a,dual@b", `[{"dst":"10.9.0.0/16","interface":"a"},{"dst":"10.8.0.0/16","interface":"b"},{"dst":"fd09::/16","interface":"b"}]`,
			"10.9.0.0/16 via 10.1.0.1 on a; 10.8.0.0/16 via 10.2.0.1 on b; fd09::/16 via fd01::1 on b", ""},
		{"the primary interface", "blue", `[{"dst":"10.9.0.0/16","gw":"169.254.1.1","interface":"eth0"}]`, "10.9.0.0/16 via 169.254.1.1 on eth0", ""},
		{"a delegate's interface", "bridge", `[{"dst":"10.9.0.0/16","gw":"192.0.2.1","interface":"net1"}]`, "10.9.0.0/16 via 192.0.2.1 on net1", ""},
		{"one address", "blue", `[{"dst":"10.9.0.1/32","gw":"10.1.0.9"}]`, "10.9.0.1/32 via 10.1.0.9 on net1", ""},
		{"on the link", "blue,bridge", `[{"dst":"224.0.0.0/4","scope":253,"interface":"net1"},{"dst":"10.9.0.0/16","scope":253,"interface":"net2"}]`,
			"224.0.0.0/4 on the link of net1; 10.9.0.0/16 on the link of net2", ""},
		{"the scope of CNI's default", "blue", `[{"dst":"10.9.0.0/16","scope":0,"gw":"10.1.0.9"}]`, "10.9.0.0/16 via 10.1.0.9 on net1", ""},
		{"null is as good as left out", "blue", `[{"dst":"10.9.0.0/16","gw":"10.1.0.9","interface":null}]`, "10.9.0.0/16 via 10.1.0.9 on net1", ""},
		{"beside a default route", `[{"name":"blue","default-route":[]}]`, `[{"dst":"10.9.0.0/16","interface":"net1"}]`,
			"default net1 via 10.1.0.1; 10.9.0.0/16 via 10.1.0.1 on net1", ""},

		{"beside a network's", "routed", `[{"dst":"10.9.0.0/16","gw":"10.3.0.9"}]`, "10.9.0.0/16 via 10.3.0.9 on net1", routedTwice},
		{"instead of a network's", "routed", `[{"dst":"192.0.2.0/24","gw":"10.3.0.77"}]`, "192.0.2.0/24 via 10.3.0.77 on net1", "198.51.100.0/24 via 10.3.0.9"},
		{"instead of another network's", "blue,routed", `[{"dst":"198.51.100.0/24","interface":"net1"}]`, "198.51.100.0/24 via 10.1.0.1 on net1", "192.0.2.0/24 via 10.3.0.1"},
		{"a part of a network's", "routed", `[{"dst":"192.0.2.0/25","interface":"net1"}]`, "192.0.2.0/25 via 10.3.0.1 on net1", routedTwice},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			attachments, r, err := routed(t, tt.text, &tt.routes)
			if err != nil {
				t.Fatal(err)
			}
			var own []string
			for _, a := range attachments {
				for _, n := range a.Routes {
					own = append(own, n.Dst.String()+" via "+n.GW.String())
				}
			}
			if got := showRouting(r); got != tt.want || strings.Join(own, ", ") != tt.networks {
				t.Errorf("got  %s; the networks' %v\nwant %s; the networks' %s", got, own, tt.want, tt.networks)
			}
			for _, a := range attachments {
				if a.Name == "routed" && fmt.Sprint(a.Network.Routes) != "[192.0.2.0/24 via 10.3.0.1 198.51.100.0/24 via 10.3.0.9]" {
					t.Errorf("the network itself has %v by now", a.Network.Routes)
				}
			}
		})
	}
}

func TestRoutesOfAPodRefuses(t *testing.T) {
	many := func(n int) string {
		words := make([]string, n)
		for i := range words {
			words[i] = fmt.Sprintf(`{"dst":"10.%d.%d.0/24","interface":"net1"}`, 100+i/256, i%256)
		}
		return "[" + strings.Join(words, ",") + "]"
	}
	const list = `it is a list of objects, like [{"dst":"10.2.0.0/16","gw":"10.1.0.1","interface":"net1"}]`
	after := func(route string) string { return `[{"dst":"10.99.0.0/16","interface":"net1"},{` + route + `}]` }
	tests := []struct{ name, routes, want string }{ // of a pod with blue, mac and bridge
		{"empty", "", list},
		{"null", "null", list},
		{"an object", `{"dst":"10.9.0.0/16"}`, list},
		{"no JSON", `10.9.0.0/16`, list},
		{"null in it", "[null]", "entry 0: null where an object is wanted"},
		{"a string in it", `["10.9.0.0/16"]`, "entry 0: a JSON string where another kind of value is wanted"},
		{"257", many(257), "257 routes are more than 256"},
		{"10,000", "[" + strings.Repeat("1,", 9_999) + "1]", "10000 routes are more than 256"},
		{"256 kB", strings.Repeat(" ", 256<<10), "262144 bytes are more than 65536"},
		{"unknown key", after(`"dest":"10.9.0.0/16"`), `entry 1: unknown key "dest", did you mean "dst"?`},
		{"on the link of no interface", after(`"dst":"224.0.0.0/4","scope":253`), `entry 1: "interface" is missing: name the one on whose link the destination is`},
		{"on the link, and by a gateway", after(`"dst":"224.0.0.0/4","scope":253,"gw":"10.1.0.1"`), `entry 1: gw: leave it out, with "scope": 253 the destination is on the link`},
		{"another scope", after(`"dst":"10.9.0.0/16","scope":254,"interface":"net1"`), "entry 1: scope: 254 is not served, only 253 (on the link)"},
		{"on the link of nobody's interface", after(`"dst":"224.0.0.0/4","scope":253,"interface":"net9"`), `entry 1: interface: the pod has no interface "net9"`},
		{"foreign key", after(`"dst":"10.9.0.0/16","gw":"10.1.0.9","a.b":1`), `entry 1: unknown key "a.b"`},
		{"a key twice", after(`"dst":"10.9.0.0/16","dst":"10.8.0.0/16"`), `entry 1: key "dst" is given twice`},
		{"no dst", after(`"gw":"10.1.0.9"`), `entry 1: dst: "" is not a network like 10.2.0.0/16`},
		{"dst, a number", after(`"dst":10`), `entry 1: "dst" does not take a JSON number`},
		{"dst without a length", after(`"dst":"10.9.0.0"`), `entry 1: dst: "10.9.0.0" is not a network like 10.2.0.0/16`},
		{"dst with host bits", after(`"dst":"10.9.0.1/16"`), `entry 1: dst: "10.9.0.1/16" is not a network like 10.2.0.0/16`},
		{"dst, IPv4 in IPv6", after(`"dst":"::ffff:10.9.0.0/112"`), `entry 1: dst: "::ffff:10.9.0.0/112" is not a network like 10.2.0.0/16`},
		{"dst, long", after(`"dst":"` + strings.Repeat("d", 50_000) + `"`), `entry 1: dst: "` + strings.Repeat("d", 40) + `…" is not a network like 10.2.0.0/16`},
		{"default", after(`"dst":"0.0.0.0/0","gw":"10.1.0.9"`), "entry 1: dst: 0.0.0.0/0 is the default route, ask for it with default-route in k8s.v1.cni.cncf.io/networks"},
		{"default of IPv6", after(`"dst":"::/0","gw":"fd01::1"`), "entry 1: dst: ::/0 is the default route, ask for it with default-route in k8s.v1.cni.cncf.io/networks"},
		{"gw, words", after(`"dst":"10.9.0.0/16","gw":"here"`), `entry 1: gw: "here" is not an IP address`},
		{"gw with a zone", after(`"dst":"fd09::/16","gw":"fe80::1%net1"`), `entry 1: gw: "fe80::1%net1" is not an IP address`},
		{"gw of another family", after(`"dst":"10.9.0.0/16","gw":"fd01::1"`), "entry 1: gw: fd01::1 is not of the family of 10.9.0.0/16"},
		{"neither gw nor interface", after(`"dst":"10.9.0.0/16"`), `entry 1: "interface" and "gw" are missing, name one of them`},
		{"gw of no network", after(`"dst":"10.9.0.0/16","gw":"10.77.0.1"`), "entry 1: gw: 10.77.0.1 is in none of the pod's OVN networks, name the interface"},
		{"gw outside its interface's network", after(`"dst":"10.9.0.0/16","gw":"10.77.0.1","interface":"net1"`), "entry 1: 10.77.0.1 is in none of the subnets of network shop/blue, the pod could not reach it"},
		{"gw, its own address", after(`"dst":"10.9.0.0/16","gw":"10.1.0.7","interface":"net1"`), "entry 1: 10.1.0.7 is the interface's own address"},
		{"unknown interface", after(`"dst":"10.9.0.0/16","interface":"net9"`), `entry 1: interface: the pod has no interface "net9"`},
		{"lo", after(`"dst":"10.9.0.0/16","gw":"127.0.0.1","interface":"lo"`), `entry 1: interface: the pod has no interface "lo"`},
		{"no gw on the primary interface", after(`"dst":"10.9.0.0/16","interface":"eth0"`), `entry 1: "gw" is missing, only OVN networks imply one`},
		{"no gw on a delegate's interface", after(`"dst":"10.9.0.0/16","interface":"net3"`), `entry 1: "gw" is missing, only OVN networks imply one`},
		{"no gw on a network without subnets", after(`"dst":"10.9.0.0/16","interface":"net2"`), `entry 1: "gw" is missing, network shop/mac has no gateway of the family of 10.9.0.0/16`},
		{"no gw of the family", after(`"dst":"fd09::/16","interface":"net1"`), `entry 1: "gw" is missing, network shop/blue has no gateway of the family of fd09::/16`},
		{"twice", after(`"dst":"10.99.0.0/16","gw":"10.1.0.9"`), "entry 1: 10.99.0.0/16 is routed twice"},
		{"twice, by two interfaces", after(`"dst":"10.99.0.0/16","gw":"192.0.2.1","interface":"eth0"`), "entry 1: 10.99.0.0/16 is routed twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, r, err := routed(t, `[{"name":"blue","ips":["10.1.0.7"]},{"name":"mac"},{"name":"bridge"}]`, &tt.routes)
			if err == nil {
				t.Fatalf("taken as %s", showRouting(r))
			}
			wantRefusal(t, err, "annotation ovn-multinet/routes: "+tt.want)
		})
	}
	most := many(256)
	if _, r, err := routed(t, "blue", &most); err != nil || len(r.Routes) != 256 {
		t.Errorf("256 routes: %+v, %v", r, err)
	}
}

func FuzzRoute(f *testing.F) {
	for _, routes := range []string{
		"[]", "null", `[{"dst":"10.9.0.0/16","gw":"10.3.0.9"}]`, `[{"dst":"192.0.2.0/24","interface":"net1"},{"dst":"fd09::/16","interface":"net2"}]`,
		`[{"dst":"0.0.0.0/0","gw":"10.3.0.9"}]`, `[{"dst":"10.9.0.0/16","gw":"1.2.3.4","interface":"eth0"}]`, `[{"dst":"10.9.0.0/16","gw":"1.2.3.4","interface":"net3"}]`,
	} {
		f.Add(routes)
	}
	names := map[string]bool{"net1": true, "net2": true, "net3": true, "eth0": true}
	f.Fuzz(func(t *testing.T, routes string) {
		attachments, r, err := routed(t, "routed,dual,bridge", &routes)
		if err != nil {
			if code, msg, _ := conf.Describe(err); code != conf.CodeInvalidConfig || len(msg) > 1000 {
				t.Errorf("code %d, message of %d bytes: %s", code, len(msg), msg)
			}
			return
		}
		seen := map[netip.Prefix]bool{}
		for _, p := range r.Routes {
			if seen[p.Dst] || p.Dst.Bits() <= 0 || p.Dst != p.Dst.Masked() || p.GW.Is4() != p.Dst.Addr().Is4() || !p.GW.IsValid() || p.GW.Zone() != "" || !names[p.Interface] {
				t.Errorf("route %+v", p)
			}
			seen[p.Dst] = true
		}
		for _, a := range attachments {
			for _, own := range a.Routes {
				if seen[own.Dst] {
					t.Errorf("%s is routed by the pod and by %s: %v", own.Dst, &a.Request, slices.Collect(maps.Keys(seen)))
				}
			}
		}
	})
}
