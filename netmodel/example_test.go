package netmodel_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// A spec.config becomes a network with all defaults. Texts that describe the same network have the same revision.
func ExampleParseNetwork() {
	short, err := netmodel.ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/24"}`))
	if err != nil {
		fmt.Println(err)
	}
	long, err := netmodel.ParseNetwork("shop", "blue",
		[]byte(`{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/24"}`))
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(short.ID(), short.Canonical())
	fmt.Println(short.Revision() == long.Revision())

	_, err = netmodel.ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/33"}`))
	fmt.Println(err)
	// Output:
	// shop/blue {"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/24","gateway":"10.1.0.1","portSecurity":true}
	// true
	// network shop/blue: subnets: "10.1.0.0/33" is not a network like 10.1.0.0/16
}
