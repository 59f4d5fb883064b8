// Package cniexec owns how a CNI plugin's program is run: in a process group and, where a limit is asked for, in
// control groups of its own, which end with the call, with the deadline and with an output that has a bound; it may
// not know what the program is asked or says.
package cniexec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxOutput bounds what a plugin may print: a result is a few kB.
	MaxOutput = 1 << 20
	// maxComplaint is what is kept of its standard error.
	maxComplaint = 4 << 10
	// afterDeath is how long the pipes of killed processes are waited for.
	afterDeath = time.Second
)

// Output is what a program printed.
type Output struct {
	Stdout, Stderr []byte
	Over           bool   // it printed more than MaxOutput, and was killed for it
	Limit          string // which of its Limits it reached, in words; "": none
	Unlimited      error  // why it ran without control groups, on a node that has controllers; an ErrNoGroup
}

// Run runs a program with its standard input. limits hold the program and all that it starts; nil: none. What the
// program leaves running is killed when the program ends: its process group and, where this node has them, its
// control groups. Run holds its thread: the kernel sends the program its parent-death signal when the thread ends
// that forked it. A program that did not start has no output: nil.
func Run(ctx context.Context, path string, stdin []byte, environ []string, limits *Limits) (*Output, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := &call{cmd: exec.CommandContext(ctx, path)}
	c.cmd.Env, c.cmd.Stdin = environ, bytes.NewReader(stdin)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.cmd.Cancel, c.cmd.WaitDelay = c.kill, afterDeath
	defer func() { c.groups.remove(ctx) }()
	stdout, stderr := &capped{limit: MaxOutput, full: func() { _ = c.kill() }}, &capped{limit: maxComplaint}
	copied, err := c.start(limits, stdout, stderr)
	if err != nil {
		return nil, err
	}
	err = c.wait()
	copied()
	out := &Output{Stdout: stdout.kept, Stderr: stderr.kept, Over: stdout.over, Unlimited: c.unlimited}
	if err != nil && limits != nil {
		out.Limit = c.groups.over(limits)
	}
	return out, err
}

// call is one run of a program.
type call struct {
	cmd     *exec.Cmd
	groups  groups
	outside atomic.Bool // this process is not in the groups
	// unlimited is why there are no groups although this node has controllers.
	unlimited error

	mu  sync.Mutex
	pid int // the program's process ID, and its process group's; 0: the ID is not the program's yet, or no more
}

// kill kills the program with all that it started, as far as that is in its groups.
func (c *call) kill() error {
	if c.outside.Load() {
		c.groups.kill()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == 0 {
		return os.ErrProcessDone
	}
	return syscall.Kill(-c.pid, syscall.SIGKILL)
}

// run starts the program. The lock has a kill that comes meanwhile wait for the process ID.
func (c *call) run() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.pid = c.cmd.Process.Pid
	return nil
}

// Hold this lock while this process is inside a call's groups. A concurrent call would fork into the wrong groups and
// record them as this process's own.
var forking sync.Mutex

// start forks the program in its control groups, with its limits from its first instruction on. copied waits until
// all that the program printed is copied; it is for after the program's end.
func (c *call) start(limits *Limits, stdout, stderr io.Writer) (copied func(), err error) {
	var ours, theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, r := range ours {
				r.Close()
			}
		}
	}()
	for _, file := range []*io.Writer{&c.cmd.Stdout, &c.cmd.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		*file, ours, theirs = w, append(ours, r), append(theirs, w)
	}
	if err := c.fork(limits); err != nil {
		return nil, err
	}
	// Copying begins after the fork, for too much output kills the program.
	var copies sync.WaitGroup
	for i, to := range []io.Writer{stdout, stderr} {
		copies.Go(func() {
			defer ours[i].Close()
			_, _ = io.Copy(to, ours[i])
		})
	}
	return func() {
		for _, r := range ours { // a process outside of all groups may have the other end
			_ = r.SetReadDeadline(time.Now().Add(afterDeath))
		}
		copies.Wait()
	}, nil
}

func (c *call) fork(limits *Limits) error {
	forking.Lock()
	defer forking.Unlock()
	if limits != nil {
		if c.groups, c.unlimited = newGroups(limits); c.unlimited != nil && !limits.Lenient {
			return c.unlimited
		}
		before := limits.Each.lend()
		defer before.restore()
	}
	leave, err := c.groups.join()
	if err != nil {
		c.groups = nil // this process may still be in one: the next call removes them
		return err
	}
	if err = c.run(); err == nil && limits != nil {
		limits.Each.keep(c.cmd.Process.Pid)
	}
	if leaveErr := leave(); leaveErr != nil { // killing the groups would kill this process
		c.groups = nil
		if err == nil {
			_ = c.kill()
			_ = c.reap()
		}
		return errors.Join(err, leaveErr)
	}
	c.outside.Store(true)
	return err
}

// wait waits for the program's end and kills what the program left running, before its process ID can be another's.
func (c *call) wait() error {
	for {
		err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = c.kill()
	return c.reap()
}

// reap takes the program's status from the kernel, which may then give the process ID to another process: nothing is
// killed by that ID from here on.
func (c *call) reap() error {
	c.mu.Lock()
	c.pid = 0
	c.mu.Unlock()
	return c.cmd.Wait()
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
