package nbtest

import (
	"net/netip"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// Localnet returns the keys of a localnet network on a physical network. more has further keys, and begins with a
// comma.
func Localnet(physical, more string) string {
	return `"topology":"localnet","physicalNetworkName":"` + physical + `"` + more
}

// BookClaims returns the rows of claims on addresses in an address book. The claimants are "network <id>" or
// "router <name>", in order and separated by commas.
func BookClaims(book, claimants string, addresses ...string) map[string]Fields {
	ids := "ovn-multinet/address-book=" + book
	for _, who := range strings.Split(claimants, ",") {
		ids += " ovn-multinet/claimant:" + who + "=gateway"
	}
	rows := map[string]Fields{}
	for _, a := range addresses {
		rows[ovndb.AddressKey(book, netip.MustParseAddr(a))] = Fields{
			"name": "ovn-multinet " + book + " address " + a, "external_ids": ids,
		}
	}
	return rows
}
