package nbtest

import (
	"net/netip"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// Localnet is a spec.config's keys of a network of that physical network, with a VLAN or more keys behind it.
func Localnet(physical, more string) string {
	return `"topology":"localnet","physicalNetworkName":"` + physical + `"` + more
}

// wireClaims are the rows that keep addresses of a wire off pods: the claimants are "network <id>" or "router <name>",
// in their order.
func BookClaims(book, claimants string, addresses ...string) map[string]Fields {
	ids := "ovn-multinet/address-book=" + book
	for _, who := range strings.Split(claimants, ",") {
		ids += " ovn-multinet/claimant:" + who + "=gateway"
	}
	rows := map[string]Fields{}
	for _, a := range addresses {
		rows[ovndb.AddressKey(book, netip.MustParseAddr(a))] = Fields{"name": "ovn-multinet " + book + " address " + a, "external_ids": ids}
	}
	return rows
}
