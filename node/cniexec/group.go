package cniexec

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
)

// A call has its own control group in each hierarchy that limits tasks or memory: one hierarchy with version 2, two
// with version 1. All groups are below groupsName at the root of the hierarchy. This is the only place where root may
// always make groups with controllers, whatever groups the container runtime has. The caller locks the folder of its
// group. A group without a lock belongs to a caller that was killed: the next call kills its processes, and a call
// that finds it empty removes it.
const groupPrefix = "call-"

// groupsName is a variable only for the tests.
var groupsName = "ovn-multinet"

// hierarchy is a tree of control groups.
type hierarchy struct {
	mount       string // the folder of its root
	own         string // the folder of the group that this process is in
	v2          bool
	controllers []string // the controllers that we use in this hierarchy
}

// group is a control group of one call.
type group struct {
	hierarchy
	dir  string
	lock *os.File
}

// groups are the groups of one call.
type groups []*group

// wanted are the controllers that the limits of a call need.
var wanted = []string{"pids", "memory"}

// hierarchies finds the hierarchies in the texts of /proc/self/mountinfo and /proc/self/cgroup (proc(5), cgroups(7)).
func hierarchies(mountinfo, cgroup string) (found []*hierarchy) {
	own := map[string]string{} // this process's group by controller; "": of version 2
	for line := range strings.Lines(cgroup) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for c := range strings.SplitSeq(parts[1], ",") {
				own[c] = parts[2]
			}
		}
	}
	todo := slices.Clone(wanted)
	var unified *hierarchy
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 3 {
			continue
		}
		h := &hierarchy{mount: fields[4], v2: rest[0] == "cgroup2"}
		if h.v2 && unified == nil {
			if h.findOwn(own[""], fields[3]) {
				unified = h
			}
		}
		if rest[0] != "cgroup" {
			continue
		}
		for c := range strings.SplitSeq(rest[2], ",") {
			if slices.Contains(todo, c) && h.findOwn(own[c], fields[3]) {
				h.controllers = append(h.controllers, c)
			}
		}
		if len(h.controllers) > 0 {
			todo = slices.DeleteFunc(todo, func(c string) bool { return slices.Contains(h.controllers, c) })
			found = append(found, h)
		}
	}
	if unified == nil || len(todo) == 0 {
		return found
	}
	text, _ := os.ReadFile(filepath.Join(unified.mount, "cgroup.controllers"))
	for c := range strings.FieldsSeq(string(text)) {
		if slices.Contains(todo, c) {
			unified.controllers = append(unified.controllers, c)
		}
	}
	if len(unified.controllers) > 0 {
		found = append(found, unified)
	}
	return found
}

// findOwn stores the folder of this process's group. root is the part of the hierarchy that is mounted.
func (h *hierarchy) findOwn(path, root string) bool {
	if path == "" || strings.HasPrefix(path, "/..") { // this process may not see the group (cgroup_namespaces(7))
		return false
	}
	rel, err := filepath.Rel(root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return false
	}
	h.own = filepath.Join(h.mount, rel)
	return true
}

// ErrNoGroup says that this node has a controller for a limit, but no control group can be made.
var ErrNoGroup = errors.New("no control group can be made for its limits")

// newGroups makes the groups of a call for all controllers that this node has. If one of these controllers cannot be
// used, newGroups makes no group at all.
func newGroups(l *Limits) (made groups, err error) {
	if l.Tasks == 0 && l.Memory == 0 {
		return nil, nil
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGroup, err)
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGroup, err)
	}
	for _, h := range hierarchies(string(mountinfo), string(cgroup)) {
		g, err := h.newGroup(l.files)
		if err != nil {
			made.remove(context.Background()) // no process is in them
			return nil, fmt.Errorf("%w: %w", ErrNoGroup, err)
		}
		made = append(made, g)
	}
	return made, nil
}

// limitFile is a file of a group that sets a limit.
type limitFile struct {
	name, value string
	optional    bool
}

// files are the files of a controller.
func (l *Limits) files(controller string, v2 bool) []limitFile {
	memory := strconv.FormatInt(l.Memory, 10)
	switch {
	case controller == "pids":
		return []limitFile{{name: "pids.max", value: strconv.Itoa(l.Tasks)}}
	case v2:
		return []limitFile{
			{name: "memory.max", value: memory}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true},
		}
	}
	return []limitFile{{name: "memory.limit_in_bytes", value: memory}, {"memory.memsw.limit_in_bytes", memory, true}}
}

// newGroup makes a group with its limits, and removes the stale groups of other calls.
func (h *hierarchy) newGroup(files func(controller string, v2 bool) []limitFile) (*group, error) {
	g := &group{hierarchy: *h}
	var err error
	for range 5 { // another call may delete the folder of groups with its last group
		if err = g.create(); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	for _, c := range h.controllers {
		for _, f := range files(c, h.v2) {
			if err := os.WriteFile(filepath.Join(g.dir, f.name), []byte(f.value), 0); err != nil && !f.optional {
				groups{g}.remove(context.Background()) // no process is in it
				return nil, err
			}
		}
	}
	return g, nil
}

func (g *group) create() error {
	parent := filepath.Join(g.mount, groupsName)
	if err := g.enable(g.mount); err != nil {
		return err
	}
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := g.enable(parent); err != nil {
		return err
	}
	g.killStale(parent)
	dir, err := os.MkdirTemp(parent, groupPrefix)
	if err != nil {
		return err
	}
	if g.lock, err = lockFolder(dir); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	g.dir = dir
	return nil
}

// enable enables the controllers for the groups in a folder. Version 1 does not need this.
func (g *group) enable(dir string) error {
	if !g.v2 {
		return nil
	}
	path := filepath.Join(dir, "cgroup.subtree_control")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	has := strings.Fields(string(text))
	for _, c := range g.controllers {
		if !slices.Contains(has, c) {
			if err := os.WriteFile(path, []byte("+"+c), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockFolder locks a folder until the file is closed. No program that is started inherits the file.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = os.Stat(dir) // another call may have removed the folder before this lock
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// killStale kills the processes in stale groups, and removes the groups that are empty. It does not wait for the end of
// the processes: a later call removes their groups.
func (g *group) killStale(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if lock, err := lockFolder(dir); err == nil {
			stale := &group{hierarchy: g.hierarchy, dir: dir, lock: lock}
			stale.kill()
			_ = unix.Rmdir(dir)
			lock.Close()
		}
	}
}

// join puts this process, and therefore each process that it forks, into the groups. goBack ends this.
func (gs groups) join() (goBack func() error, err error) {
	joined := gs[:0:0]
	goBack = func() (err error) {
		for _, g := range joined {
			err = errors.Join(err, os.WriteFile(filepath.Join(g.own, "cgroup.procs"), []byte("0"), 0))
		}
		return err
	}
	for _, g := range gs {
		if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return nil, errors.Join(err, goBack())
		}
		joined = append(joined, g)
	}
	return goBack, nil
}

// limit reports whether one of the groups has the controller.
func (gs groups) limit(controller string) bool {
	return slices.ContainsFunc(gs, func(g *group) bool { return slices.Contains(g.controllers, controller) })
}

func (gs groups) kill() {
	for _, g := range gs {
		g.kill()
	}
}

// removePatience is how long to wait for the end of killed processes. A later call tries again.
const removePatience = 5 * time.Second

// remove kills the processes in the groups and removes the groups. If ctx ends, remove waits only a moment longer for
// the end of the processes.
func (gs groups) remove(ctx context.Context) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), removePatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(afterDeath, cancel) })
	defer stop()
	for _, g := range gs {
		g.remove(within)
	}
}

// over returns the limit that the call reached, in words; "": none.
func (gs groups) over(l *Limits) string {
	for _, g := range gs {
		for _, f := range []struct{ file, key, words string }{
			{"memory.events", "oom_kill", l.memoryInWords()},
			{"memory.oom_control", "oom_kill", l.memoryInWords()},
			{"pids.events", "max", l.tasksInWords()},
		} {
			text, _ := os.ReadFile(filepath.Join(g.dir, f.file))
			for line := range strings.Lines(string(text)) {
				if fields := strings.Fields(line); len(fields) == 2 && fields[0] == f.key && fields[1] != "0" {
					return f.words
				}
			}
		}
	}
	return ""
}

// kill sends SIGKILL to all processes in the group. If there is no cgroup.kill (version 1, Linux before 5.14), kill
// first forbids new processes in the group, so that repeated calls of kill reach all of them.
func (g *group) kill() {
	if g.v2 && os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	_ = os.WriteFile(filepath.Join(g.dir, "pids.max"), []byte("0"), 0)
	text, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 { // 0: a process of another PID namespace
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// remove kills the processes in the group and removes the group. If the group is the last one, remove also removes
// the folder of groups.
func (g *group) remove(ctx context.Context) {
	defer g.lock.Close()
	for ; ; time.Sleep(time.Millisecond) {
		err := unix.Rmdir(g.dir)
		if err == nil || errors.Is(err, unix.ENOENT) || ctx.Err() != nil {
			break
		}
		g.kill()
	}
	_ = unix.Rmdir(filepath.Dir(g.dir))
}
