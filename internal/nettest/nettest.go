// Package nettest owns the network namespaces of tests; only tests import it.
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

// testEnv names the test that runs in new namespaces.
const testEnv = "OVN_MULTINET_NETTEST"

// InOwn runs the test again in a new user, network and mount namespace, where the test may make links and mount file
// systems. It returns true in these namespaces.
func InOwn(t *testing.T) bool {
	t.Helper()
	if os.Getenv(testEnv) == t.Name() {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), testEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	runtime.LockOSThread() // Pdeathsig: the child ends with this thread
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// Namespace returns the path of a new network namespace, which ends with the test. Only a test under InOwn can enter
// the namespace. A child process keeps the namespace alive. Do not call a CNI plugin at the same time: while the plugin
// is forked, this process is in the control group that is killed after the call.
func Namespace(t *testing.T) (path string) {
	t.Helper()
	cmd := exec.Command("cat") // ends when its input is closed
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
