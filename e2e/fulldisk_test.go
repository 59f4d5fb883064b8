package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/journal"
)

// onSmallDisk gives the first node a small disk of its own for the plugin's state, and lets its delegates run.
func onSmallDisk(t *testing.T) *world {
	t.Helper()
	return newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		withDelegates(l)
		dir := l.Nodes[0].StateDir
		if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	})
}

// fill uses up the node's disk, and returns what frees it.
func (w *world) fill() (free func()) {
	w.t.Helper()
	path := filepath.Join(w.Nodes[0].StateDir, "filler")
	f, err := os.Create(path)
	w.must(err)
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	w.must(f.Close())
	if !errors.Is(err, unix.ENOSPC) {
		w.t.Fatalf("the disk is not full: %v", err)
	}
	return func() { w.must(os.Remove(path)) }
}

// TestBoundaryFullDisk: on a full disk pods end, with the agent and without it and when the plugin is killed on the way, and
// new ones are refused before anything is made.
func TestBoundaryFullDisk(t *testing.T) {
	t.Parallel()
	w := onSmallDisk(t)
	log := w.recorderOn("rec", "")
	first, second := w.attached(0, "first", "blue,rec,green"), w.attached(0, "second", "blue,rec,green")
	third := w.attached(0, "third", "blue,rec,green")
	late := w.pod(0, "late", "blue,rec")
	free := w.fill()
	before := w.snapshot()
	_, err := late.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "no space left on device", w.Nodes[0].StateDir)
	w.must(late.Del(w.ctx))
	if diff := before.Diff(w.snapshot()); diff != "" {
		t.Errorf("the ADD that was refused left:\n%s", diff)
	}
	w.must(first.Del(w.ctx))
	w.noPorts(first)
	w.must(w.Nodes[0].KillAgent())
	w.must(second.Del(w.ctx))
	for _, point := range []string{"unwired", "release-put"} {
		w.killed(third.Del(w.ctx, lab.WithEnv(failpoint.Env+"="+point)))
	}
	w.must(third.Del(w.ctx))
	equal(t, "the journal", w.journalled(w.Nodes[0]), nil)
	w.must(w.Nodes[0].StartAgent(w.ctx))
	w.noPorts(second)
	w.noPorts(third)
	free()
	w.add(late)
	w.end(late, first, second, third)
	commands, _ := w.calls(log)
	// Four ADDs and four DELs, and the one that is repeated after the first kill.
	equal(t, "calls of the other plugin", len(commands), 9)
	w.asBefore()
}

// TestBoundaryRefusedBeforeLitter: a tenant's network whose plugin always fails leaves what the limit of a pod allows, and
// pods without such networks are not refused.
func TestBoundaryRefusedBeforeLitter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	w.recorderOn("bad", `,"fail":{"ADD":{"code":119,"msg":"no"},"DEL":{"code":119,"msg":"no"}}`)
	p := w.pod(0, "web", "blue,bad")
	for range 20 {
		_, err := p.Add(w.ctx)
		if err == nil {
			t.Fatal("it is attached")
		}
		_ = p.Del(w.ctx)
		w.must(p.RemoveNetNS())
		next, err := p.NewSandbox(w.ctx)
		w.must(err)
		p = next
	}
	entries := 0
	for _, name := range w.journalled(w.Nodes[0]) {
		if _, ok := journal.ParseID(name); ok {
			entries++
		}
	}
	equal(t, "entries", entries, journal.MaxFailedOfPod)
	_, err := p.Add(w.ctx)
	w.refused(err, conf.CodeDelegateFailed, "pod shop/web has 4 earlier sandboxes with a failed delegate DEL; a pod may have at most 4")
	w.noPorts(p)
	w.end(p, w.attached(0, "other", "blue"))
}
