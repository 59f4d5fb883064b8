// Package cniexec owns how the program of a CNI plugin is run: in its own process group and, if the call has limits,
// in its own control groups; until the end of the call or the deadline; and with a limit for its output. It may not
// know what the program is asked or what it answers.
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
	// MaxOutput is the most that a plugin may print, in bytes: a result is a few kB.
	MaxOutput = 1 << 20
	// maxComplaint is how much of the plugin's standard error is kept, in bytes.
	maxComplaint = 4 << 10
	// afterDeath is how long to wait for the pipes of killed processes.
	afterDeath = time.Second
)

// Output is what a program printed.
type Output struct {
	Stdout, Stderr []byte
	Over           bool   // the program printed more than MaxOutput, so it was killed
	Limit          string // the limit that the program reached, in words; "": none
	Unlimited      error  // why it ran without control groups on a node that has controllers; an ErrNoGroup
}

// Run runs a program with its standard input. limits bound the program and all that it starts; nil: there are none.
// When the program ends, Run kills what is still running in its process group and, if this node has them, in its
// control groups. Run locks its thread: the kernel sends the program its parent-death signal when the thread that
// forked it ends. The output of a program that did not start is nil.
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
	// unlimited is why the call has no groups although this node has controllers.
	unlimited error

	mu  sync.Mutex
	pid int // the ID of the program's process and process group; 0: it has not started, or was reaped
}

// kill kills the program and all that it started, except for processes that are not in its groups any more.
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

// run starts the program. The lock makes a concurrent kill wait for the process ID.
func (c *call) run() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.pid = c.cmd.Process.Pid
	return nil
}

// Hold this lock while this process is in the groups of a call. A concurrent call would fork into the wrong groups,
// and would take them for this process's own groups.
var forking sync.Mutex

// start forks the program in its control groups. Its limits apply from its first instruction on. Call copied after
// the end of the program: it waits until the whole output of the program is copied.
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
	// Copying begins after the fork, because too much output kills the program.
	var copies sync.WaitGroup
	for i, to := range []io.Writer{stdout, stderr} {
		copies.Go(func() {
			defer ours[i].Close()
			_, _ = io.Copy(to, ours[i])
		})
	}
	return func() {
		for _, r := range ours { // a process outside all groups may still have the other end open
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
	goBack, err := c.groups.join()
	if err != nil {
		c.groups = nil // this process may still be in one of them; the next call removes them
		return err
	}
	if err = c.run(); err == nil && limits != nil {
		limits.Each.keep(c.cmd.Process.Pid)
	}
	if returnErr := goBack(); returnErr != nil { // killing the groups would kill this process
		c.groups = nil
		if err == nil {
			_ = c.kill()
			_ = c.reap()
		}
		return errors.Join(err, returnErr)
	}
	c.outside.Store(true)
	return err
}

// wait waits for the end of the program and kills what is still running in its groups, before the kernel may give its
// process ID to another process.
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

// reap takes the program's status from the kernel. The kernel may then give the process ID to another process, so
// reap first clears the ID: nothing is killed by it any more.
func (c *call) reap() error {
	c.mu.Lock()
	c.pid = 0
	c.mu.Unlock()
	return c.cmd.Wait()
}

// capped keeps the first bytes that are written to it.
type capped struct {
	kept  []byte
	limit int
	over  bool
	full  func() // is called when more is written; nil: the rest is ignored
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
