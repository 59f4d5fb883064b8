package delegate

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/node/cniexec"
)

// Who may not make control groups runs the tests' delegates without them.
func TestMain(m *testing.M) {
	if unix.Access("/sys/fs/cgroup", unix.W_OK) != nil {
		cniexec.DelegateLimits.Tasks, cniexec.DelegateLimits.Memory = 0, 0
	}
	os.Exit(m.Run())
}
