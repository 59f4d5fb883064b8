package delegateconf_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
)

func ExampleCheckAllowed() {
	allowed := []string{"bridge", "sriov"}
	fmt.Println(delegateconf.CheckAllowed("sriov", allowed))
	fmt.Println(delegateconf.CheckAllowed("macvlan", allowed))
	// Output:
	// <nil>
	// delegate "macvlan" is not allowed on this node
}
