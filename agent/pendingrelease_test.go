package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
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

// A pending release stays until NB has committed: without its file, nothing would release these ports.
func TestPendingReleaseStaysUntilItIsCommitted(t *testing.T) {
	l := newLooked(t)
	l.must(l.agent.journal.PrepareReleases())
	l.lease(owner("c1", "web", "u-1"), "net1")
	file := filepath.Join(l.conf.StateDir, journal.ReleaseDir, "c1@eth0")
	l.must(os.WriteFile(file, nil, 0o600)) // a release by owner
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan struct{})
	l.proxy.Before(func(ovndbtest.Transact) { cancel(); <-over })
	l.agent.releases.pass(ctx)
	close(over)
	l.proxy.Before(nil)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("after a pass that NB did not answer: %v, want the file", err)
	}
	l.agent.releases.pass(t.Context())
	l.wantPorts(map[string]string{})
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a pass that NB answered: %v, want no file", err)
	}
}
