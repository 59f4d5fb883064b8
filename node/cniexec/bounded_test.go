package cniexec

import (
	"cmp"
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
	"testing"
	"time"
)

// few are limits that a test reaches soon.
var few = Limits{Tasks: 40, Memory: 64 << 20, Each: DelegateLimits.Each}

var path = []string{"PATH=/usr/bin:/bin"}

// script writes a program of a few lines of shell, and returns its path.
func script(t *testing.T, lines string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+lines+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not so: " + what)
		}
	}
}

// pids reads the process IDs that a script wrote, a line each.
func pids(t *testing.T, file string) (found []int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, pid)
	}
	return found
}

// running reports whether a process is there and is no zombie.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// ours are the control groups of calls, below any hierarchy.
func ours(t *testing.T) (found []string) {
	t.Helper()
	for _, depth := range []string{"", "*/"} {
		dirs, err := filepath.Glob("/sys/fs/cgroup/" + depth + groupsName + "/" + groupPrefix + "*")
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// hasGroups skips a test where there are no control groups to limit tasks and memory: what has no end must not start.
func hasGroups(t *testing.T) {
	t.Helper()
	made, err := newGroups(&few)
	made.remove(t.Context())
	if !made.limit("pids") || !made.limit("memory") {
		t.Skip("needs root, and control groups for pids and memory that can be made here: ", err)
	}
}

// TestBoundaryProcessesEndWithTheCall: a process that left its group, its session and its parent ends with the
// program that started it, and with the context.
func TestBoundaryProcessesEndWithTheCall(t *testing.T) {
	hasGroups(t)
	for _, tt := range []struct{ name, then string }{{"the program ends", "exit 0"}, {"the context ends", "sleep 1000"}} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pids")
			program := script(t, `(setsid sh -c 'echo $$ > `+file+`.new; mv `+file+`.new `+file+`; exec sleep 1000' &)
				while ! test -e `+file+`; do sleep 0.01; done
				`+tt.then)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := Run(ctx, program, nil, path, &few)
				done <- err
			}()
			eventually(t, "the program's child has left its session", func() bool { _, err := os.Stat(file); return err == nil })
			if tt.then != "exit 0" {
				cancel()
			}
			select {
			case err := <-done:
				if (err == nil) != (tt.then == "exit 0") {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the call does not return")
			}
			for _, pid := range pids(t, file) {
				if running(pid) {
					t.Errorf("process %d is still there", pid)
				}
			}
		})
	}
	if left := ours(t); len(left) > 0 {
		t.Errorf("control groups are left: %q", left)
	}
}

// TestBoundaryForkBomb: a program that starts itself, twice as often each time, ends at the limit with all of it.
// It ends by itself too when nothing stops it.
func TestBoundaryForkBomb(t *testing.T) {
	hasGroups(t)
	file := filepath.Join(t.TempDir(), "pids")
	program := script(t, `echo $$ >> `+file+`; export DEPTH=$((DEPTH+1)); test $DEPTH -gt 9 && exit 1; "$0" & "$0" & wait; exit 1`)
	out, err := Run(t.Context(), program, nil, path, &few)
	if err == nil || out == nil || out.Limit != "40 processes and threads" {
		t.Errorf("%+v, %v; want the limit of 40 processes and threads", out, err)
	}
	started := pids(t, file)
	t.Attr("boundary.processes-of-a-fork-bomb", strconv.Itoa(len(started)))
	if len(started) < 10 {
		t.Errorf("%d processes are no bomb", len(started))
	}
	for _, pid := range started {
		if running(pid) && strings.Contains(commandLine(pid), program) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if left := ours(t); len(left) > 0 {
		t.Errorf("control groups are left: %q", left)
	}
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(text)
}

// TestBoundaryMemory: all that a program starts has one limit together.
func TestBoundaryMemory(t *testing.T) {
	hasGroups(t)
	// tail keeps the one line, of which there is no end.
	program := script(t, `tail -n 1 < /dev/zero & tail -n 1 < /dev/zero & wait $! || exit 1`)
	out, err := Run(t.Context(), program, nil, path, &few)
	if err == nil || out == nil || out.Limit != "64 MiB of memory" {
		t.Errorf("%+v, %v; want the limit of 64 MiB of memory", out, err)
	}
}

// TestBoundaryEachProcess: a program has its limits from its first instruction on, and soon cannot raise them.
func TestBoundaryEachProcess(t *testing.T) {
	limits := Limits{} // without control groups, which need root
	limits.Each = Rlimits{Data: 512 << 20, CPU: 7, FileSize: 4 << 20, Files: 64}
	out, err := Run(t.Context(), script(t, `for l in c d t f; do echo $l $(ulimit -S -$l); done
		for l in n f t d c; do until test $(ulimit -H -$l) = $(ulimit -S -$l); do sleep 0.01; done; done; ulimit -n`), nil, path, &limits)
	const want = "c 0\nd 524288\nt 7\nf 8192\n64\n"
	if err != nil || string(out.Stdout) != want {
		t.Errorf("%v, %s\nwant %s", err, out.Stdout, want)
	}
	big := filepath.Join(t.TempDir(), "big")
	if out, err := Run(t.Context(), script(t, `exec head -c 8388608 /dev/zero > `+big), nil, path, &limits); err == nil {
		t.Errorf("a file beyond the limit is no error: %+v", out)
	}
	if info, err := os.Stat(big); err != nil || info.Size() != 4<<20 {
		t.Errorf("%v, %v; want a file of 4 MiB", info, err)
	}
}

// TestBoundaryProgramsAreRun: what a program says and how it ends come through, as without limits.
func TestBoundaryProgramsAreRun(t *testing.T) {
	hasGroups(t)
	out, err := Run(t.Context(), script(t, `cat; echo "$A" >&2; tr '\0' ' ' < /proc/$$/cmdline; env | wc -l; exit 3`), []byte("in "),
		append([]string{"A=b c"}, path...), &few)
	if err == nil || err.Error() != "exit status 3" || !strings.HasPrefix(string(out.Stdout), "in ") || string(out.Stderr) != "b c\n" || out.Limit != "" {
		t.Errorf("%v, %+v", err, out)
	}
	if _, err := Run(t.Context(), script(t, `kill -9 $$`), nil, path, &few); err == nil || err.Error() != "signal: killed" {
		t.Errorf("%v, want signal: killed", err)
	}
	if _, err := Run(t.Context(), filepath.Join(t.TempDir(), "none"), nil, path, &few); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v, want ENOENT", err)
	}
	busy := script(t, "exit 0")
	f, err := os.OpenFile(busy, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Run(t.Context(), busy, nil, path, &few); !errors.Is(err, syscall.ETXTBSY) {
		t.Errorf("%v, want ETXTBSY", err)
	}
	if out, err := Run(t.Context(), script(t, `while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done`), nil, path, &few); out == nil || !out.Over || len(out.Stdout) != MaxOutput {
		t.Errorf("%v: a program that prints without end", err)
	}
}

// TestKillOutsideOfTheProgramsLife: neither before the program is started nor after its end has the call a process to
// kill: the process ID may be another's by then.
func TestKillOutsideOfTheProgramsLife(t *testing.T) {
	c := &call{cmd: exec.Command(script(t, "exit 0"))}
	if err := c.kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("before the start: %v, want %v", err, os.ErrProcessDone)
	}
	copied, err := c.start(nil, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.pid != c.cmd.Process.Pid {
		t.Errorf("a kill would be for process %d, want %d", c.pid, c.cmd.Process.Pid)
	}
	if err := c.wait(); err != nil {
		t.Error(err)
	}
	copied()
	if err := c.kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the end: %v, want %v", err, os.ErrProcessDone)
	}
}

const callerEnv = "CNIEXEC_TEST_PROGRAM"

// TestCaller is a process of TestBoundaryKilledCaller.
func TestCaller(t *testing.T) {
	if program := os.Getenv(callerEnv); program != "" {
		_, _ = Run(context.Background(), program, nil, path, &few)
	}
}

// TestBoundaryKilledCaller: a caller that is killed takes the program with it; what left the program's process
// group ends with the next call, and so do the control groups.
func TestBoundaryKilledCaller(t *testing.T) {
	hasGroups(t)
	dir := t.TempDir()
	own, left := filepath.Join(dir, "own"), filepath.Join(dir, "left")
	program := script(t, `(setsid sh -c 'echo $$ > `+left+`.new; mv `+left+`.new `+left+`; exec sleep 1000' &)
		while ! test -e `+left+`; do sleep 0.01; done
		echo $$ > `+own+`.new; mv `+own+`.new `+own+`; exec sleep 1000`)
	caller := exec.Command("/proc/self/exe", "-test.run=^TestCaller$")
	caller.Env = append(os.Environ(), callerEnv+"="+program, groupsEnv+"="+groupsName)
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two processes run", func() bool { _, err := os.Stat(own); return err == nil })
	if err := caller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = caller.Wait()
	gone := func(file string) {
		t.Helper()
		for _, pid := range pids(t, file) {
			eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !running(pid) })
		}
	}
	gone(own)
	swept(t, nil)
	gone(left)
}

// groupsEnv has the process of TestCaller use the folder of control groups of the test that started it.
const groupsEnv = "CNIEXEC_TEST_GROUPS"

// The tests have a folder of control groups of their own: plugins run on the machine at the same time.
func TestMain(m *testing.M) {
	groupsName = cmp.Or(os.Getenv(groupsEnv), fmt.Sprint("ovn-multinet-test-", os.Getpid()))
	os.Exit(m.Run())
}
