package ovnrun

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// TestTunnelNIC: a subnet means the one interface that has an address there, with this address.
func TestTunnelNIC(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	add := func(name string, addresses ...string) {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-end"}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		for _, text := range addresses {
			address, err := netlink.ParseAddr(text)
			if err == nil {
				err = netlink.AddrAdd(link, address)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	add("a", "198.51.100.1/24", "192.0.2.1/25")
	add("b", "203.0.113.1/24", "192.0.2.129/25")
	for given, want := range map[string]string{
		"a": "a 198.51.100.1/24", "192.0.2.0/25": "a 192.0.2.1/25", "192.0.2.128/25": "b 192.0.2.129/25",
		"192.0.2.0/24": "ovn.tunnelInterface has 192.0.2.0/24, and 2 interfaces of this node have an IPv4 address there [a b]: ",
		// The first of a list that the node has counts, also if it has no address yet.
		"c,10.0.0.0/8,b": "b 203.0.113.1/24", "10.0.0.0/8, 198.51.100.0/24,b": "a 198.51.100.1/24",
		"a-end,b": "interface a-end has no IPv4 address for the tunnels",
		"c":       "ovn.tunnelInterface is c, and this node has no such interface, ",
		"10.0.0.0/8,d": "ovn.tunnelInterface is 10.0.0.0/8,d, and this node has no such interface, and no interface with an IPv4 " +
			"address in such a subnet: ",
	} {
		h := &Host{TunnelInterface: given}
		nic, err := h.tunnelNIC(netip.Addr{})
		got := nic.name + " " + nic.address.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
	// The order of addresses changes at a reboot. The former address stays, unless it is gone.
	add("c", "10.9.0.6/24", "10.9.0.5/24")
	for former, want := range map[string]string{"10.9.0.5": "10.9.0.5/24", "10.9.0.6": "10.9.0.6/24", "10.9.0.7": "10.9.0.6/24"} {
		for _, given := range []string{"c", "10.9.0.0/24"} {
			nic, err := (&Host{TunnelInterface: given}).tunnelNIC(netip.MustParseAddr(former))
			if err != nil || nic.address.String() != want {
				t.Errorf("%s after %s: %s, %v; want %s", given, former, nic.address, err, want)
			}
		}
	}
}
