//go:build chaos

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestNBReplaced empties NB, and restores an older backup of it, under running pods. Nobody helps: networks and ports
// come back by themselves, with the same addresses. No pod starts meanwhile: it could get the address of a pod whose
// port is not back yet (docs/operations.md, "Rows that a database lost").
func TestNBReplaced(t *testing.T) {
	s := newPodLoad(t, lab.Options{})
	for _, c := range []struct {
		name   string
		backup bool
	}{{"NB restored from an older backup", true}, {"NB emptied", false}} {
		s.begin("before")
		s.step()
		var content []byte
		if c.backup {
			content = s.Read(s.NBFile())
		}
		s.step() // the backup has pods that end, and lacks pods that start
		s.step()
		s.stop()
		row := Row{Fault: fmt.Sprintf("%s, under %d pods", c.name, len(s.live))}
		replaced := time.Now()
		s.RestoreNB(content)
		row.Lost, row.Residue = s.comesBack(s.nb)
		row.Stall = time.Since(replaced)
		s.begin("after")
		s.step()
		s.step()
		s.stop()
		report(t, s.finish(row))
	}
}
