package deviceinfo_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

func ExampleValidate() {
	fmt.Println(deviceinfo.Validate([]byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.2"}}`)))
	fmt.Println(deviceinfo.Validate([]byte(`{"version":"1.1.0"}`)))
	// Output:
	// <nil>
	// type: "" is none of pci, vdpa, vhost-user, memif
}
