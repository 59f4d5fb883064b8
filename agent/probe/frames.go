package probe

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
)

const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	ethernet  = 14 // bytes of the Ethernet header
	arpReply  = 2
	icmpv6    = 58
	solicit   = 135
	advertise = 136
	arpSender = 14 // where an ARP message has its sender's IPv4 address
	targetMAC = 2  // the option target link-layer address (RFC 4861, section 4.6.1)
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// question is the frame that asks whether a host has the address. Its sender has no address, so no host takes the
// sender for the owner of the address.
func question(own net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() {
		return arpProbe(own, a)
	}
	return solicitation(own, a)
}

// announcement is the frame that tells all hosts of the network that own has the address. Hosts that know another MAC
// for the address follow.
func announcement(own net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() { // an ARP announcement (RFC 5227, section 2.3)
		frame := arpProbe(own, a)
		copy(frame[ethernet+arpSender:], a.AsSlice())
		return frame
	}
	// An unsolicited neighbour advertisement with the flag override (RFC 4861, section 7.2.6).
	target := a.As16()
	message := append([]byte{advertise, 0, 0, 0, 0x20, 0, 0, 0}, target[:]...)
	message = append(append(message, targetMAC, 1), own...)
	return icmpFrame(own, target, netip.IPv6LinkLocalAllNodes().As16(), message)
}

// arpProbe is an ARP probe (RFC 5227, section 2.1.1).
func arpProbe(own net.HardwareAddr, a netip.Addr) []byte {
	frame := header(broadcast, own, etherARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1) // a request for an IPv4 address by Ethernet
	frame = append(frame, own...)
	frame = append(frame, make([]byte, 4+6)...)
	return append(frame, a.AsSlice()...)
}

// solicitation is a neighbour solicitation from the unspecified address (RFC 4862, section 5.4.2).
func solicitation(own net.HardwareAddr, a netip.Addr) []byte {
	target := a.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], target[13:])
	message := append([]byte{solicit, 0, 0, 0, 0, 0, 0, 0}, target[:]...)
	return icmpFrame(own, netip.IPv6Unspecified().As16(), group, message)
}

// icmpFrame is the frame of an ICMPv6 message to a group. It sets the message's checksum.
func icmpFrame(own net.HardwareAddr, from, group [16]byte, message []byte) []byte {
	binary.BigEndian.PutUint16(message[2:], checksum(from, group, message))
	frame := header(net.HardwareAddr{0x33, 0x33, group[12], group[13], group[14], group[15]}, own, etherIPv6)
	frame = append(frame, 0x60, 0, 0, 0, 0, byte(len(message)), icmpv6, 255)
	frame = append(append(frame, from[:]...), group[:]...)
	return append(frame, message...)
}

func header(to, from net.HardwareAddr, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(append(bytes.Clone(to), from...), kind)
}

// checksum is the checksum of an ICMPv6 message, with its pseudo-header (RFC 8200, section 8.1).
func checksum(from, to [16]byte, message []byte) uint16 {
	sum := uint32(len(message)) + icmpv6
	for _, part := range [][]byte{from[:], to[:], message} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// answer reads a frame: which address its sender says to have, and the sender's MAC. ok is false for each frame that is
// no answer to a question of own. Announcements of addresses (gratuitous ARP) are none: a former pod's, or
// ovn-controller's, may come late.
func answer(frame []byte, own net.HardwareAddr) (a netip.Addr, mac net.HardwareAddr, ok bool) {
	if len(frame) < ethernet {
		return a, nil, false
	}
	switch body := frame[ethernet:]; binary.BigEndian.Uint16(frame[12:]) {
	case etherARP:
		a, mac, ok = arpAnswer(body, own)
	case etherIPv6:
		a, mac, ok = advertisement(body, frame[6:12])
	}
	return a, mac, ok && !bytes.Equal(mac, own)
}

func arpAnswer(b []byte, own net.HardwareAddr) (a netip.Addr, mac net.HardwareAddr, ok bool) {
	reply := []byte{0, 1, 8, 0, 6, 4, 0, arpReply}
	if len(b) < 28 || !bytes.Equal(b[:8], reply) || !bytes.Equal(b[18:24], own) {
		return a, nil, false
	}
	return netip.AddrFrom4([4]byte(b[14:18])), bytes.Clone(b[8:14]), true
}

// advertisement reads a neighbour advertisement (RFC 4861, section 7.1.2). An answer to duplicate address detection
// goes to all nodes, so an unsolicited advertisement is read as an answer, too.
func advertisement(b []byte, sender net.HardwareAddr) (a netip.Addr, mac net.HardwareAddr, ok bool) {
	const hopLimit, start, size = 7, 40, 24
	if len(b) < start+size || b[6] != icmpv6 || b[hopLimit] != 255 || b[start] != advertise || b[start+1] != 0 {
		return a, nil, false
	}
	mac = bytes.Clone(sender)
	for options := b[start+size:]; len(options) >= 8; {
		length := int(options[1]) * 8
		if length == 0 || length > len(options) {
			return a, nil, false
		}
		if options[0] == targetMAC {
			mac = bytes.Clone(options[2:8])
		}
		options = options[length:]
	}
	return netip.AddrFrom16([16]byte(b[start+8 : start+size])), mac, true
}
