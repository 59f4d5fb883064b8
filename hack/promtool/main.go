// Command promtool prints the path of Prometheus' promtool, and fetches the program if it is missing. `make setup` runs
// it.
package main

import (
	"fmt"
	"os"

	"github.com/ovn-multinet/ovn-multinet/images/promtool"
)

func main() {
	path, err := promtool.Path()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
