package agentapi

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Conformance: C-24
func TestCheck(t *testing.T) {
	address := func(texts ...string) func(*Plan) {
		return func(p *Plan) {
			p.Interfaces[0].Addresses = nil
			for _, text := range texts {
				prefix, _ := netip.ParsePrefix(text)
				p.Interfaces[0].Addresses = append(p.Interfaces[0].Addresses, prefix)
			}
		}
	}
	scoped := func(dst, gw string, scope int) func(*Plan) {
		return func(p *Plan) {
			prefix, _ := netip.ParsePrefix(dst)
			addr, _ := netip.ParseAddr(gw)
			p.Interfaces[0].Routes = []conf.Route{{Dst: prefix, GW: addr, Scope: scope}}
		}
	}
	route := func(dst, gw string) func(*Plan) { return scoped(dst, gw, 0) }
	podRoute := func(name, dst, gw string) func(*Plan) {
		return func(p *Plan) {
			prefix, _ := netip.ParsePrefix(dst)
			addr, _ := netip.ParseAddr(gw)
			p.Routes[1] = Route{Route: conf.Route{Dst: prefix, GW: addr}, Interface: name}
		}
	}
	moved := func(name string, gateways ...string) func(*Plan) {
		return func(p *Plan) {
			p.Default = &Default{Interface: name}
			for _, g := range gateways {
				addr, _ := netip.ParseAddr(g)
				p.Default.Gateways = append(p.Default.Gateways, addr)
			}
		}
	}
	tests := []struct {
		name   string
		change func(*Plan)
		want   string
	}{
		{"as it should be", func(*Plan) {}, ""},
		{"nothing to wire", func(p *Plan) { *p = Plan{} }, ""},
		{"delegates alone", func(p *Plan) { p.Interfaces, p.Routes = nil, p.Routes[1:] }, ""},
		{"MAC only", address(), ""},
		{"no name", func(p *Plan) { p.Interfaces[1].Name = "" }, `plan: interface name "" is not of 1 to 15 characters`},
		{"path as name", func(p *Plan) { p.Interfaces[1].Name = "../x" }, `plan: interface name "../x" has a character that an interface cannot have`},
		{"long name", func(p *Plan) { p.Interfaces[1].Name = "abcdefghijklmnop" }, `plan: interface name "abcdefghijklmnop" is not of 1 to 15 characters`},
		{"one name twice", func(p *Plan) { p.Interfaces[1].Name = "net1" }, `plan: interface "net1" is taken`},
		{"the primary's name", func(p *Plan) { p.Interfaces[0].Name = "eth0" }, `plan: interface "eth0" is taken`},
		{"lo", func(p *Plan) { p.Interfaces[0].Name = "lo" }, `plan: interface "lo" is taken`},
		{"a delegate without a name", func(p *Plan) { p.Delegates[1].Name = "" }, `plan: interface name "" is not of 1 to 15 characters`},
		{"a path as a delegate's name", func(p *Plan) { p.Delegates[0].Name = "../x" }, `plan: interface name "../x" has a character that an interface cannot have`},
		{"one name for two delegates", func(p *Plan) { p.Delegates[1].Name = "net3" }, `plan: interface "net3" is taken`},
		{"a delegate of an interface's name", func(p *Plan) { p.Delegates[1].Name = "net2" }, `plan: interface "net2" is taken`},
		{"a delegate of the primary's name", func(p *Plan) { p.Delegates[0].Name = "eth0" }, `plan: interface "eth0" is taken`},
		{"lo for a delegate", func(p *Plan) { p.Delegates[0].Name = "lo" }, `plan: interface "lo" is taken`},
		{"chained plugins", func(p *Plan) { p.Delegates[1].Name, p.Delegates[1].Chained = "net2", true }, ""},
		{"chained plugins behind nothing", func(p *Plan) { p.Delegates[1].Chained = true }, `plan: interface "net4" is not one for chained plugins`},
		{"chained plugins behind the primary", func(p *Plan) { p.Delegates[1].Name, p.Delegates[1].Chained = "eth0", true },
			`plan: interface "eth0" is not one for chained plugins`},
		{"two lists of chained plugins", func(p *Plan) {
			p.Delegates[0].Name, p.Delegates[0].Chained, p.Delegates[1].Name, p.Delegates[1].Chained = "net2", true, "net2", true
		}, `plan: interface "net2" is not one for chained plugins`},
		{"a gateway that is none", func(p *Plan) { p.Interfaces[0].Gateways = []netip.Addr{{}} }, `plan: interface "net1": a gateway is not valid`},
		{"no MAC", func(p *Plan) { p.Interfaces[0].MAC = "" }, `plan: interface "net1": MAC "" is not a unicast one of 6 bytes`},
		{"MAC of 8 bytes", func(p *Plan) { p.Interfaces[0].MAC = "02:00:00:00:00:00:00:01" }, `plan: interface "net1": MAC "02:00:00:00:00:00:00:01" is not a unicast one of 6 bytes`},
		{"MAC multicast", func(p *Plan) { p.Interfaces[1].MAC = "01:00:5e:00:00:01" }, `plan: interface "net2": MAC "01:00:5e:00:00:01" is not a unicast one of 6 bytes`},
		{"MTU 0", func(p *Plan) { p.Interfaces[0].MTU = 0 }, `plan: interface "net1": MTU 0 is none`},
		{"MTU 67", func(p *Plan) { p.Interfaces[0].MTU = 67 }, `plan: interface "net1": MTU 67 is none`},
		{"MTU 65536", func(p *Plan) { p.Interfaces[0].MTU = 65536 }, `plan: interface "net1": MTU 65536 is none`},
		{"address that is none", address("10.1.0.7/24", ""), `plan: interface "net1": an address is not valid`},
		{"address as IPv4 in IPv6", address("::ffff:10.1.0.7/120"), `plan: interface "net1": an address is not valid`},
		{"route to nowhere", route("", "10.1.0.1"), `plan: interface "net1": a route is not valid`},
		{"route by nobody", route("192.0.2.0/24", ""), `plan: interface "net1": a route is not valid`},
		{"route on the link, and by a gateway", scoped("192.0.2.0/24", "10.1.0.1", conf.ScopeLink),
			`plan: interface "net1": a route is not valid`},
		{"route of another scope", scoped("192.0.2.0/24", "", 254), `plan: interface "net1": a route is not valid`},
		{"route on the link", scoped("224.0.0.0/4", "", conf.ScopeLink), ""},
		{"route of two families", route("192.0.2.0/24", "fd01::1"), `plan: interface "net1": a route is not valid`},
		{"route by an address with a zone", route("fd02::/64", "fe80::1%eth0"), `plan: interface "net1": a route is not valid`},

		{"route of the pod by nobody's interface", podRoute("net9", "10.9.0.0/16", "10.1.0.1"), `plan: the route to 10.9.0.0/16 by "net9" is not valid`},
		{"route of the pod by lo", podRoute("lo", "10.9.0.0/16", "127.0.0.1"), `plan: the route to 10.9.0.0/16 by "lo" is not valid`},
		{"route of the pod by no interface", podRoute("", "10.9.0.0/16", "10.1.0.1"), `plan: the route to 10.9.0.0/16 by "" is not valid`},
		{"route of the pod to nowhere", podRoute("net1", "", "10.1.0.1"), `plan: the route to invalid Prefix by "net1" is not valid`},
		{"route of the pod by nobody", podRoute("net1", "10.9.0.0/16", ""), `plan: the route to 10.9.0.0/16 by "net1" is not valid`},
		{"route of the pod, two families", podRoute("net1", "10.9.0.0/16", "fd01::1"), `plan: the route to 10.9.0.0/16 by "net1" is not valid`},
		{"route of the pod, IPv4 in IPv6", podRoute("net1", "::ffff:10.9.0.0/112", "fd01::1"), `plan: the route to ::ffff:10.9.0.0/112 by "net1" is not valid`},
		{"route of the pod by a delegate", podRoute("net4", "10.9.0.0/16", "10.8.0.1"), ""},

		{"default by an interface", moved("net1", "10.1.0.1"), ""},
		{"default as a delegate makes it", moved("net4"), ""},
		{"default by nobody's interface", moved("net9", "10.1.0.1"), `plan: the default routes go to interface "net9", which is not there`},
		{"default by lo", moved("lo", "127.0.0.1"), `plan: the default routes go to interface "lo", which is not there`},
		{"default by no gateway", moved("net1", "10.1.0.1", ""), "plan: a default gateway is not valid"},
		{"default by IPv4 in IPv6", moved("net1", "::ffff:10.1.0.1"), "plan: a default gateway is not valid"},
		{"default by a zone", moved("net1", "fe80::1%eth0"), "plan: a default gateway is not valid"},
		{"nothing to keep", func(p *Plan) { p.Default.Keep = nil }, ""},
		{"no network to keep", func(p *Plan) { p.Default.Keep = []netip.Prefix{{}} }, "plan: a network to keep on the primary interface is not valid"},
		{"IPv4 in IPv6 to keep", func(p *Plan) { p.Default.Keep = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")} },
			"plan: a network to keep on the primary interface is not valid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := full()
			tt.change(&p)
			got := ""
			if err := p.Check("eth0"); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A host end's name fits the kernel, is recognised as ours, and is no other interface's.
func TestHostEnd(t *testing.T) {
	seen := map[string]string{}
	for container := range 2000 {
		for _, ifName := range []string{"net1", "net2", "net11", "a", "abcdefghijklmno"} {
			id := fmt.Sprintf("%064x", container)
			name := HostVeth(id, ifName)
			if len(name) > 15 || !strings.HasPrefix(name, HostVethPrefix) || conf.CheckInterfaceName(name) != nil {
				t.Fatalf("%s of %s is %q", ifName, id, name)
			}
			if other := seen[name]; other != "" {
				t.Fatalf("%s and %s/%s are both %s", other, id, ifName, name)
			}
			seen[name] = id + "/" + ifName
		}
	}
	// Links of pods that run carry it: it must not change.
	if got, want := HostVeth("c1", "net1"), "mnca3ed83f20a1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNamesOfFiles(t *testing.T) {
	if got := sandbox.ID(); got != "c1@eth0" {
		t.Errorf("ID %s", got)
	}
	if got := ReadyMarker("/run/ovn-multinet/agent.sock"); got != "/run/ovn-multinet/ready" {
		t.Errorf("marker %s", got)
	}
}
