package cniexec

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
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
	left, runs := newGroups(&few), newGroups(&few)
	if len(left) == 0 {
		t.Fatal("root cannot make control groups here")
	}
	defer runs.remove()
	process := sleeper(t, left[0])
	for _, g := range left {
		g.lock.Close() // as the kernel does for a process that is killed
	}
	if out, err := Run(t.Context(), script(t, "exit 0"), nil, path, &few); err != nil {
		t.Fatal(out, err)
	}
	ended(t, process)
	want := []string{}
	for _, g := range runs {
		want = append(want, g.dir)
	}
	got := ours(t)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the groups are %q, want %q", got, want)
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
		t.Fatal("no control groups of version 2 are mounted here")
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
		t.Fatalf("none of the controllers is known: %s", text)
	}
	limit := limits[h.controllers[0]]
	g, err := h.newGroup(func(string, bool) []limitFile { return []limitFile{limit, {"no.such.file", "1", true}} })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(g.dir, limit.name)); err != nil || strings.TrimSpace(string(got)) != limit.value {
		t.Errorf("%s is %s, %v; want %s", limit.name, got, err, limit.value)
	}
	process := sleeper(t, g)
	g.kill()
	ended(t, process)
	g.remove()
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
