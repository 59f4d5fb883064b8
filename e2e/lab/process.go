package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dsnet/try"
)

// stopPatience is how long a process has to end after SIGTERM when the context sets no bound.
const stopPatience = time.Minute

// A Process runs in a network namespace, in the foreground, with a log file of its own. It can be started
// again after it ended; the log is continued.
type Process struct {
	Name string

	netns string
	args  []string
	env   []string // beside the program's own
	log   string
	ready func(context.Context) error // nil: ready once started
	fork  func(*exec.Cmd) error       // nil: in netns
	// fault is the end of the line in the log with which the program aborts by a known fault of its own. Then it is
	// started again at once, as a monitor does on real machines. "": it has no such fault.
	fault string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	err  error         // how it ended
	// faults counts the ends by fault. stopped: the lab does not want it to run.
	faults  int
	stopped bool
}

// start runs the process and returns when it is ready. One that is not is killed.
func (p *Process) start(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	if p.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, defaultPatience)
	defer cancel()
	var ended error
	err := Eventually(ctx, func() error {
		select {
		case <-p.ended():
			ended = fmt.Errorf("it ended: %w", p.exitErr())
			return nil
		default:
			return p.ready(ctx)
		}
	})
	if err = errors.Join(ended, err); err != nil {
		_ = p.Kill()
		return fmt.Errorf("start %s: %w\n%s", p.Name, err, p.LastLines(20))
	}
	return nil
}

func (p *Process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = false
	return p.launchLocked()
}

func (p *Process) launchLocked() (err error) {
	defer try.Handle(&err)
	if p.running() {
		return errors.New("it runs already")
	}
	log := try.E1(os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644))
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A signal to the program's group is the program's to handle: it ends its processes in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	fork := p.fork
	if fork == nil {
		fork = func(cmd *exec.Cmd) error { return startIn(p.netns, cmd) }
	}
	try.E(fork(cmd))
	done := make(chan struct{})
	p.cmd, p.done, p.err = cmd, done, nil
	go func() {
		err := cmd.Wait()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		fault := p.fault != "" && status.Signal() == syscall.SIGABRT && strings.Contains(p.LastLines(1), p.fault)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = err
		close(done)
		if fault && !p.stopped {
			p.faults++
			_ = p.launchLocked() // if it fails, a test that needs the program says so
		}
	}()
	return nil
}

// Faults is how often the process has ended by a known fault of its own, and was started again.
func (p *Process) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Running reports whether the process has been started and has not ended.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// stopping notes that the process is not to be started again, and reports whether it runs.
func (p *Process) stopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	return p.running()
}

// Pid is the process's id, also after its end; 0 before its first start.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// LogPath is the file with what the process wrote to its standard streams.
func (p *Process) LogPath() string { return p.log }

// LastLines returns the end of the log.
func (p *Process) LastLines(n int) string { return lastLines(p.log, n) }

func (p *Process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

func (p *Process) exitErr() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// Wait returns when the process has ended, with os/exec's error of its end.
func (p *Process) Wait(ctx context.Context) error {
	done := p.ended()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for %s to end: %w", p.Name, context.Cause(ctx))
	}
}

// Stop ends the process with SIGTERM, and with SIGKILL when it has not ended after 5 s or when ctx ends; the
// latter is an error. A process that does not run is fine.
func (p *Process) Stop(ctx context.Context) error {
	if !p.stopping() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	_ = p.signal(syscall.SIGTERM)
	_ = p.signal(syscall.SIGCONT)
	select {
	case <-p.ended():
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not end by SIGTERM: %w", p.Name, context.Cause(ctx)), p.Kill())
	}
}

// Kill ends the process with SIGKILL and waits for its end. A process that does not run is fine.
func (p *Process) Kill() error {
	if !p.stopping() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended()
	return nil
}

// Pause stops the process with SIGSTOP; to its clients it looks like a machine that does not answer.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return fmt.Errorf("signal %s: it was never started", p.Name)
	}
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, p.Name, err)
	}
	return nil
}

// Restart stops the process if it runs, starts it again with the same command line and waits until it is
// ready.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.start(ctx)
}

// accepts is a readiness check: someone listens on the unix socket.
func accepts(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// runIn runs a command to its end in a network namespace, "" for the program's own, and returns what it
// wrote.
func runIn(netns string, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &out
	}
	start := cmd.Start
	if netns != "" {
		start = func() error { return startIn(netns, cmd) }
	}
	if err := start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// tool runs one of OVS's or OVN's command line clients and returns its standard output, trimmed.
func tool(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
		return strings.TrimSpace(stdout.String()), err
	}
	return strings.TrimSpace(stdout.String()), nil
}

func lastLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 32 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
