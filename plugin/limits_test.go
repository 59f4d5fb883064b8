package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/cniexec"
)

// Who may not make control groups runs the tests' delegates without them.
func TestMain(m *testing.M) {
	if unix.Access("/sys/fs/cgroup", unix.W_OK) != nil {
		cniexec.DelegateLimits.Tasks, cniexec.DelegateLimits.Memory = 0, 0
	}
	os.Exit(m.Run())
}

// Where a control group cannot be made, an ADD fails: it would run without limits. A DEL goes on, and the log says so.
func TestBoundaryWithoutAControlGroup(t *testing.T) {
	if cniexec.DelegateLimits.Tasks == 0 {
		t.Skip("needs root, and control groups that can be made here")
	}
	before := cniexec.DelegateLimits
	t.Cleanup(func() { cniexec.DelegateLimits = before })
	n := newNode(t)
	n.call.conf.LogFile = filepath.Join(t.TempDir(), "log")
	e := n.attachments("c1", of(`{"type":"alpha"}`, ""))
	n.must(n.call.runner().Add(t.Context(), e))
	cniexec.DelegateLimits.Tasks = -1 // which the kernel refuses
	fails := n.attachments("c2", of(`{"type":"alpha"}`, ""))
	err := n.call.runner().Add(t.Context(), fails)
	wantError(t, err, conf.CodeDelegateFailed, "delegate alpha: no control group can be made for its limits")
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has several lines: %q", err)
	}
	if left, _, err := n.call.runner().Del(t.Context(), e); err != nil || len(left) > 0 {
		t.Errorf("DEL without a control group: %v, left %v", err, left)
	}
	log, err := os.ReadFile(n.call.conf.LogFile)
	n.must(err)
	if got := strings.Count(string(log), "no control group can be made for its limits"); got != 1 {
		t.Errorf("the log says %d times that a DEL ran without limits, want once:\n%s", got, log)
	}
}
