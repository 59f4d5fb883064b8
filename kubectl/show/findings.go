package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
)

// namedNodes is the number of nodes that a line names.
const namedNodes = 3

// Findings writes a line for each finding: level, name of the check, cause, and what to do.
func Findings(w io.Writer, all []check.Finding) error {
	for i := range all {
		f := &all[i]
		line := f.What + ": "
		if n := len(f.Nodes); n > namedNodes {
			line += fmt.Sprintf("%d nodes (%s, …): ", n, strings.Join(f.Nodes[:namedNodes], ", "))
		} else if n > 0 {
			line += strings.Join(f.Nodes, ", ") + ": "
		}
		line += f.Cause
		if f.Fix != "" {
			line += ": " + f.Fix
		}
		if err := printf(w, "%-7s  %s\n", f.Level, line); err != nil {
			return err
		}
	}
	return nil
}

// Status writes a verdict and the findings behind it.
func Status(w io.Writer, s *check.Status) error {
	if _, err := fmt.Fprintln(w, s.Verdict); err != nil {
		return err
	}
	return Findings(w, s.Checks)
}
