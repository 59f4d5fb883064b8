package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// runDir holds the folders of all labs; it is on the private /run.
const runDir = "/run/ovn-multinet"

// runInit is the first process of the PID namespace: it sets the private world up, starts the program, reaps
// orphans and ends with the program. A process of its own does it, as reaping every child would steal exit
// codes from the program's own os/exec.
func runInit() int {
	if os.Getpid() != 1 {
		fmt.Fprintf(os.Stderr, "lab: %s=%s is not for people to set\n", markEnv, roleInit)
		return 1
	}
	if err := privateWorld(); err != nil {
		fmt.Fprintln(os.Stderr, "lab: set up the private world:", err)
		return 1
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	os.Setenv(markEnv, roleInside)
	os.Setenv("TMPDIR", runDir+"/tmp")
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab: start the program:", err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(pid, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		switch ended, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Fprintln(os.Stderr, "lab: wait for the program:", err)
			return 1
		case ended == pid:
			return exitCode(status)
		}
	}
}

func privateWorld() (err error) {
	defer try.Handle(&err)
	// Nothing that is mounted here may show outside.
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib/cni"} {
		try.E(mountPrivate(dir))
	}
	for _, dir := range []string{runDir + "/tmp", netnsDir} {
		try.E(os.MkdirAll(dir, 0o755))
	}
	if err := unix.Sethostname([]byte("ovn-multinet-lab")); err != nil {
		return fmt.Errorf("set the hostname: %w", err)
	}
	lo := try.E1(netlink.LinkByName("lo"))
	return netlink.LinkSetUp(lo)
}

// mountPrivate puts an empty tmpfs on dir. A dir that the machine does not have must not be made there: its
// parent is covered instead, by a tmpfs with everything that was in it bound back.
func mountPrivate(dir string) error {
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := coverFolder(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return err
	}
	return mountTmpfs(dir)
}

func mountTmpfs(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	return nil
}

func coverFolder(dir string) (err error) {
	defer try.Handle(&err)
	entries := try.E1(os.ReadDir(dir))
	old, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(old)
	try.E(mountTmpfs(dir))
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		from, to := fmt.Sprintf("/proc/self/fd/%d/%s", old, e.Name()), filepath.Join(dir, e.Name())
		try.E(os.Mkdir(to, 0o755))
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s back: %w", to, err)
		}
	}
	return nil
}
