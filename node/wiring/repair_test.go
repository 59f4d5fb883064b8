package wiring

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// TestInspect: each thing that a pod breaks inside of an interface is found, and made again if that is asked for, and
// then nothing is missing. An interface that the pod has wired by itself lacks nothing.
func TestInspect(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	pod, err := testutils.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(pod.Close(), testutils.UnmountNS(pod)); err != nil {
			t.Error(err)
		}
	}()
	s := &agentapi.Sandbox{ContainerID: "c1", Interface: "eth0"}
	to, by := netip.MustParsePrefix("10.9.0.0/16"), netip.MustParseAddr("10.1.0.1")
	own := agentapi.Route{Interface: "net1", Route: conf.Route{Dst: netip.MustParsePrefix("10.8.0.0/16"), GW: by}}
	plan := &agentapi.Plan{
		Interfaces: []agentapi.Interface{{Name: "net1", MAC: "0a:58:0a:01:00:05", MTU: 1400,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.5/24"), netip.MustParsePrefix("fd00::5/64")},
			Routes:    []conf.Route{{Dst: to, GW: by}}, Table: agentapi.FirstTable, TableRoutes: []conf.Route{{Dst: to, GW: by}},
		}},
		Routes: []agentapi.Route{own}, Default: &agentapi.Default{Interface: "net1", Gateways: []netip.Addr{by}},
	}
	if err := Create(pod.Path(), s, plan); err != nil {
		t.Fatal(err)
	}
	in := func(do func(netlink.Link) error) {
		t.Helper()
		err := pod.Do(func(ns.NetNS) error {
			link, err := netlink.LinkByName("net1")
			return errors.Join(err, do(link))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	in(func(link netlink.Link) error { // what SetRoutes adds
		return errors.Join(netlink.RouteAdd(kernelRoute(own.Route, link.Attrs().Index, 0)),
			netlink.RouteAdd(kernelRoute(conf.Route{Dst: anywhere(by), GW: by}, link.Attrs().Index, 0)))
	})
	inspect := func(repair bool, want string) {
		t.Helper()
		found, err := Inspect(pod.Path(), s, plan, repair)
		if err != nil || want == "" && len(found) > 0 || want != "" && !slices.ContainsFunc(found, func(f string) bool {
			return strings.HasPrefix(f, "interface net1: ") && strings.Contains(f, want)
		}) {
			t.Errorf("found %q, %v; want %q", found, err, want)
		}
	}
	inspect(false, "")
	route := func(dst netip.Prefix, table int) func(netlink.Link) error {
		return func(l netlink.Link) error {
			return netlink.RouteDel(kernelRoute(conf.Route{Dst: dst, GW: by}, l.Attrs().Index, table))
		}
	}
	for want, do := range map[string]func(netlink.Link) error{
		"it is down": netlink.LinkSetDown,
		"its MAC is 02:00:00:00:00:01, not 0a:58:0a:01:00:05": func(l netlink.Link) error {
			return netlink.LinkSetHardwareAddr(l, []byte{2, 0, 0, 0, 0, 1})
		},
		"it lacks address 10.1.0.5/24": func(l netlink.Link) error { return netlink.AddrDel(l, address(plan.Interfaces[0].Addresses[0])) },
		"it lacks address fd00::5/64":  func(l netlink.Link) error { return netlink.AddrDel(l, address(plan.Interfaces[0].Addresses[1])) },
		"it lacks address fe80::": func(l netlink.Link) error {
			return netlink.AddrDel(l, address(netip.MustParsePrefix("fe80::858:aff:fe01:5/64")))
		},
		"it lacks the route to 10.9.0.0/16":  route(to, unix.RT_TABLE_MAIN),
		"it lacks the route to 10.9.0.0/16 ": route(to, agentapi.FirstTable),
		"it lacks the route to 10.8.0.0/16":  route(own.Dst, unix.RT_TABLE_MAIN),
		"it lacks the route to 0.0.0.0/0":    route(anywhere(by), unix.RT_TABLE_MAIN),
		"it lacks the rule for fd00::5": func(netlink.Link) error {
			return netlink.RuleDel(ruleFor(netip.MustParseAddr("fd00::5"), agentapi.FirstTable))
		},
	} {
		in(do)
		want = strings.TrimSpace(want)
		inspect(false, want)
		inspect(true, want)
		inspect(false, "")
	}
	in(netlink.LinkSetDown)
	in(func(l netlink.Link) error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "k6t"}}
		return errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetMaster(l, bridge))
	})
	inspect(true, "")
	in(func(l netlink.Link) error {
		return errors.Join(netlink.LinkSetNoMaster(l), netlink.LinkSetName(l, "mine"))
	})
	found, err := Inspect(pod.Path(), s, plan, true)
	if err != nil || len(found) > 0 {
		t.Errorf("of an interface that the pod has renamed: %q, %v", found, err)
	}
}

// TestFewEntries: a pod with many addresses, routes or rules is not inspected, and the lists are not read.
func TestFewEntries(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := fewEntries(8); err != nil { // three rules and the addresses and routes of lo
		t.Fatal(err)
	}
	add := map[string]func(netip.Addr) error{
		"addresses": func(a netip.Addr) error { return netlink.AddrAdd(lo, address(netip.PrefixFrom(a, 32))) },
		"rules":     func(a netip.Addr) error { return netlink.RuleAdd(ruleFor(a, agentapi.FirstTable)) },
	}
	for what, one := range add {
		for n := range 9 {
			if err := one(netip.AddrFrom4([4]byte{10, 9, 0, byte(n)})); err != nil {
				t.Fatal(err)
			}
		}
		if err := fewEntries(8); err == nil {
			t.Errorf("%s: no error", what)
		}
		if err := fewEntries(100); err != nil {
			t.Error(err)
		}
	}
}
