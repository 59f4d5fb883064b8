// Command nodeinit is the first process of a node: in namespaces that are new it sets the node's file system up, tells
// that it is done, and reaps orphans until SIGTERM. It may not write outside the folder it is given.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/dsnet/try"
	"golang.org/x/sys/unix"
)

// node says how the node is to look.
type node struct {
	Hostname string
	Dir      string            // the node's own files; on a file system that overlayfs can write to
	Own      []string          // folders of the node that are its own from the start, each of Dir's "own"
	Binds    map[string]string // more folders of the node, and what of the machine they show
	ReadOnly []string          // folders of the node that may not be written to
	Files    map[string]string // files of the node that seem to have another content
	Ready    string            // file in the node that is made last
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "nodeinit:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	defer try.Handle(&err)
	if os.Getpid() != 1 || len(os.Args) != 2 {
		return errors.New("is not for people to run: wants a new PID namespace and a node in JSON")
	}
	var n node
	try.E(json.Unmarshal([]byte(os.Args[1]), &n))
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM)
	try.E(n.setUp())
	for s := range signals {
		if s == syscall.SIGTERM {
			return nil
		}
		reap()
	}
	return nil
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// machine is where the node sees the machine's files while it is set up.
const machine = "/.machine"

func (n *node) setUp() (err error) {
	defer try.Handle(&err)
	if err := unix.Sethostname([]byte(n.Hostname)); err != nil {
		return fmt.Errorf("set the hostname: %w", err)
	}
	try.E(n.enterRoot())
	steps := []func() error{n.mountKernel, n.mountOwn, n.mountBinds, n.mountReadOnly, n.mountFiles}
	for _, step := range steps {
		try.E(step())
	}
	if err := unix.Unmount(machine, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's files: %w", err)
	}
	// kubelet and containers pass mounts on to each other.
	try.E(mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""))
	return os.WriteFile(n.Ready, nil, 0o644)
}

// enterRoot makes the machine's root folder the lower layer of the node's: what the node writes stays in Dir.
func (n *node) enterRoot() (err error) {
	defer try.Handle(&err)
	try.E(mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
	upper, work, root := filepath.Join(n.Dir, "upper"), filepath.Join(n.Dir, "work"), filepath.Join(n.Dir, "root")
	for _, dir := range []string{upper + machine, work, root} {
		try.E(os.MkdirAll(dir, 0o755))
	}
	try.E(mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+upper+",workdir="+work))
	if err := unix.PivotRoot(root, root+machine); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return os.Chdir("/")
}

// mountKernel mounts what the kernel shows: processes and links are this node's, control groups the machine's.
func (n *node) mountKernel() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return errors.Join(
		mount("proc", "/proc", "proc", flags, ""),
		mount("sysfs", "/sys", "sysfs", flags, ""),
		mount(machine+"/sys/fs/cgroup", "/sys/fs/cgroup", "", unix.MS_BIND|unix.MS_REC, ""),
		mount(machine+"/dev", "/dev", "", unix.MS_BIND|unix.MS_REC, ""),
	)
}

func (n *node) mountOwn() error {
	for _, dir := range n.Own {
		if err := bind(filepath.Join(n.Dir, "own", dir), dir); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) mountBinds() error {
	for to, from := range n.Binds {
		if err := bind(from, to); err != nil {
			return err
		}
	}
	return nil
}

// bind shows a folder of the machine in the node; both are made if need be.
func bind(from, to string) error {
	from = filepath.Join(machine, from)
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

func (n *node) mountReadOnly() (err error) {
	defer try.Handle(&err)
	for _, dir := range n.ReadOnly {
		try.E(mount(dir, dir, "", unix.MS_BIND, ""))
		try.E(mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	}
	return nil
}

func (n *node) mountFiles() (err error) {
	defer try.Handle(&err)
	for path, content := range n.Files {
		from := filepath.Join(machine, n.Dir, "files", path)
		try.E(os.MkdirAll(filepath.Dir(from), 0o755))
		try.E(os.WriteFile(from, []byte(content+"\n"), 0o644))
		try.E(mount(from, path, "", unix.MS_BIND, ""))
	}
	return nil
}

func mount(from, to, kind string, flags uintptr, data string) error {
	if err := unix.Mount(from, to, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}
