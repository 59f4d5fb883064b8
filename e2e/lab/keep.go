package lab

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

	"github.com/dsnet/try"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// keptEnv marks the process that keeps a lab up in the background, by its name.
const keptEnv = "OVN_MULTINET_KEPT"

// keptPatience is how long a kept lab has to go down.
const keptPatience = 20 * time.Second

// Kept is a lab that stays up in the background between commands.
type Kept struct {
	Name string   // of its files in the cache folder
	Args []string // with which the program brings the lab up
	// Line is what the program prints when the lab is up; what it says until the next empty line and one more is
	// printed too.
	Line string
}

// Is reports whether this process is the one in the background.
func (k Kept) Is() bool { return os.Getenv(keptEnv) == k.Name }

// Start starts the program once more, in a session of its own, and prints what it prints until the lab is to be left
// alone.
func (k Kept) Start() (err error) {
	defer try.Handle(&err)
	if pid, err := k.PID(); err == nil {
		return fmt.Errorf("one is up already (pid %d): take it down first", pid)
	}
	pidFile, logFile := try.E2(k.files())
	self := try.E1(os.Executable())
	out := try.E1(os.Create(logFile))
	defer out.Close()
	cmd := exec.Command(self, k.Args...)
	cmd.Env = append(os.Environ(), keptEnv+"="+k.Name)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	try.E(cmd.Start())
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return k.follow(logFile, ended)
}

func (k Kept) files() (pid, log string, err error) {
	cache, err := buildcache.Dir()
	return filepath.Join(cache, k.Name+".pid"), filepath.Join(cache, k.Name+".log"), err
}

// follow prints a growing file until the line that says that the lab stays, or the end of its writer.
func (k Kept) follow(path string, ended <-chan error) (err error) {
	defer try.Handle(&err)
	f := try.E1(os.Open(path))
	defer f.Close()
	var text strings.Builder
	for over := false; ; {
		n := try.E1(io.Copy(io.MultiWriter(os.Stdout, &text), f))
		if _, rest, ok := strings.Cut(text.String(), k.Line); ok && strings.HasSuffix(rest, "\n\n") {
			return nil
		}
		if over && n == 0 {
			return errors.New("it did not stay up")
		}
		select {
		case <-ended:
			over = true
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var errNotKept = errors.New("none is up")

// PID is the process that keeps the lab up: the recorded one, if it still is this program.
func (k Kept) PID() (_ int, err error) {
	defer try.Handle(&err)
	pidFile, _ := try.E2(k.files())
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, errNotKept
	}
	pid := try.E1(strconv.Atoi(strings.TrimSpace(string(text))))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !strings.Contains(string(environ), keptEnv+"="+k.Name+"\x00") {
		return 0, errNotKept
	}
	return pid, nil
}

// Exec replaces this process by a command, with env before its environment, in the namespaces of the lab's own
// program. The working directory stays the caller's, also where the lab has another folder mounted over it.
func (k Kept) Exec(env []string, command ...string) error {
	pid, err := k.Inside()
	if err != nil {
		return err
	}
	// nsenter opens the folder before it enters.
	args := []string{"nsenter", "--wd=.", "--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--"}
	return Exec(env, append(args, command...)...)
}

// Exec replaces this process by a command, with env before its environment.
func Exec(env []string, command ...string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, command, append(env, os.Environ()...))
}

// Inside is the process ID of the lab's own program.
func (k Kept) Inside() (int, error) {
	pid, err := k.PID()
	if err != nil {
		return 0, err
	}
	return Inside(pid)
}

// Inside returns the process in a lab's namespaces that belongs to a process outside of them which called [Enter]: its
// grandchild.
func Inside(outer int) (pid int, err error) {
	pid = outer
	for range 2 {
		if pid, err = childOf(pid); err != nil {
			return 0, err
		}
	}
	return pid, nil
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

// Down ends the process that keeps the lab up, and with it the lab. Without one it does nothing.
func (k Kept) Down() (err error) {
	defer try.Handle(&err)
	pid, err := k.PID()
	if err != nil {
		fmt.Println("No lab is up.")
		return nil
	}
	try.E(syscall.Kill(pid, syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(context.Background(), keptPatience)
	defer cancel()
	try.E(Eventually(ctx, func() error {
		if _, err := k.PID(); err == nil {
			return fmt.Errorf("the lab (pid %d) is still up", pid)
		}
		return nil
	}))
	pidFile, logFile := try.E2(k.files())
	fmt.Println("The lab is down, nothing is left.")
	return errors.Join(os.Remove(pidFile), os.Remove(logFile))
}
