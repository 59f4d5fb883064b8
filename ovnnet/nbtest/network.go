package nbtest

import (
	"net/netip"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// KeyOf returns the row key of an address of shop/blue.
func KeyOf(address string) string { return ovndb.AddressKey("shop/blue", netip.MustParseAddr(address)) }

// Config4 is the accepted configuration of shop/blue with the keys Net4.
const Config4 = `{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/24",` +
	`"gateway":"10.1.0.1","portSecurity":true}`
