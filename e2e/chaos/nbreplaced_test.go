//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestNBReplaced empties NB, and restores an older backup of it, under running pods. Nobody helps: networks and ports come
// back by themselves, with the same addresses. No pod starts meanwhile: it could get the address of a pod whose port is not
// back yet (docs/operations.md, "Rows that a database lost").
func TestNBReplaced(t *testing.T) {
	for _, c := range []struct {
		name   string
		backup bool
	}{{"NB emptied", false}, {"NB restored from an older backup", true}} {
		t.Run(c.name, func(t *testing.T) {
			s := newPodLoad(t, lab.Options{})
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
			row.Lost, row.Residue = s.comesBack()
			row.Stall = time.Since(replaced)
			s.begin("after")
			s.step()
			s.step()
			s.stop()
			report(t, s.finish(row))
		})
	}
}

// comesBack waits until NB has what the pods have, and counts what is different in the end.
func (s *podLoad) comesBack() (lost, residue int) {
	nb := ovndbtest.AttachNB(s.T, s.NBSocket())
	var words []string
	ctx, cancel := context.WithTimeout(s.Ctx, patience)
	defer cancel()
	if err := lab.Eventually(ctx, func() error {
		if lost, residue, words = s.compare(nb); len(words) > 0 {
			return errors.New(strings.Join(words, "\n"))
		}
		return nil
	}); err != nil {
		s.T.Errorf("NB does not have what the pods have: %v", err)
	}
	return lost, residue
}
