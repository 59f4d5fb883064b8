package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// markEnv tells a copy of the program which of the three it is: unset, the outer process; roleInit, the first
// process of the new PID namespace; roleInside, the program proper.
const (
	markEnv    = "OVN_MULTINET_LAB"
	roleInit   = "init"
	roleInside = "inside"
)

// inside is true in the process that may make labs.
var inside bool

// An EnterOption changes how [Main] and [Enter] prepare the program.
type EnterOption func(*enterOptions)

type enterOptions struct {
	build   BuildOptions
	network bool // stay in the machine's network namespace
	prepare []func(context.Context) (finish func() error, err error)
}

// WithoutOurs leaves the project's own binaries unbuilt: for programs that use [Options.PrimaryOnly].
func WithoutOurs() EnterOption {
	return func(o *enterOptions) { o.build.WithoutOurs = true }
}

// WithMachineNetwork leaves the program in the network namespace that it is started in: for [Options.NodeHere].
func WithMachineNetwork() EnterOption {
	return func(o *enterOptions) { o.network = true }
}

// Around has prepare called in the outer process, before the inner one is started, and what it returns, if
// anything, after the inner one has ended. Environment variables that prepare sets are the inner process's too.
func Around(prepare func(context.Context) (finish func() error, err error)) EnterOption {
	return func(o *enterOptions) { o.prepare = append(o.prepare, prepare) }
}

// Main is the body of a TestMain: it runs the tests inside the lab's namespaces and exits with their code.
// The tests' binaries are built before, where the network is still the machine's.
func Main(m interface{ Run() int }, opts ...EnterOption) {
	if slices.ContainsFunc(os.Args[1:], func(a string) bool {
		return strings.HasPrefix(strings.TrimLeft(a, "-"), "test.list")
	}) {
		os.Exit(m.Run())
	}
	Enter(opts...)
	os.Exit(m.Run())
}

// Enter returns at once in the process that is inside the lab's namespaces. In any other it starts that
// process with the same arguments and standard streams, waits for it and exits with its code. The inner
// process has a process group of its own: it is sent the signals of the outer one, and cannot read from a
// terminal.
func Enter(opts ...EnterOption) {
	switch os.Getenv(markEnv) {
	case roleInit:
		os.Exit(runInit())
	case roleInside:
		// What this process starts is not inside by inheritance: it may want a lab of its own.
		os.Unsetenv(markEnv)
		inside = true
	}
	if inside {
		return
	}
	var o enterOptions
	for _, opt := range opts {
		opt(&o)
	}
	code, err := runOuter(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runOuter(o enterOptions) (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("needs root, to make network, mount and PID namespaces; run it with sudo")
	}
	bins, err := Build(context.Background(), o.build)
	if err != nil {
		return 0, err
	}
	for _, prepare := range o.prepare {
		finish, err := prepare(context.Background())
		if err != nil {
			return 0, err
		}
		if finish != nil {
			defer func() { err = errors.Join(err, finish()) }()
		}
	}
	// The parent-death signal fires when the thread that forked ends, not the process: keep this one.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), markEnv+"="+roleInit, binEnv+"="+bins.Ours, cniEnv+"="+bins.CNI)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true,
	}
	if o.network {
		cmd.SysProcAttr.Cloneflags &^= syscall.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("enter new namespaces: %w", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// exitCode is the shell's: a signal counts as 128 and its number.
func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
