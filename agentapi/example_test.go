package agentapi_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// The host end of a pod's interface has a name of 15 characters at most, made from the container and the interface.
func ExampleHostVeth() {
	name := agentapi.HostVeth("4f1c0f5a7c4b", "net1")
	fmt.Println(name, len(name))
	// Output:
	// mna8dd68905307 14
}
