package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// neighbours are the addresses that routers have learned, and that begin with a text.
func (w *world) neighbours(prefix string) (addrs []string) {
	out, err := w.SBCtl(w.Ctx, "--bare", "--columns=ip", "list", "MAC_Binding")
	w.Must(err)
	for _, a := range strings.Fields(out) {
		if strings.HasPrefix(a, prefix) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// asked is an ARP request or a neighbour solicitation of an address by another one, as an Ethernet frame to all.
func asked(mac net.HardwareAddr, from, target netip.Addr) []byte {
	if from.Is4() {
		frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac...)
		frame = append(frame, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1)
		frame = append(append(frame, mac...), from.AsSlice()...)
		return append(append(frame, 0, 0, 0, 0, 0, 0), target.AsSlice()...)
	}
	low := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], low[13:])
	body := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	body = append(append(body, 1, 1), mac...)
	return icmp6(mac, append([]byte{0x33, 0x33}, group[12:]...), from, netip.AddrFrom16(group), body)
}

// answer6 is a neighbour advertisement to all that nobody has asked for.
func answer6(mac net.HardwareAddr, own netip.Addr) []byte {
	body := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, own.AsSlice()...)
	body = append(append(body, 2, 1), mac...)
	return icmp6(mac, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, own, netip.MustParseAddr("ff02::1"), body)
}

// icmp6 is an ICMPv6 message with hop limit 255, as an Ethernet frame. The message begins with its type.
func icmp6(mac, to net.HardwareAddr, from, dst netip.Addr, body []byte) []byte {
	var sum uint32
	for _, b := range [][]byte{from.AsSlice(), dst.AsSlice(), {0, byte(len(body))}, {0, unix.IPPROTO_ICMPV6}, body} {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(body[2:], ^uint16(sum))
	frame := append(append(append([]byte{}, to...), mac...), 0x86, 0xdd)
	frame = append(frame, 0x60, 0, 0, 0, 0, byte(len(body)), unix.IPPROTO_ICMPV6, 255)
	return append(append(append(frame, from.AsSlice()...), dst.AsSlice()...), body...)
}

// TestBoundaryNeighboursBounded: a gateway learns whom it talks to, and not whom it hears: strangers that ask for its address
// under many addresses of their own leave no neighbour of IPv6, however many they are, and none of IPv4 that stays.
func TestBoundaryNeighboursBounded(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0)
	w.gatewayStands(0)
	host := w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.network("hidden", outOf(1, ""))
	p := w.Attached(2, "web", "hidden")
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	const strangers = 200
	for i := range strangers {
		mac := net.HardwareAddr{0x02, 0, 0, 0, byte(i >> 8), byte(i)}
		from6 := netip.MustParseAddr(fmt.Sprintf("2001:db8::bad:%x", i+1))
		w.send(host, "eth0", asked(mac, from6, netip.MustParseAddr("2001:db8::10")))
		from4 := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 30)})
		w.send(host, "eth0", asked(mac, from4, netip.MustParseAddr("192.0.2.10")))
	}
	// What the gateway learns next shows that it has read all the questions before.
	w.Exec(host, "ip", "addr", "add", "192.0.2.8/24", "dev", "eth0")
	w.Exec(host, "ip", "addr", "add", "2001:db8::8/64", "dev", "eth0", "nodad")
	w.MustReach(p, "192.0.2.8", "2001:db8::8")
	w.Eventually(func() error {
		if len(w.neighbours("192.0.2.8")) == 0 || len(w.neighbours("2001:db8::8")) == 0 {
			return errors.New("the gateway has not learned the host")
		}
		return nil
	})
	equal(t, "strangers that the gateway has learned", w.neighbours("2001:db8::bad:"), nil)
	// OVN learns from each answer, also from one that nobody asked for. They do not stay either.
	const claimed = 50
	for i := range claimed {
		mac := net.HardwareAddr{0x02, 0, 0, 1, 0, byte(i)}
		w.send(host, "eth0", answer6(mac, netip.MustParseAddr(fmt.Sprintf("2001:db8::fee:%x", i+1))))
	}
	for _, bound := range []struct{ least, most int }{{claimed, claimed}, {0, 0}} {
		w.Eventually(func() error {
			if got := len(w.neighbours("2001:db8::fee:")); got < bound.least || got > bound.most {
				return fmt.Errorf("the gateway knows %d neighbours that nobody asked for, want %d", got, bound.most)
			}
			return nil
		})
	}
	// OVN learns from an ARP request for an address of the router, so the subnet bounds these. They do not stay.
	w.Eventually(func() error {
		if got := w.neighbours("192.0.2."); len(got) > 10 {
			return fmt.Errorf("the gateway still knows %d neighbours", len(got))
		}
		return nil
	})
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	w.End(p)
	w.endNetworks("hidden")
}

// TestNextHopReplaced: a next hop that is replaced by a machine with the same addresses and another MAC, which says
// nothing by itself, is reached again.
func TestNextHopReplaced(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0)
	w.gatewayStands(0)
	plug := func(name string) *lab.Outside {
		// Without addresses at first: the kernel would announce them.
		o := w.outside(name, 42)
		w.Exec(o, "sysctl", "-qw", "net.ipv4.conf.eth0.arp_notify=0", "net.ipv6.conf.eth0.ndisc_notify=0")
		for _, a := range []string{"192.0.2.1/24", "198.51.100.1/24"} {
			w.Exec(o, "ip", "addr", "add", a, "dev", "eth0")
		}
		for _, a := range []string{"2001:db8::1/64", "2001:db8:1::1/64"} {
			w.Exec(o, "ip", "addr", "add", a, "dev", "eth0", "nodad")
		}
		return o
	}
	next := plug("next")
	w.network("hidden", outOf(1, ""))
	p := w.Attached(2, "web", "hidden")
	w.MustReach(p, "198.51.100.1", "2001:db8:1::1")
	w.Must(next.Close())
	plug("another")
	w.MustReach(p, "198.51.100.1", "2001:db8:1::1")
	w.End(p)
	w.endNetworks("hidden")
}
