package ovnrun

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
)

// TestHandOver: a leader that is stopped as planned names the next one. Nobody waits for the election timer.
func TestHandOver(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.node("a"), w.node("b"), w.node("c")
	w.members(false, "a=1")
	w.start(a)
	w.wantRaft(a)
	w.members(true, "a=1", "b=2", "c=3")
	w.start(b)
	w.start(c)
	all := []*node{a, b, c}
	leader := w.wantRaft(all...)
	w.wantTimer(testTimer, all...)
	w.end(leader)
	w.eventually("a leader by hand-over", func() error {
		said := ""
		for _, n := range all {
			if n == leader {
				continue
			}
			text, err := unixctl.Call(t.Context(), n.control(), "cluster/status", NB.Database)
			if err != nil {
				return err
			}
			if strings.Contains(text, "Role: leader") && strings.Contains(text, "reason: leadership_transfer") {
				return nil
			}
			said += text
		}
		return fmt.Errorf("no such leader: %s", said)
	})
}
