// Command withovn owns another version of OVN for the tests: it runs a command where the programs and schemas of OVN and Open vSwitch are those of Debian 13, whatever
// release this machine has. It needs root for a mount namespace of its own, and changes nothing on the machine.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/trixie"
)

// version is the only one that there is beside the machine's.
const version = "25.03"

// packages that the programs are in.
var packages = []string{"openvswitch-common", "openvswitch-switch", "ovn-common", "ovn-central", "ovn-host"}

//go:embed main.go
var recipe embed.FS

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
	dir, err := trixie.Cached("ovn-"+version, recipe, prepare)
	if err != nil {
		return fmt.Errorf("fetch OVN %s: %w", version, err)
	}
	try.E(enter(trixie.Tree(filepath.Join(dir, "tree"))))
	try.E(os.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH")))
	program := try.E1(exec.LookPath(args[1]))
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, args[1:], os.Environ()))
}

// prepare fetches the packages and writes a script for each of their programs.
func prepare(dir string) (err error) {
	defer try.Handle(&err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tree := trixie.Tree(filepath.Join(dir, "tree"))
	fmt.Fprintf(os.Stderr, "withovn: fetching OVN %s, once\n", version)
	versions := try.E1(tree.Fetch(ctx, packages...))
	if all := strings.Join(versions, ", "); !strings.Contains(all, "ovn-host "+version+".") {
		return fmt.Errorf("another version is in Debian's trixie: %s", all)
	}
	bin := filepath.Join(dir, "bin")
	try.E(os.Mkdir(bin, 0o755))
	for _, pattern := range []string{"usr/bin/ov[ns]*", "usr/sbin/ov[ns]*", "usr/lib/openvswitch-switch/ovs-vswitchd"} {
		programs := try.E1(filepath.Glob(tree.Path(pattern)))
		for _, path := range programs {
			program := try.E1(filepath.Rel(string(tree), path))
			try.E(tree.WriteScript(filepath.Join(bin, filepath.Base(path)), program))
		}
	}
	return tree.Without("usr/share/doc", "usr/share/man", "usr/share/locale")
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
