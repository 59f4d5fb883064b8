package main

import (
	"fmt"
	"path/filepath"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// kept is the lab of `make demo KEEP=1`.
var kept = lab.Kept{Name: "demo", Args: []string{"-keep"}, Line: "The lab stays up."}

// tellKept says how to look inside.
func (d *demo) tellKept() {
	fmt.Printf(`%s Look inside, as root:

  make demo-shell                  a shell in the lab; there:
    ip netns                         nodes and pods
    ip netns exec %s ip addr
    ovn-nbctl --db=unix:%s show
    ls %s

  make demo-down                   take it down

`, kept.Line, filepath.Base(d.all[0].NetNS), d.NBSocket(), d.Nodes[0].Dir)
}
