package delegate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// executor runs delegates' binaries for libcni: only those that the operator allows, each in a process group of its
// own that ends with us and with the deadline.
type executor struct {
	version.PluginDecoder
	allowed []string
	// list is the configuration whose plugins are run, prev the result that they are given instead of libcni's; nil:
	// libcni's.
	list *conflist
	prev json.RawMessage
}

const (
	// maxOutput bounds what a delegate may print: a result is a few kB.
	maxOutput = 1 << 20
	// maxComplaint is what is kept of its standard error.
	maxComplaint = 4 << 10
	// busyTries bounds how often a binary is tried again that is being written just now.
	busyTries = 5
	busyPause = 100 * time.Millisecond
	// afterDeath is how long a killed group's pipes are waited for.
	afterDeath = time.Second
)

// FindInPath is the last look at a plugin's type before it is run.
func (e *executor) FindInPath(plugin string, paths []string) (string, error) {
	if err := conf.CheckAllowed(plugin, e.allowed); err != nil {
		return "", err
	}
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", conf.Errorf(conf.CodeDelegateFailed, "install the plugin on this node, in the runtime's folder of CNI plugins", "delegate %s: %w", plugin, err)
	}
	return path, nil
}

// ExecPlugin runs a binary with the configuration on its standard input.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdin, err := e.list.request(stdin, e.prev)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	for try := 1; ; try++ {
		stdout, stderr := &capped{limit: maxOutput}, &capped{limit: maxComplaint}
		err := run(ctx, path, stdin, environ, stdout, stderr)
		switch {
		case errors.Is(err, syscall.ETXTBSY) && try < busyTries:
			select {
			case <-ctx.Done(): // the next try says so
			case <-time.After(busyPause):
			}
			continue
		case ctx.Err() != nil:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "it and all that it started were killed", "delegate %s: %w", name, context.Cause(ctx))
		case stdout.over:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "a CNI result is a few kB of JSON", "delegate %s: it printed more than %d bytes", name, maxOutput)
		case err != nil:
			return nil, complaint(name, err, stdout.kept, stderr.kept)
		}
		return stdout.kept, nil
	}
}

// run holds its thread: the kernel sends the child its parent-death signal when the thread ends that forked it.
func run(ctx context.Context, path string, stdin []byte, environ []string, stdout, stderr *capped) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = kill, afterDeath
	stdout.full = func() { _ = kill() }
	return cmd.Run()
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

// complaint is a delegate's own error, with its own code if it has one (CNI specification, section 5, "Error").
func complaint(name string, err error, stdout, stderr []byte) error {
	var own types.Error
	if json.Unmarshal(stdout, &own) == nil && (own.Code != 0 || own.Msg != "") {
		code := own.Code
		if code == 0 || code == types.ErrInternal { // what skel makes of an error without a code
			code = conf.CodeDelegateFailed
		}
		return conf.Errorf(code, cmp.Or(own.Details, "it said no more"), "delegate %s: %s", name, oneLine(own.Msg))
	}
	said := oneLine(string(stderr))
	if said == "" {
		said = oneLine(string(stdout))
	}
	if said == "" {
		return conf.Errorf(conf.CodeDelegateFailed, "it said nothing", "delegate %s: %w", name, err)
	}
	return conf.Errorf(conf.CodeDelegateFailed, err.Error(), "delegate %s: %s", name, said)
}

// oneLine keeps of a delegate's words what fits into an Event.
func oneLine(s string) string {
	s = string(bytes.Join(bytes.Fields([]byte(s)), []byte(" ")))
	return s[:min(len(s), 512)]
}
