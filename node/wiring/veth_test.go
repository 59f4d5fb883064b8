package wiring

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/vishvananda/netlink"
)

func TestLinkGroup(t *testing.T) {
	seen := map[uint32]string{}
	twice := 0
	for container := range 2000 {
		s := agentapi.Sandbox{ContainerID: fmt.Sprintf("%064x", container), Interface: "eth0"}
		group := linkGroup(&s)
		if group < 1<<30 || group >= 1<<31 {
			t.Fatalf("group %#x of %s", group, s.ID())
		}
		if seen[group] != "" {
			twice++
		}
		seen[group] = s.ID()
	}
	if twice > 1 { // 2000 of 2^30: one pair in 500 runs
		t.Errorf("%d groups are shared", twice)
	}
	one, other := agentapi.Sandbox{ContainerID: "c", Interface: "eth0"}, agentapi.Sandbox{ContainerID: "c", Interface: "eth1"}
	if linkGroup(&one) == linkGroup(&other) {
		t.Error("two attachments of one container are one group")
	}
	again := agentapi.Sandbox{ContainerID: "c", Interface: "eth0", Pod: "p", UID: "u"}
	if linkGroup(&one) != linkGroup(&again) {
		t.Error("the group depends on more than container and interface")
	}
	if got, want := linkGroup(&agentapi.Sandbox{ContainerID: "c1", Interface: "eth0"}), uint32(1727641828); got != want {
		t.Errorf("group %d, want %d: links of pods that run are in it", got, want)
	}
}

// TestNodeSideHasNoIPv6: the node gets no address and no route by the interfaces of its pods.
func TestNodeSideHasNoIPv6(t *testing.T) {
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
	state := func() string {
		t.Helper()
		addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(addresses, routes)
	}
	before := state()
	s := &agentapi.Sandbox{ContainerID: "c1", Interface: "eth0"}
	plan := &agentapi.Plan{Interfaces: []agentapi.Interface{{Name: "net1", MAC: "0a:58:0a:01:00:05", MTU: 1400,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.5/24"), netip.MustParsePrefix("fd00::5/64")}}}}
	if err := Create(pod.Path(), s, plan); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(agentapi.HostVeth("c1", "net1"))
	if err != nil || link.Attrs().OperState != netlink.OperUp {
		t.Fatalf("%v, %+v", err, link)
	}
	if after := state(); after != before {
		t.Errorf("the node has got %s", after)
	}
}
