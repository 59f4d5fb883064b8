package ovnport

import (
	"net/netip"
	"strings"
)

// guestLinkLocal are the link-local addresses that a guest of a virtual machine may use beside that of its MAC, as
// prefixes: all but those of MACs that begin with 0a:58 or 0a:59. Guests make theirs by RFC 7217, from no MAC. Port
// security would drop their router solicitations, DHCPv6 and neighbour discovery. Our routers and pods have MACs of
// that form, and link-local addresses that are made from these (RFC 4291, appendix A): nobody else may claim one.
var guestLinkLocal = strings.Join(linkLocalWithout(netip.MustParsePrefix("fe80::858:0:0:0/79")), " ")

// linkLocalWithout returns the prefixes that have all addresses of fe80::/64 but those of reserved.
func linkLocalWithout(reserved netip.Prefix) (prefixes []string) {
	for bits := 65; bits <= reserved.Bits(); bits++ {
		address := reserved.Addr().As16()
		address[(bits-1)/8] ^= 0x80 >> ((bits - 1) % 8)
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom16(address), bits).Masked().String())
	}
	return prefixes
}
