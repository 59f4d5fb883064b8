// Command withovn owns another version of OVN for the tests: it runs a command where the programs and schemas of OVN and Open vSwitch are those of Debian 13, whatever
// release this machine has. It needs root for a mount namespace of its own, and changes nothing on the machine.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// version is the only one that there is beside the machine's.
const version = trixie.OVNVersion

func main() {
	err := run(os.Args[1:])
	fmt.Fprintln(os.Stderr, "withovn:", err)
	os.Exit(1)
}

// run does not come back when the command was started.
func run(args []string) (err error) {
	defer try.Handle(&err)
	if len(args) < 2 || args[0] != version {
		return fmt.Errorf("usage: withovn %s COMMAND [ARGUMENTS]", version)
	}
	tree, bin := try.E2(trixie.OVN())
	try.E(enter(tree))
	try.E(os.Setenv("PATH", bin+":"+os.Getenv("PATH")))
	program := try.E1(exec.LookPath(args[1]))
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, args[1:], os.Environ()))
}

// enter puts the tree's schemas where the machine has its own, for this process and its children.
func enter(tree trixie.Tree) error {
	runtime.LockOSThread() // the command is started by this thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace (this needs root): %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts from the machine: %w", err)
	}
	var errs []error
	for _, name := range []string{"usr/share/ovn", "usr/share/openvswitch"} {
		if err := unix.Mount(tree.Path(name), "/"+name, "", unix.MS_BIND, ""); err != nil {
			errs = append(errs, fmt.Errorf("mount %s over /%s: %w", tree.Path(name), name, err))
		}
	}
	return errors.Join(errs...)
}
