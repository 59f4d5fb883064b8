package ovnrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
)

// logArgs have a daemon log to its standard error alone.
var logArgs = []string{"-vconsole:info", "-vsyslog:off", "-vfile:off"}

// child is a running daemon, which writes its log to this process's standard error.
type child struct {
	cmd   *exec.Cmd
	ended chan error
}

// start starts a daemon of the image. The arguments may change what it logs. The kernel ends the daemon with this
// process.
func start(args ...string) (*child, error) {
	c := &child{exec.Command(args[0], slices.Concat(logArgs, args[1:])...), make(chan error, 1)}
	c.cmd.Stdout, c.cmd.Stderr = os.Stderr, os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { c.ended <- c.cmd.Wait() }()
	return c, nil
}

// endedError is the error of a daemon that ended by itself. kubelet starts the container again.
func endedError(name string, err error) error {
	if err == nil {
		return fmt.Errorf("%s has ended by itself", name)
	}
	return fmt.Errorf("%s has ended by itself: %w", name, err)
}

// endPatience is the time that a daemon has after SIGTERM.
const endPatience = 8 * time.Second

// end ends the daemon.
func (c *child) end() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(endPatience):
	}
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-c.ended
	return nil
}

// exit ends the daemon by its control socket; if that fails, as end does.
func (c *child) exit(control string) error {
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	if _, err := unixctl.Call(ctx, control, "exit"); err == nil {
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
		}
	}
	return c.end()
}

// tool runs a program to its end.
func tool(ctx context.Context, name string, args ...string) error {
	_, err := output(ctx, name, args...)
	return err
}

// output is tool with what the program prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var stdout bytes.Buffer
	err := copied(ctx, &stdout, name, args...)
	return stdout.String(), err
}

// copied is tool with a writer for what the program prints.
func copied(ctx context.Context, out io.Writer, name string, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}
