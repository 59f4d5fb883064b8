//go:build sriov

package scenarios

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestClockJumps sets the guest's wall clock, as an operator or NTP does: an hour forward, and back. Pods that run
// keep what they have, pods start and end, and a DEL that came before a jump is finished after it. An NB that hangs
// when the clock is set back once more is noticed.
func TestClockJumps(t *testing.T) {
	w := newWorld(t)
	defer w.jump(0)()
	stays := w.Attached(0, "stays", "blue,green")
	has, pid := fmt.Sprint(w.Links(stays)), w.Nodes[0].Agent.Pid()
	for _, c := range []struct {
		name string
		by   time.Duration
	}{{"forward", time.Hour}, {"back", -time.Hour}} {
		before, pending := w.Attached(1, c.name+"-before", "blue"), w.Attached(1, c.name+"-pending", "blue,green")
		failed := w.Pod(0, c.name+"-failed", "absent")
		if err := w.TryAdd(failed); err == nil {
			t.Errorf("%s has a network that does not exist", failed)
		}
		w.Must(w.NB.Stop(w.Ctx))
		w.End(pending)
		w.jump(c.by)
		w.Must(w.NB.Restart(w.Ctx))
		w.End(before, failed)
		w.NAD("absent", `{"type":"ovn-multinet","subnets":"10.9.0.0/24"}`)
		after := w.Pod(0, c.name+"-after", "absent,blue")
		w.AddInTheEnd(after)
		w.MustReach(after, w.Links(stays)["net1"].IPs()...)
		w.End(after)
		w.Must(w.RemoveManifest("absent.yaml"))
	}
	w.hangingNBIsNoticed(w.Nodes[0].Agent, w.Nodes[1].Agent, w.Controller)
	equal(t, "interfaces of the pod that runs", fmt.Sprint(w.Links(stays)), has)
	equal(t, "process of the agent", w.Nodes[0].Agent.Pid(), pid)
	w.Must(stays.Check(w.Ctx))
	w.Over(stays)
}

// jump sets the wall clock forward or back. The returned function sets the clock to what it would be without any jump
// since.
func (w *world) jump(by time.Duration) (undo func()) {
	began := time.Now() // its monotonic reading does not jump
	set := func(to time.Time) {
		spec := unix.NsecToTimespec(to.UnixNano())
		w.Must(unix.ClockSettime(unix.CLOCK_REALTIME, &spec))
	}
	set(began.Add(by))
	return func() { set(began.Add(time.Since(began))) }
}

// hangingNBIsNoticed sets the clock back and pauses NB, until these have left their connections. No answer of NB comes
// after the jump: such an answer would tell when the next probe is due.
func (w *world) hangingNBIsNoticed(all ...*lab.Process) {
	ended := func(p *lab.Process) int {
		log, err := os.ReadFile(p.LogPath())
		w.Must(err)
		return strings.Count(string(log), "the connection ended")
	}
	var before []int
	for _, p := range all {
		before = append(before, ended(p))
	}
	w.jump(-time.Hour)
	w.Must(w.NB.Pause())
	defer func() { w.Must(w.NB.Resume()) }()
	w.Eventually(func() error {
		var errs []error
		for i, p := range all {
			if ended(p) == before[i] {
				errs = append(errs, fmt.Errorf("%s waits for an NB that does not answer", p.Name))
			}
		}
		return errors.Join(errs...)
	})
}
