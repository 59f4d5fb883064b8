package uplink_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/ovnport/uplink"
)

// links makes links of the namespace.
type links struct{ *testing.T }

func (l links) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l links) veth(name string) netlink.Link {
	l.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-far"}
	l.must(netlink.LinkAdd(link))
	far, err := netlink.LinkByName(name + "-far")
	l.must(err)
	l.must(netlink.LinkSetUp(far))
	return link
}

func (l links) address(link netlink.Link, text string) {
	l.Helper()
	a, err := netlink.ParseAddr(text)
	l.must(err)
	l.must(netlink.AddrAdd(link, a))
}

// kind makes a link of a kind that not each kernel has. It returns false without it.
func (l links) kind(link netlink.Link) bool {
	l.Helper()
	err := netlink.LinkAdd(link)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false
	}
	l.must(err)
	return true
}

// TestUsable: an interface that the node needs, or that leads nowhere, is refused in words that say what to name instead.
func TestUsable(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := links{t}
	plain := l.veth("plain")
	l.must(netlink.LinkSetUp(plain)) // has link-local addresses and routes
	l.address(l.veth("addressed"), "192.0.2.5/24")
	l.address(l.veth("addressed6"), "2001:db8::5/64")
	routed := l.veth("routed")
	l.must(netlink.LinkSetUp(routed))
	_, subnet, _ := strings.Cut("- 198.51.100.0/24", " ")
	to, err := netlink.ParseIPNet(subnet)
	l.must(err)
	l.must(netlink.RouteAdd(&netlink.Route{LinkIndex: routed.Attrs().Index, Dst: to}))
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	l.must(netlink.LinkAdd(bridge))
	l.must(netlink.LinkSetMaster(l.veth("inbridge"), bridge))
	below := l.veth("below")

	cases := map[string]string{
		"plain":      "",
		"lo":         "lo is the loopback interface",
		"none":       "the node has no interface none",
		"addressed":  "addressed has the address 192.0.2.5/24, and the node would lose it: name an interface that the node does not use",
		"addressed6": "addressed6 has the address 2001:db8::5/64, and the node would lose it",
		"routed":     "routed has a route of the node (to 198.51.100.0/24)",
		"br0":        "br0 is a Linux bridge: name one of its ports that nothing else needs",
		"inbridge":   "inbridge is a port of the Linux bridge br0: remove it from the bridge",
	}
	if l.kind(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "mac0", ParentIndex: below.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}) {
		cases["below"], cases["mac0"] = "below is below mac0 (macvlan)", "mac0 is of the kind macvlan, which leads to no physical network"
	}
	if l.kind(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "plain.100", ParentIndex: plain.Attrs().Index}, VlanId: 100}) {
		cases["plain.100"] = "plain.100 is a VLAN interface of plain, and networks on VLANs are granted, so their packets would have two tags: name plain"
	}
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	if l.kind(bond) {
		member := l.veth("member")
		l.must(netlink.LinkSetMaster(member, bond))
		cases["member"], cases["bond0"] = "member is a port of the bond bond0: name bond0", ""
	}
	if l.kind(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "dummy0"}}) {
		cases["dummy0"] = "dummy0 is of the kind dummy, which leads to no physical network"
	}
	for name, want := range cases {
		got := ""
		if err := (uplink.NICs{}).Usable(name, true); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if cases["plain.100"] != "" {
		if err := (uplink.NICs{}).Usable("plain.100", false); err != nil {
			t.Errorf("a VLAN interface without granted VLANs: %v", err)
		}
	}
	t.Log(len(cases), "cases")
}

// TestLacks: a port of a bridge that cannot do its work is told.
func TestLacks(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := links{t}
	says := func(want string) {
		t.Helper()
		if got := (uplink.NICs{}).Lacks("eth1", "br-x"); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%q, want %q", got, want)
		}
	}
	says("the node has no interface eth1 any more")
	link := l.veth("eth1")
	says("eth1 is down: ip link set eth1 up")
	l.must(netlink.LinkSetUp(link))
	says("")
	far, err := netlink.LinkByName("eth1-far")
	l.must(err)
	l.must(netlink.LinkSetDown(far))
	says("eth1 has no carrier")
	l.must(netlink.LinkSetUp(far))
	other := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	l.must(netlink.LinkAdd(other))
	l.must(netlink.LinkSetMaster(link, other))
	says("another program has put eth1 into br0 (bridge): take it out there, because it is a port of bridge br-x")
	l.must(netlink.LinkSetNoMaster(link))
	l.address(link, "192.0.2.5/24")
	says("eth1 has the address 192.0.2.5/24, which cannot be reached, because eth1 is a port of bridge br-x")
}
