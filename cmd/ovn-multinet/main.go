// Command ovn-multinet is the CNI plugin, chained after the primary network's.
package main

import (
	"os"

	"github.com/ovn-multinet/ovn-multinet/delegate"
)

func main() { os.Exit(delegate.Main()) }
