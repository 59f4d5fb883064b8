// Package cniexec owns how a CNI plugin's program is run: in a process group of its own, which ends with us and with the deadline,
// and with an output that has a bound; it may not know what the program is asked or says.
package cniexec

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// MaxOutput bounds what a plugin may print: a result is a few kB.
	MaxOutput = 1 << 20
	// maxComplaint is what is kept of its standard error.
	maxComplaint = 4 << 10
	// afterDeath is how long a killed group's pipes are waited for.
	afterDeath = time.Second
)

// Output is what a program printed.
type Output struct {
	Stdout, Stderr []byte
	Over           bool // it printed more than MaxOutput, and was killed for it
}

// Run runs a program with its standard input. It holds its thread: the kernel sends the child its parent-death signal when the
// thread ends that forked it.
func Run(ctx context.Context, path string, stdin []byte, environ []string) (*Output, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path)
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stdout, stderr := &capped{limit: MaxOutput, full: func() { _ = kill() }}, &capped{limit: maxComplaint}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel, cmd.WaitDelay = kill, afterDeath
	err := cmd.Run()
	return &Output{Stdout: stdout.kept, Stderr: stderr.kept, Over: stdout.over}, err
}

// capped keeps the first bytes of what is written.
type capped struct {
	kept  []byte
	limit int
	over  bool
	full  func() // nil: what is over is dropped
}

func (c *capped) Write(b []byte) (int, error) {
	room := min(c.limit-len(c.kept), len(b))
	c.kept = append(c.kept, b[:room]...)
	if room < len(b) {
		c.over = true
		if c.full != nil {
			c.full()
		}
	}
	return len(b), nil
}
