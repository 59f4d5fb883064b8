// Command report owns the last step of `make bench`: it makes docs/performance.md and its plots of what the
// measurements left in a folder. It measures nothing.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/ovn-multinet/ovn-multinet/e2e/bench"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: report RESULTS DOCS")
	}
	parts, err := bench.ReadParts(args[0])
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return fmt.Errorf("there are no results in %s", args[0])
	}
	return bench.WritePage(args[1], parts)
}
