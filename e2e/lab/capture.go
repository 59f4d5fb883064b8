package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Capture has the packets of an interface, from its start on. A packet that was sent or answered has been captured.
type Capture struct {
	socket int

	mu      sync.Mutex
	packets []packet
}

// packet is an Ethernet frame without its addresses, as the kernel hands the frame over: without a VLAN tag.
type packet struct {
	sent  bool
	kind  uint16 // EtherType
	bytes []byte
}

func capture(netns, link string) (*Capture, error) {
	c := &Capture{socket: -1}
	err := inNetNS(netns, func() error {
		nic, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		// The socket has no protocol before it is bound: it must not hear other interfaces.
		c.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		return unix.Bind(c.socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: nic.Index})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture on %s of %s: %w", link, netns, err), c.Close())
	}
	return c, nil
}

// read reads what has come, and returns all packets since the start. c.mu is held.
func (c *Capture) read() ([]packet, error) {
	const header = 14
	frame := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(c.socket, frame, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return c.packets, nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n >= header:
			link, ok := from.(*unix.SockaddrLinklayer)
			c.packets = append(c.packets, packet{
				sent: ok && link.Pkttype == unix.PACKET_OUTGOING,
				kind: binary.BigEndian.Uint16(frame[header-2:]), bytes: slices.Clone(frame[header:n]),
			})
		}
	}
}

// Sources returns the addresses that echo requests came from until now, each once, sorted.
func (c *Capture) Sources() (all []netip.Addr, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	packets, err := c.read()
	for _, p := range packets {
		if from, ok := p.echoRequest(); ok && !p.sent {
			all = append(all, from)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), err
}

// Geneve returns the number of Geneve packets until now, in both directions.
func (c *Capture) Geneve() (count int, err error) { return c.geneve(nil) }

// GeneveWith returns the number of Geneve packets that have an address in them, until now, in both directions.
func (c *Capture) GeneveWith(a netip.Addr) (count int, err error) { return c.geneve(a.AsSlice()) }

func (c *Capture) geneve(with []byte) (count int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	packets, err := c.read()
	for _, p := range packets {
		const port = 6081 // RFC 8926
		payload := p.ipv4(unix.IPPROTO_UDP)
		if len(payload) >= 8 && binary.BigEndian.Uint16(payload[2:]) == port && bytes.Contains(payload, with) {
			count++
		}
	}
	return count, err
}

// Received returns the number of packets of TCP or UDP that have come from one address and port to another until now.
func (c *Capture) Received(protocol byte, from, to netip.AddrPort) (count int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	packets, err := c.read()
	for _, p := range packets {
		if a, b := p.ends(protocol); !p.sent && a == from && b == to {
			count++
		}
	}
	return count, err
}

// Carrying returns the number of packets with these bytes that have come until now, whatever MACs they are for.
func (c *Capture) Carrying(text string) (count int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	packets, err := c.read()
	for _, p := range packets {
		if !p.sent && bytes.Contains(p.bytes, []byte(text)) {
			count++
		}
	}
	return count, err
}

// Announced returns the MACs that were announced for an IPv4 address until now, in order: by ARP requests or replies of
// the address for itself.
func (c *Capture) Announced(a netip.Addr) (macs []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	packets, err := c.read()
	for _, p := range packets {
		const arp = 28 // RFC 826: the sender's MAC and address are at 8 and 14, the target's at 18 and 24
		if p.kind != unix.ETH_P_ARP || p.sent || len(p.bytes) < arp {
			continue
		}
		if ip := a.AsSlice(); bytes.Equal(p.bytes[14:18], ip) && bytes.Equal(p.bytes[24:28], ip) {
			macs = append(macs, net.HardwareAddr(p.bytes[8:14]).String())
		}
	}
	return slices.Compact(macs), err
}

// ipv4 is the payload of an IPv4 packet of a protocol.
func (p packet) ipv4(protocol byte) []byte {
	if p.kind != unix.ETH_P_IP || len(p.bytes) < 20 || p.bytes[9] != protocol {
		return nil
	}
	header := int(p.bytes[0]&0x0f) * 4
	return p.bytes[min(header, len(p.bytes)):]
}

// ends are the source and the destination of a packet of TCP or UDP. It has no extension headers of IPv6 here.
func (p packet) ends(protocol byte) (from, to netip.AddrPort) {
	const header6, ports = 40, 4
	payload := p.ipv4(protocol)
	var a, b netip.Addr
	switch {
	case len(payload) >= ports:
		a, b = netip.AddrFrom4([4]byte(p.bytes[12:])), netip.AddrFrom4([4]byte(p.bytes[16:]))
	case p.kind == unix.ETH_P_IPV6 && len(p.bytes) >= header6+ports && p.bytes[6] == protocol:
		a, b, payload = netip.AddrFrom16([16]byte(p.bytes[8:])), netip.AddrFrom16([16]byte(p.bytes[24:])), p.bytes[header6:]
	default:
		return from, to
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(payload)), netip.AddrPortFrom(b, binary.BigEndian.Uint16(payload[2:]))
}

// echoRequest is the source of a request of ICMP or ICMPv6 for an echo. Such a request has no extension headers here.
func (p packet) echoRequest() (from netip.Addr, ok bool) {
	const request4, request6, header6 = 8, 128, 40
	if icmp := p.ipv4(unix.IPPROTO_ICMP); len(icmp) > 0 && icmp[0] == request4 {
		return netip.AddrFrom4([4]byte(p.bytes[12:])), true
	}
	if p.kind == unix.ETH_P_IPV6 && len(p.bytes) > header6 && p.bytes[6] == unix.IPPROTO_ICMPV6 && p.bytes[header6] == request6 {
		return netip.AddrFrom16([16]byte(p.bytes[8:])), true
	}
	return from, false
}

// Close ends the capture.
func (c *Capture) Close() error {
	if c.socket < 0 {
		return nil
	}
	return unix.Close(c.socket)
}

// Capture captures on an interface of the pod.
func (p *Pod) Capture(link string) (*Capture, error) { return capture(p.NetNS, link) }

// Capture captures the tunnels between nodes.
func (n *Node) Capture() (*Capture, error) { return capture(n.NetNS, "eth1") }
