package ovnrun

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// A daemon that another program has started on the node is noticed by the lock on its pid file; one that has ended is
// not in the way.
func TestAnotherDaemonRuns(t *testing.T) {
	w := newWorld(t)
	h := w.host()
	dir := h.RunDir
	file, pid := h.file(), filepath.Join(dir, "ovsdb-server.pid")
	w.must(unused(pid))
	cmd := exec.Command(ovndbtest.Need(t, "ovsdb-server"), file, "--no-chdir", "--pidfile="+pid,
		"--unixctl="+filepath.Join(dir, "ctl"), "-vconsole:off", "-vsyslog:off")
	w.must(cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	w.eventually("the server's lock", func() error {
		if err := unused(pid); err == nil || !strings.HasPrefix(err.Error(), "ovsdb-server already runs on this node") {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	err := h.RunOVSDB(t.Context())
	if err == nil || !strings.Contains(err.Error(), "install with ovn.enabled=false to use it") {
		t.Errorf("error %v", err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := h.Remove(ended, ovndbtest.TempDir(t)); err == nil || !strings.HasPrefix(err.Error(), "ovsdb-server already runs") {
		t.Errorf("the removal of a database that another daemon has: error %v", err)
	}
	other := *h
	other.DBDir, other.Log = ovndbtest.TempDir(t), slog.New(slog.DiscardHandler)
	w.must(other.Remove(ended, other.DBDir)) // nothing on this node is ours
	w.must(cmd.Process.Kill())
	_ = cmd.Wait() // killed
	w.must(unused(pid))
}
