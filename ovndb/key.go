package ovndb

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/uuid"
)

// Rows get their _uuid from us (ovsdb-server takes it since OVS 2.13): a UUID of version 8 (RFC 9562, section
// 5.8) whose upper 90 free bits are a hash of the domain and the network and whose lower 32 bits are the lease
// itself. Whoever wants the same address of the same network asks for the same primary key, and the database
// refuses the second.

// SwitchKey is the row key of a network's logical switch.
func SwitchKey(network string) string { return rowKey("switch", network, nil, hash32(network)) }

// RouterKey is the row key of a logical router.
func RouterKey(router string) string { return rowKey("router", router, nil, hash32(router)) }

// GatewayKey is the row key of a logical router's gateway.
func GatewayKey(router string) string { return rowKey("gateway", router, nil, hash32(router)) }

// PartKey is the row key of what a router or a network has one of: the part's name says what.
func PartKey(part, of string) string { return rowKey(part, of, nil, hash32(of)) }

// NodeKey is the row key of what a node says of itself.
func NodeKey(node string) string { return rowKey("node", node, nil, hash32(node)) }

// BlockKey is the row key of the claim on a node's share of a network's subnet.
func BlockKey(network string, block netip.Prefix) string {
	return rowKey("block", network, []byte(block.String()), hash32(block.String()))
}

// RouterPortKey is the row key of a network's port on a logical router; the switch's end of it has the key of the
// gateway's address.
func RouterPortKey(network string) string {
	return rowKey("router-port", network, nil, hash32(network))
}

// AddressKey is the row key of one address of a network: of the port that leases it or of the claim on it. An
// IPv4 address is the lower 32 bits as it stands; of an IPv6 address the upper 96 bits go into the hash.
func AddressKey(network string, a netip.Addr) string {
	b := a.AsSlice()
	low := len(b) - 4
	domain := "ipv4"
	if a.Is6() {
		domain = "ipv6"
	}
	return rowKey(domain, network, b[:low], binary.BigEndian.Uint32(b[low:]))
}

// MACKey is the row key of one MAC address of a network.
func MACKey(network string, mac net.HardwareAddr) string {
	return rowKey("mac", network, mac[:2], binary.BigEndian.Uint32(mac[2:6]))
}

// leaseMAC begins the MACs that are made from a lease; wideMAC those of an IPv6 lease that does not share its upper 96
// bits with its subnet: another lease may have the same lower 32, so such a MAC is claimed.
var (
	leaseMAC = []byte{0x0a, 0x58}
	wideMAC  = []byte{0x0a, 0x59}
)

// LeaseMAC is the MAC of a port whose lease is an address of the subnet. claimed says that the MAC has to be claimed
// beside it.
func LeaseMAC(subnet netip.Prefix, a netip.Addr) (mac net.HardwareAddr, claimed bool) {
	b := a.AsSlice()
	prefix := leaseMAC
	if a.Is6() && !bytes.Equal(b[:12], subnet.Addr().AsSlice()[:12]) {
		prefix, claimed = wideMAC, true
	}
	return slices.Concat(net.HardwareAddr(prefix), b[len(b)-4:]), claimed
}

// IsLeaseMAC tells whether a MAC has the form of one that is made from a lease and belongs to it alone.
func IsLeaseMAC(mac net.HardwareAddr) bool { return bytes.HasPrefix(mac, leaseMAC) }

// Low32MAC makes a MAC of that form from 32 bits.
func Low32MAC(low uint32) net.HardwareAddr {
	return binary.BigEndian.AppendUint32(slices.Clone(leaseMAC), low)
}

// Keys of external_ids that switches carry for those who use them: the network's configuration that is in force, in
// conf's canonical form, and for each NAD that is accepted, its revision. A port is only inserted while its NAD is.
const ConfigKey = "ovn-multinet/config"

// BlocksKey is of the switch of a node on a layer3 network: the node's blocks.
const BlocksKey = "ovn-multinet/blocks"

// AcceptedPrefix begins the key with a NAD's "<namespace>/<name>".
const AcceptedPrefix = "ovn-multinet/nad:"

func rowKey(domain, network string, upper []byte, low uint32) string {
	h := sha256.New()
	h.Write([]byte("ovn-multinet/" + domain + "\x00" + network + "\x00"))
	h.Write(upper)
	u := uuid.UUID(h.Sum(nil)[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	binary.BigEndian.PutUint32(u[12:], low)
	return u.String()
}

func hash32(s string) uint32 {
	sum := sha256.Sum256([]byte(s))
	return binary.BigEndian.Uint32(sum[:])
}
