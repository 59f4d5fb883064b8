// Command ovn-multinet is the CNI plugin, the last in the node's conflist.
package main

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-multinet/ovn-multinet/delegate"
)

func main() {
	plugin := &delegate.Plugin{Stdout: os.Stdout}
	versions := version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")
	err := skel.PluginMainFuncsWithError(plugin.Funcs(), versions, "ovn-multinet: further interfaces for pods, on OVN networks")
	if err == nil {
		return
	}
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintln(os.Stderr, printErr)
	}
	os.Exit(1)
}
