package sriov_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/sriov"
)

// Of two virtual functions that kubelet gave to the pod, the second attachment asks for one by its address.
func ExampleChoose() {
	devices, err := sriov.Choose([]sriov.Request{
		{Interface: "net1", Network: "shop/fast", Resource: "example.com/vf"},
		{Interface: "net2", Network: "shop/fast", Resource: "example.com/vf", ID: "0000:01:00.2"},
	}, map[string][]string{"example.com/vf": {"0000:01:00.2", "0000:01:00.3"}}, sriov.Allocated{})
	fmt.Println(devices, err)
	// Output:
	// [0000:01:00.3 0000:01:00.2] <nil>
}
