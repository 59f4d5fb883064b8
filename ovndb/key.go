package ovndb

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Rows get their _uuid from us (ovsdb-server takes it since OVS 2.13): a UUID of version 8 (RFC 9562, section
// 5.8). Its first 32 bits are the lease, mixed; the other 90 free bits are a hash of the domain and the address book.
// Two pods that want the same address of one address book ask for the same primary key, and the database refuses the
// second. The lease is in the first 32 bits because Open vSwitch's C library takes these bits alone as the hash of a
// UUID (uuid_hash in lib/uuid.h): keys that share them share one bucket in ovsdb-server, ovn-northd and ovn-controller.

// SwitchKey is the row key of a network's logical switch.
func SwitchKey(network string) string { return rowKey("switch", network, nil, 0) }

// RouterKey is the row key of a logical router.
func RouterKey(router string) string { return rowKey("router", router, nil, 0) }

// GatewayKey is the row key of a logical router's gateway.
func GatewayKey(router string) string { return rowKey("gateway", router, nil, 0) }

// PartKey is the row key of what a router or a network has one of: the part's name says what.
func PartKey(part, of string) string { return rowKey(part, of, nil, 0) }

// NodeKey is the row key of what a node says of itself.
func NodeKey(node string) string { return rowKey("node", node, nil, 0) }

// BlockKey is the row key of the claim on a node's share of a network's subnet.
func BlockKey(network string, block netip.Prefix) string {
	return rowKey("block", network, []byte(block.String()), 0)
}

// RouterPortKey is the row key of a network's port on a logical router; the switch's end of it has the key of the
// gateway's address.
func RouterPortKey(network string) string {
	return rowKey("router-port", network, nil, 0)
}

// AddressKey is the row key of one address of an address book (see netmodel.Network.AddressBook): of the port that leases
// the address, or of the claim on it. Of an IPv6 address the upper 96 bits go into the hash.
func AddressKey(book string, a netip.Addr) string {
	b := a.AsSlice()
	low := len(b) - 4
	domain := "ipv4"
	if a.Is6() {
		domain = "ipv6"
	}
	return rowKey(domain, book, b[:low], binary.BigEndian.Uint32(b[low:]))
}

// MACKey is the row key of one MAC address of an address book.
func MACKey(book string, mac net.HardwareAddr) string {
	return rowKey("mac", book, mac[:2], binary.BigEndian.Uint32(mac[2:6]))
}

// leaseMAC begins the MACs that end with the lower 32 bits of a lease; wideMAC those that end with a hash of an IPv6
// lease, because another lease may have the same lower 32 bits: it does not share its upper 96 bits with its subnet.
// Two hashes may be alike, so such a MAC is claimed. On a wire, which networks with different subnets may share,
// leaseMAC is of IPv4 leases alone.
var (
	leaseMAC = []byte{0x0a, 0x58}
	wideMAC  = []byte{0x0a, 0x59}
)

// LeaseMAC is the MAC of a port whose lease is an address of the subnet; of a port on a wire the subnet is the zero
// Prefix. claimed says that the MAC has to be claimed beside the address.
func LeaseMAC(subnet netip.Prefix, a netip.Addr) (mac net.HardwareAddr, claimed bool) {
	b := a.AsSlice()
	if a.Is6() && !(subnet.IsValid() && bytes.Equal(b[:12], subnet.Addr().AsSlice()[:12])) {
		sum := sha256.Sum256(b)
		return slices.Concat(net.HardwareAddr(wideMAC), sum[:4]), true
	}
	return slices.Concat(net.HardwareAddr(leaseMAC), b[len(b)-4:]), false
}

// IsLeaseMAC tells whether a MAC has the form of one that is made from a lease and belongs to it alone.
func IsLeaseMAC(mac net.HardwareAddr) bool { return bytes.HasPrefix(mac, leaseMAC) }

// Low32MAC makes a MAC of that form from 32 bits; wide: of the form that has to be claimed.
func Low32MAC(low uint32, wide bool) net.HardwareAddr {
	prefix := leaseMAC
	if wide {
		prefix = wideMAC
	}
	return binary.BigEndian.AppendUint32(slices.Clone(prefix), low)
}

// Keys of external_ids that switches carry for those who use them: the network's configuration that is in force, in
// conf's canonical form, and for each NAD that is accepted, its revision. A port is only inserted while its NAD is.
const ConfigKey = "ovn-multinet/config"

// BlocksKey is of the switch of a node on a layer3 network: the node's blocks.
const BlocksKey = "ovn-multinet/blocks"

// BookKey is of the switches and claims on a wire: its address book, in which other networks have addresses too.
const BookKey = "ovn-multinet/address-book"

// ClaimantPrefix begins the keys of a claim that several may share (the address of a provider's router, say): behind it
// is who claims the address, "network <id>" or "router <name>".
const ClaimantPrefix = "ovn-multinet/claimant:"

// Claimants lists who claims an address together, in words; "" for a claim that is a port's.
func Claimants(externalIDs map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(externalIDs)) {
		if who, ok := strings.CutPrefix(key, ClaimantPrefix); ok {
			words = append(words, who+" (gateway)")
		}
	}
	return strings.Join(words, " and ")
}

// AcceptedPrefix begins the key with a NAD's "<namespace>/<name>".
const AcceptedPrefix = "ovn-multinet/nad:"

// rowKey makes a key of 122 hashed bits. The lease goes into the first 32 of them by operations that can be undone, so
// no two leases with one domain, book and upper part have one key.
func rowKey(domain, book string, upper []byte, lease uint32) string {
	h := sha256.New()
	h.Write([]byte("ovn-multinet/" + domain + "\x00" + book + "\x00"))
	h.Write(upper)
	u := uuid.UUID(h.Sum(nil)[:16])
	binary.BigEndian.PutUint32(u[:], binary.BigEndian.Uint32(u[:])^mix(lease))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// mix is a permutation of the 32-bit numbers (the finalizer of MurmurHash3): each of its steps can be undone, and
// neighbours come out far apart, in the low bits too, which choose the bucket.
func mix(x uint32) uint32 {
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}
