package cniexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestHierarchies(t *testing.T) {
	const mixed = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/pids,cpu rw,relatime shared:7 - cgroup cgroup rw,cpu,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	tests := []struct{ name, mountinfo, cgroup, want string }{
		{"version 1", mixed, "9:pids,cpu:/a/b\n4:memory:/\n0::/\n", "/sys/fs/cgroup/memory /sys/fs/cgroup/memory [memory]; /sys/fs/cgroup/pids,cpu /sys/fs/cgroup/pids,cpu/a/b [pids]"},
		{"a part is mounted", strings.ReplaceAll(mixed, " / /sys/fs/cgroup/memory", " /box /sys/fs/cgroup/memory"), "9:pids:/\n4:memory:/box/c\n",
			"/sys/fs/cgroup/memory /sys/fs/cgroup/memory/c [memory]; /sys/fs/cgroup/pids,cpu /sys/fs/cgroup/pids,cpu [pids]"},
		{"a group outside of what is mounted", mixed, "9:pids:/../x\n4:memory:/..\n", ""},
		{"no controllers", "25 1 0:22 / /sys rw - sysfs sysfs rw\nnonsense\n- \n", "0::/\n", ""},
		{"nothing", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, h := range hierarchies(tt.mountinfo, tt.cgroup) {
				got = append(got, fmt.Sprint(h.mount, " ", h.own, " ", h.controllers))
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
	// Version 2 says in a file what it has.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu io memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := hierarchies("30 24 0:26 / "+dir+" rw shared:4 - cgroup2 cgroup2 rw\n", "0::/system.slice/containerd.service\n")
	if len(found) != 1 || !found[0].v2 || found[0].own != dir+"/system.slice/containerd.service" || !slices.Equal(found[0].controllers, []string{"memory", "pids"}) {
		t.Errorf("version 2: %+v", found)
	}
}

// sleeper is a process in a group.
func sleeper(t *testing.T, g *group) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// ended tells how a process ended.
func ended(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the process in the group ended with %v, want SIGKILL", err)
	}
}

// TestBoundaryGroupOfAKilledCaller: what it left goes with the next call, and the group of a call that runs
// stays.
func TestBoundaryGroupOfAKilledCaller(t *testing.T) {
	hasGroups(t)
	left, err := newGroups(&few)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := newGroups(&few)
	if err != nil {
		t.Fatal(err)
	}
	defer runs.remove(t.Context())
	process := sleeper(t, left[0])
	for _, g := range left {
		g.lock.Close() // as the kernel does for a process that is killed
	}
	swept(t, runs)
	ended(t, process)
}

// swept waits until calls have left no groups but those of the calls that run.
func swept(t *testing.T, run groups) {
	t.Helper()
	var want []string
	for _, g := range run {
		want = append(want, g.dir)
	}
	slices.Sort(want)
	eventually(t, fmt.Sprintf("the groups are %q", want), func() bool {
		if _, err := Run(t.Context(), script(t, "exit 0"), nil, path, &few); err != nil {
			t.Fatal(err)
		}
		got := ours(t)
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// stuck makes groups that cannot be removed, without a caller: each has a group in it.
func stuck(t *testing.T, n int) groups {
	t.Helper()
	all := groups{}
	for range n {
		made, err := newGroups(&few)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range made {
			if i > 0 {
				g.remove(t.Context())
				continue
			}
			inner := filepath.Join(g.dir, "inner")
			if err := os.Mkdir(inner, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(inner); _ = os.Remove(g.dir); _ = os.Remove(filepath.Dir(g.dir)) })
			all = append(all, g)
		}
	}
	for _, g := range all {
		g.lock.Close()
	}
	return all
}

// TestBoundaryStuckGroups: groups of callers that are gone take none of a call's time, also if they cannot be removed:
// waiting for each would be longer than the call has.
func TestBoundaryStuckGroups(t *testing.T) {
	hasGroups(t)
	stuck(t, 30)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Run(ctx, script(t, "exit 0"), nil, path, &few); err != nil {
		t.Error(err)
	}
}

// TestBoundaryNoTimeToRemove: when the call has no time left, a group that cannot be removed is left to a later call,
// which may lock it.
func TestBoundaryNoTimeToRemove(t *testing.T) {
	hasGroups(t)
	g := stuck(t, 1)[0]
	lock, err := lockFolder(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	g.lock = lock
	over, cancel := context.WithCancel(t.Context())
	cancel()
	g.remove(over)
	lock, err = lockFolder(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
}

// TestBoundaryNoGroupNoProgram: a node that has controllers and makes no group for a call runs no program, unless the
// caller says so; then the output says why.
func TestBoundaryNoGroupNoProgram(t *testing.T) {
	hasGroups(t)
	none := few
	none.Tasks = -1 // which the kernel refuses
	ran := filepath.Join(t.TempDir(), "ran")
	program := script(t, "touch "+ran)
	out, err := Run(t.Context(), program, nil, path, &none)
	if !errors.Is(err, ErrNoGroup) || out != nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%+v, %v; want %v in one line", out, err, ErrNoGroup)
	}
	if _, err := os.Stat(ran); !os.IsNotExist(err) {
		t.Errorf("the program ran without its limits: %v", err)
	}
	none.Lenient = true
	if out, err = Run(t.Context(), program, nil, path, &none); err != nil || !errors.Is(out.Unlimited, ErrNoGroup) {
		t.Errorf("%+v, %v; want a program that ran, and why it had no group", out, err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Error(err)
	}
	if left := ours(t); len(left) > 0 {
		t.Errorf("control groups are left: %q", left)
	}
}

// TestBoundaryGroupOfVersion2: a group of version 2 with a limit, by whatever controller the machine has there.
func TestBoundaryGroupOfVersion2(t *testing.T) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	h := &hierarchy{v2: true}
	for line := range strings.Lines(string(mountinfo)) {
		if before, after, _ := strings.Cut(line, " - "); strings.HasPrefix(after, "cgroup2 ") {
			h.mount = strings.Fields(before)[4]
		}
	}
	if h.mount == "" {
		t.Skip("no control groups of version 2 are mounted here")
	}
	h.own = h.mount
	text, err := os.ReadFile(filepath.Join(h.mount, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	limits := map[string]limitFile{
		"pids": {name: "pids.max", value: "40"}, "memory": {name: "memory.max", value: "67108864"}, "hugetlb": {name: "hugetlb.2MB.max", value: "2097152"},
	}
	for c := range strings.FieldsSeq(string(text)) {
		if limits[c].name != "" && h.controllers == nil {
			h.controllers = []string{c}
		}
	}
	if h.controllers == nil {
		t.Skipf("none of the controllers of version 2 is known here: %s", text)
	}
	limit := limits[h.controllers[0]]
	g, err := h.newGroup(func(string, bool) []limitFile { return []limitFile{limit, {"no.such.file", "1", true}} })
	if err != nil {
		t.Skip("needs root, and control groups that can be made here: ", err)
	}
	if got, err := os.ReadFile(filepath.Join(g.dir, limit.name)); err != nil || strings.TrimSpace(string(got)) != limit.value {
		t.Errorf("%s is %s, %v; want %s", limit.name, got, err, limit.value)
	}
	process := sleeper(t, g)
	g.kill()
	ended(t, process)
	g.remove(t.Context())
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", g.dir, err)
	}
	if _, err := h.newGroup(func(string, bool) []limitFile { return []limitFile{{name: "no.such.file", value: "1"}} }); err == nil {
		t.Error("a group without its limit is none")
	}
	if left := ours(t); len(left) > 0 {
		t.Errorf("control groups are left: %q", left)
	}
}
