package lab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dsnet/try"
)

// holdEnv has the test binary keep a lab up until it is killed, instead of running tests.
const holdEnv = "OVN_MULTINET_LAB_TEST_HOLD"

func holdLab() error {
	Enter(WithoutOurs())
	ctx := context.Background()
	l, err := New(ctx, Options{PrimaryOnly: true})
	if err != nil {
		return err
	}
	p, err := l.Nodes[0].NewPod(ctx, "default", "p", nil)
	if err != nil {
		return err
	}
	if _, err := p.Start(ctx, "sleep", "1000"); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

func TestEndOfOneEndsAll(t *testing.T) {
	for _, test := range []struct {
		name string
		// victim is given the processes of the lab's world in the order of their start.
		victim func(outer int, started []int) int
		signal syscall.Signal
	}{
		{"kill the outer", func(outer int, _ []int) int { return outer }, syscall.SIGKILL},
		{"terminate the outer", func(outer int, _ []int) int { return outer }, syscall.SIGTERM},
		{"interrupt the outer", func(outer int, _ []int) int { return outer }, syscall.SIGINT},
		{"kill the init", func(_ int, started []int) int { return started[0] }, syscall.SIGKILL},
		{"kill the program", func(_ int, started []int) int { return started[1] }, syscall.SIGKILL},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := worldOf(t)
			cmd := hold(t)
			started := descendants(t, cmd.Process.Pid)
			if len(started) < 8 {
				t.Fatalf("the held lab has only %d processes", len(started))
			}
			if err := syscall.Kill(test.victim(cmd.Process.Pid, started), test.signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the outer process succeeded")
			}
			assertGone(t, before)
		})
	}
}

func hold(t *testing.T) *exec.Cmd {
	defer try.F(t.Fatal)
	t.Helper()
	self := try.E1(os.Executable())
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holdEnv+"=yes")
	cmd.Stderr = os.Stderr
	out := try.E1(cmd.StdoutPipe())
	try.E(cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "held" {
			return cmd
		}
		t.Log(lines.Text())
	}
	t.Fatal("the held lab did not come up")
	return nil
}

// world is what a lab may leave behind: processes, network namespaces, mounts, files.
type world struct{ processes, netns, mounts, files []string }

func worldOf(t *testing.T) world {
	defer try.F(t.Fatal)
	t.Helper()
	w := world{files: glob(t, runDir+"/*"), netns: glob(t, netnsDir+"/*")}
	for _, dir := range glob(t, "/proc/[0-9]*") {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // ended meanwhile
		}
		w.processes = append(w.processes, strings.Join(strings.Fields(string(stat))[:2], " "))
	}
	mounts := try.E1(os.ReadFile("/proc/self/mounts"))
	w.mounts = strings.Split(string(mounts), "\n")
	return w
}

func assertGone(t *testing.T, before world) {
	t.Helper()
	err := Eventually(t.Context(), func() error {
		after := worldOf(t)
		for what, pair := range map[string][2][]string{
			"processes": {before.processes, after.processes}, "namespaces": {before.netns, after.netns},
			"mounts": {before.mounts, after.mounts}, "files": {before.files, after.files},
		} {
			left := slices.DeleteFunc(pair[1], func(s string) bool { return slices.Contains(pair[0], s) })
			if len(left) > 0 {
				return fmt.Errorf("%s left: %q", what, left)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func glob(t *testing.T, pattern string) []string {
	defer try.F(t.Fatal)
	t.Helper()
	found := try.E1(filepath.Glob(pattern))
	return found
}

// descendants of a process, parents before children.
func descendants(t *testing.T, of int) []int {
	defer try.F(t.Fatal)
	t.Helper()
	var found []int
	for _, file := range glob(t, fmt.Sprintf("/proc/%d/task/*/children", of)) {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended meanwhile
		}
		for _, child := range strings.Fields(string(b)) {
			pid := try.E1(strconv.Atoi(child))
			found = append(append(found, pid), descendants(t, pid)...)
		}
	}
	return found
}
