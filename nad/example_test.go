package nad_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/nad"
)

// The networks annotation of a pod in namespace shop, whose first interface is eth0.
func ExampleParseRequests() {
	requests, err := nad.ParseRequests(map[string]string{"k8s.v1.cni.cncf.io/networks": "blue, lab/red@uplink, blue"}, "shop", "eth0")
	if err != nil {
		fmt.Println(err)
	}
	for i := range requests {
		fmt.Println(requests[i].Interface, requests[i].String())
	}
	// Output:
	// net1 shop/blue
	// uplink lab/red
	// net3 shop/blue
}
