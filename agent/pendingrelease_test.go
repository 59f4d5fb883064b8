package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/journal"
)

// A pending release that an ADD of the same sandbox has finished does not release the ports that this ADD has made.
func TestPendingReleaseIsReadUnderTheLock(t *testing.T) {
	l := newLooked(t)
	l.must(l.agent.journal.PrepareReleases())
	file := filepath.Join(l.conf.StateDir, journal.ReleaseDir, "c1@eth0")
	l.must(os.WriteFile(file, nil, 0o600)) // a release by owner
	unlock, err := l.agent.sandboxes.take(t.Context(), "c1")
	l.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.agent.releases.pass(t.Context())
	}()
	l.eventually("waiting for the sandbox", func() bool { return l.agent.sandboxes.usersOf("c1") == 2 })
	l.must(os.Remove(file))
	l.lease(owner("c1", "web", "u-1"), "net1")
	unlock()
	<-done
	l.wantPorts(map[string]string{"shop/web/net1": "c1"})
}
