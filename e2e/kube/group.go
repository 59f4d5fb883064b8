package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// A control group does not end with its processes, so each program that uses the lab has one, in every hierarchy of
// the machine, and all its nodes' groups below that. Its name tells the outer process, when that was started, and the
// PID namespace that its number is of: who comes next there removes what a killed one left.
const (
	groupEnv    = "OVN_MULTINET_KUBE_GROUP"
	groupPrefix = "ovn-multinet-"
)

// groups is one control group in all hierarchies.
type groups struct {
	name  string   // below the root of each hierarchy
	roots []string // where the hierarchies are mounted
}

// claimGroups removes the groups of dead programs and returns this one's, not made yet.
func claimGroups() (groups, error) {
	g, err := openGroups("")
	if err != nil {
		return g, err
	}
	namespace, err := pidNamespace("self")
	if err != nil {
		return g, err
	}
	started, err := startOf(os.Getpid())
	if err != nil {
		return g, err
	}
	g.name = fmt.Sprintf("%s%s-%d-%s", groupPrefix, namespace, os.Getpid(), started)
	return g, g.removeStale()
}

func openGroups(name string) (groups, error) {
	g := groups{name: name}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return g, err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") && !slices.Contains(g.roots, f[1]) {
			g.roots = append(g.roots, f[1])
		}
	}
	if len(g.roots) == 0 {
		return g, errors.New("no control groups are mounted below /sys/fs/cgroup")
	}
	return g, nil
}

// startOf is when a process was started, in the kernel's ticks: a number may be another process's later.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const start = 22 - 3 // proc(5) counts from 1, and two are before
	if len(fields) <= start {
		return "", fmt.Errorf("stat of process %d is short: %q", pid, stat)
	}
	return fields[start], nil
}

// removeStale removes the groups of processes that have ended.
func (g groups) removeStale() error {
	here, err := pidNamespace("self")
	if err != nil {
		return err
	}
	visible := visibleNamespaces()
	errs := []error{}
	for _, root := range g.roots {
		found, err := filepath.Glob(filepath.Join(root, groupPrefix+"*"))
		errs = append(errs, err)
		for _, dir := range found {
			var namespace, pid, started int
			const form = groupPrefix + "%d-%d-%d"
			if _, err := fmt.Sscanf(filepath.Base(dir), form, &namespace, &pid, &started); err != nil {
				continue // not of this form, so not ours
			}
			switch strconv.Itoa(namespace) {
			case here:
				if is, err := startOf(pid); err == nil && is == strconv.Itoa(started) {
					continue
				}
			default:
				// The machine's own namespace sees the processes of all others.
				if here != machineNamespace || visible[strconv.Itoa(namespace)] {
					continue
				}
			}
			errs = append(errs, removeGroup(dir))
		}
	}
	return errors.Join(errs...)
}

// machineNamespace is the number that the kernel gives the first PID namespace.
const machineNamespace = "4026531836"

// pidNamespace is the number of a process's PID namespace.
func pidNamespace(pid string) (string, error) {
	link, err := os.Readlink("/proc/" + pid + "/ns/pid") // pid:[4026531836]
	return strings.Trim(link, "pid:[]"), err
}

// visibleNamespaces are the PID namespaces of the processes that can be seen from here.
func visibleNamespaces() map[string]bool {
	seen := map[string]bool{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if namespace, err := pidNamespace(e.Name()); err == nil {
			seen[namespace] = true
		}
	}
	return seen
}

// make makes the group, and lets it be given processors and memory.
func (g groups) make() error {
	for _, root := range g.roots {
		dir := root
		for _, part := range strings.Split(g.name, "/") {
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make a control group: %w", err)
			}
			if err := inherit(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit gives a new group what it needs to take processes, and in v2 to have controllers.
func inherit(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) || len(strings.TrimSpace(string(b))) == 0 {
			continue // another hierarchy, or v2, where a new group has its parent's
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o644)
		}
		if err != nil {
			return fmt.Errorf("copy %s to %s: %w", file, dir, err)
		}
	}
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return nil // v1
	}
	for _, c := range strings.Fields(string(controllers)) {
		if slices.Contains([]string{"cpu", "cpuset", "io", "memory", "pids", "hugetlb"}, c) {
			if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
				return fmt.Errorf("let control groups below %s have the controller %s: %w", parent, c, err)
			}
		}
	}
	return nil
}

// remove removes the group with all below it. Processes that were killed may take a moment to leave it.
func (g groups) remove() error {
	var errs []error
	for _, root := range g.roots {
		errs = append(errs, removeGroup(filepath.Join(root, g.name)))
	}
	return errors.Join(errs...)
}

func removeGroup(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return lab.Eventually(ctx, func() error { return removeTree(dir) })
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove control group %s: %w", dir, err)
	}
	return nil
}
