package ovndb

import (
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/google/uuid"
)

// Rows get their _uuid from us (ovsdb-server takes it since OVS 2.13): a UUID of version 8 (RFC 9562, section
// 5.8) whose upper 90 free bits are a hash of the domain and the network and whose lower 32 bits are the lease
// itself. Whoever wants the same address of the same network asks for the same primary key, and the database
// refuses the second.

// SwitchKey is the row key of a network's logical switch.
func SwitchKey(network string) string { return rowKey("switch", network, nil, hash32(network)) }

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

// Low32 returns the lower 32 bits of a row key: the lease.
func Low32(key string) (uint32, error) {
	u, err := uuid.Parse(key)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(u[12:]), nil
}

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
