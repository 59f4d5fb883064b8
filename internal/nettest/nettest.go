// Package nettest owns how a test gets networks of its own; it is for tests alone.
package nettest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// testEnv names the test that is run in namespaces of its own.
const testEnv = "OVN_MULTINET_NETTEST"

// InOwn runs a test again in a user, a network and a mount namespace of its own, where it may make links and mount file
// systems; true: here it is.
func InOwn(t *testing.T) bool {
	t.Helper()
	if os.Getenv(testEnv) == t.Name() {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), testEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	runtime.LockOSThread() // whose end is the child's
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// Namespace returns the path of a new network namespace, which ends with the test. It needs no privileges, but to enter it
// does: InOwn has them. A process keeps the namespace, so no plugin may be called at the same time: while the plugin is
// forked, this program is in the control group that ends with the call.
func Namespace(t *testing.T) (path string) {
	t.Helper()
	cmd := exec.Command("cat") // which ends with its input
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET}
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
}
