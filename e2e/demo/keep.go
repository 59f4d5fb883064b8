package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// keptEnv marks the process that keeps the lab up in the background.
const keptEnv = "OVN_MULTINET_DEMO_KEPT"

// The files of a kept lab, in the cache folder.
const (
	pidFile  = "demo.pid" // of the process to end
	logFile  = "demo.log"
	keptLine = "The lab stays up."
)

// startKept starts the tour in a session of its own and prints what it prints, until the lab is to be left alone.
func startKept() error {
	if pid, err := keptPID(); err == nil {
		return fmt.Errorf("a lab is up already (pid %d): take it down with `make demo-down`", pid)
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(cache, logFile))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(self, "-keep")
	cmd.Env = append(os.Environ(), keptEnv+"=1")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(cache, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return follow(filepath.Join(cache, logFile), ended)
}

// follow prints a growing file until the line that says that the lab stays, or the end of its writer.
func follow(path string, ended <-chan error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var text strings.Builder
	for over := false; ; {
		n, err := io.Copy(io.MultiWriter(os.Stdout, &text), f)
		if err != nil {
			return err
		}
		if _, rest, ok := strings.Cut(text.String(), keptLine); ok && strings.HasSuffix(rest, "\n\n") {
			return nil
		}
		if over && n == 0 {
			return errors.New("the lab did not stay up")
		}
		select {
		case <-ended:
			over = true
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tellKept says how to look inside.
func (d *demo) tellKept() {
	fmt.Printf(`%s Look inside, as root:

  make demo-shell                  a shell in the lab; there:
    ip netns                         nodes and pods
    ip netns exec %s ip addr
    ovn-nbctl --db=unix:%s show
    ls %s

  make demo-down                   take it down

`, keptLine, filepath.Base(d.all[0].NetNS), d.NBSocket(), d.Nodes[0].Dir)
}

// keptPID is the process that keeps a lab up: the recorded one, if it still is this program.
func keptPID() (int, error) {
	cache, err := lab.CacheDir()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(cache, pidFile))
	if err != nil {
		return 0, errors.New("no lab is up")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, err
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !strings.Contains(string(environ), keptEnv+"=1") {
		return 0, errors.New("no lab is up")
	}
	return pid, nil
}

// openShell runs a shell in the namespaces of the lab's own program: a grandchild of the process that is recorded,
// which is outside.
func openShell() error {
	pid, err := keptPID()
	if err != nil {
		return err
	}
	for range 2 {
		if pid, err = childOf(pid); err != nil {
			return err
		}
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	args := []string{"nsenter", "--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--", "bash"}
	return syscall.Exec(nsenter, args, os.Environ())
}

// childOf returns the first child of any thread of a process.
func childOf(pid int) (int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if first := strings.Fields(string(text)); err == nil && len(first) > 0 {
			return strconv.Atoi(first[0])
		}
	}
	return 0, errors.New("the lab is just coming up or going down, try again")
}

// takeDown ends the process that keeps the lab up, and with it the lab.
func takeDown() error {
	pid, err := keptPID()
	if err != nil {
		fmt.Println("No lab is up.")
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = lab.Eventually(ctx, func() error {
		if _, err := keptPID(); err == nil {
			return fmt.Errorf("the lab (pid %d) is still up", pid)
		}
		return nil
	})
	if err != nil {
		return err
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return err
	}
	fmt.Println("The lab is down, nothing is left.")
	return errors.Join(os.Remove(filepath.Join(cache, pidFile)), os.Remove(filepath.Join(cache, logFile)))
}
