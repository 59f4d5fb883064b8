package conf

import (
	"net"
	"net/netip"
)

// LinkLocal is the link-local address of a pod's interface: it has the modified EUI-64 of the MAC (RFC 4291, appendix
// A). OVN's port security lets no other one through.
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	b := [16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]}
	return netip.AddrFrom16(b)
}
