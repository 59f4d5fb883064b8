package ovnnet_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

func ExampleIsShared() {
	fmt.Println(ovnnet.IsShared("shop/blue"), ovnnet.IsShared("tenant-blue"))
	// Output:
	// false true
}
