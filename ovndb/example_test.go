package ovndb_test

import (
	"fmt"
	"net/netip"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// Two nodes that lease one address of an address book make the same row key. Another address, or the same address of
// another address book, has another key.
func ExampleAddressKey() {
	a, b := netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("10.1.0.8")
	fmt.Println(ovndb.AddressKey("shop/blue", a))
	fmt.Println(ovndb.AddressKey("shop/blue", b))
	fmt.Println(ovndb.AddressKey("shop/red", a))
	// Output:
	// e9d87121-d98d-8d2a-bc9a-631d9116d53a
	// 99ae47db-d98d-8d2a-bc9a-631d9116d53a
	// c6f4536e-c828-8b07-aaeb-40f6364ad99c
}
