// Command ovn-multinet is the CNI plugin, chained after the primary network's plugins.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
	"github.com/ovn-multinet/ovn-multinet/plugin"
)

func main() {
	// A runtime passes no arguments (CNI specification, section 2).
	if slices.Equal(os.Args[1:], []string{"--version"}) {
		fmt.Println("ovn-multinet version", version.String())
		return
	}
	os.Exit(plugin.Main())
}
