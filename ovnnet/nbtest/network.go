package nbtest

import (
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// BlueAccepted is the row key of what is accepted for shop/blue.
var BlueAccepted = ovndb.AcceptedKey("shop/blue")

// Accepted returns the row that says what is accepted for shop/blue, if only its own NAD is.
func Accepted(n *netmodel.Network) Fields {
	return AcceptedWith(n.Canonical(), "ovn-multinet/nad:shop/blue="+n.Revision()+" ")
}

// AcceptedWith returns the row that says what is accepted for shop/blue. nads are the pairs of external_ids of the
// accepted NADs, each with a space behind it.
func AcceptedWith(config, nads string) Fields {
	return Fields{"name": "ovn-multinet shop/blue accepted",
		"external_ids": "ovn-multinet/config=" + config + " ovn-multinet/kind=accepted " + nads +
			"ovn-multinet/network=shop/blue"}
}

// WantAccepted compares the row that says what is accepted for shop/blue.
func (w *World) WantAccepted(t *testing.T, want Fields) {
	t.Helper()
	if got := w.Rows(t)["Copp"][BlueAccepted]; got["name"] != want["name"] || got["external_ids"] != want["external_ids"] {
		t.Errorf("accepted %v,\nwant     %v", got, want)
	}
}

// KeyOf returns the row key of an address of shop/blue.
func KeyOf(address string) string { return ovndb.AddressKey("shop/blue", netip.MustParseAddr(address)) }

// Config4 is the accepted configuration of shop/blue with the keys Net4.
const Config4 = `{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/24",` +
	`"gateway":"10.1.0.1","portSecurity":true}`
