package install

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// drained is a node with the product on it that is being uninstalled, and the clock that it is done by.
type drained struct {
	*installer
	t   *testing.T
	now time.Time
}

func draining(t *testing.T) *drained {
	t.Helper()
	c := node(t)
	write(t, c.primary(), flannel)
	i := working(t, c)
	must(t, i.place())
	_, err := i.sync(agentapi.ReadyMarker(c.Entry.AgentSocket))
	must(t, err)
	for _, dir := range []string{journal.EntryDir, journal.ReleaseDir} {
		must(t, os.Mkdir(filepath.Join(c.Entry.StateDir, dir), 0o755))
	}
	return &drained{installer: working(t, c), t: t, now: time.Unix(1e9, 0)}
}

// after goes one step when so much time has passed, and wants it to say the words.
func (d *drained) after(passed time.Duration, words string) {
	d.t.Helper()
	d.now = d.now.Add(passed)
	says, err := d.drain(d.now)
	if err != nil {
		says = err.Error()
	}
	if !strings.Contains(says, words) || strings.Contains(says, "\n") {
		d.t.Errorf("it says %q, want %q", says, words)
	}
}

// has wants our files to be there, or not: the conflist is "open" if pods get networks by it, "draining" if they are
// refused, or "".
func (d *drained) has(conflist string, binary bool) {
	d.t.Helper()
	got := ""
	if exists(d.conflist()) {
		text, err := os.ReadFile(d.conflist())
		must(d.t, err)
		if _, err := roundOf(text); err != nil {
			d.t.Errorf("the conflist: %v", err)
		}
		if got = "open"; entryOf(d.t, text).Draining {
			got = "draining"
		}
	}
	if got != conflist || exists(d.binary()) != binary {
		d.t.Errorf("the conflist is %q, the plugin there: %v; want %q, %v", got, exists(d.binary()), conflist, binary)
	}
}

// entryOf reads our entry as the plugin does.
func entryOf(t *testing.T, conflist []byte) *conf.Plugin {
	t.Helper()
	var list struct{ Plugins []json.RawMessage }
	must(t, json.Unmarshal(conflist, &list))
	entry, err := conf.ParsePlugin(withRuntimeKeys(t, list.Plugins[len(list.Plugins)-1]), conf.Strict)
	must(t, err)
	return entry
}

// journal is where a container's entry is.
func (d *drained) journal(id string) string {
	return filepath.Join(d.Entry.StateDir, journal.EntryDir, id+"@eth0")
}

// attach writes a container's entry, of the pod default/ID.
func (d *drained) attach(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		text, err := json.Marshal(journal.Summary{Sandbox: agentapi.Sandbox{
			ContainerID: id, Interface: "eth0", Namespace: "default", Pod: id,
		}})
		must(d.t, err)
		write(d.t, d.journal(id), string(text))
	}
}

func (d *drained) detach(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		must(d.t, os.Remove(d.journal(id)))
	}
}

// release is where the agent finds what it has to release of a container.
func (d *drained) release(id string) string {
	return filepath.Join(d.Entry.StateDir, journal.ReleaseDir, id+"@eth0")
}

const (
	noneAttached    = "no sandbox has networks; waiting until no runtime uses the former conflist any more"
	conflistDeleted = "the conflist is deleted; waiting until no runtime uses it any more"
	uninstalled     = "uninstalled: nothing is left to do on this node"
)

// TestDrain goes all the way: pods with networks end, one comes in between that was under way, their networks are
// released.
func TestDrain(t *testing.T) {
	d := draining(t)
	d.attach("a", "b")
	d.after(0,
		"waiting for 2 sandboxes with networks to end, delete or evict their pods: default/a (a), default/b (b)")
	d.has("draining", true)
	written, err := os.Stat(d.conflist())
	must(t, err)
	d.after(time.Hour, "waiting for 2 sandboxes")
	if now, err := os.Stat(d.conflist()); err != nil || !os.SameFile(now, written) {
		t.Errorf("a conflist that refuses already was written again, %v", err)
	}
	d.detach("a")
	d.after(time.Hour, "waiting for 1 sandboxes with networks to end, delete or evict their pods: default/b (b)")
	write(t, d.release("b"), "{}")
	d.detach("b")
	d.after(time.Hour, noneAttached)
	d.after(settle-time.Nanosecond, noneAttached)
	d.has("draining", true)
	d.after(time.Nanosecond, "the agent still has to release the ports of 1 sandboxes")
	d.has("", true)

	d.attach("late")
	d.after(time.Second, "waiting for 1 sandboxes")
	d.has("draining", true)
	d.detach("late")
	d.after(time.Hour, noneAttached)
	d.after(settle-time.Nanosecond, noneAttached)
	d.has("draining", true)
	d.after(time.Nanosecond, "the agent still has to release")
	d.has("", true)

	d.after(time.Hour, "the agent still has to release")
	d.has("", true)
	must(t, os.Remove(d.release("b")))
	d.after(settle-time.Nanosecond, conflistDeleted)
	d.has("", true)
	d.after(time.Nanosecond, uninstalled)
	d.has("", false)
	d.after(time.Hour, uninstalled)
	files(t, d.NetDir, "10-flannel.conflist")
	files(t, d.BinDir)

	d.attach("later") // by a runtime that was stopped for an hour: what it made has to be undone
	d.after(time.Hour, "waiting for 1 sandboxes")
	d.has("draining", true)
}

// TestDrainWithoutPods: also when nobody has networks the conflist refuses before it goes, for an ADD may be under
// way.
func TestDrainWithoutPods(t *testing.T) {
	d := draining(t)
	d.has("open", true)
	d.after(0, noneAttached)
	d.has("draining", true)
	d.attach("under-way")
	d.after(settle, "waiting for 1 sandboxes")
	d.has("draining", true)
	d.detach("under-way")
	d.after(settle, noneAttached)
	d.after(settle, conflistDeleted)
	d.has("", true)
	d.after(settle, uninstalled)
	d.has("", false)
}

// TestDrainOf: where it begins, and what is no reason to wait.
func TestDrainOf(t *testing.T) {
	for _, c := range []struct {
		name     string
		begin    func(*drained)
		says     string // at first
		conflist string
		binary   bool
		then     string // long after
		at       string // and the conflist then
	}{
		{
			"a node where it was never installed",
			func(d *drained) { must(d.t, os.Remove(d.conflist())); must(d.t, os.Remove(d.binary())) }, conflistDeleted,
			"", false, uninstalled, "",
		},
		{
			"a node that had no pod", func(d *drained) { must(d.t, os.RemoveAll(d.Entry.StateDir)) }, noneAttached,
			"draining", true, conflistDeleted, "",
		},
		{
			"a restart when the conflist was gone", func(d *drained) { must(d.t, os.Remove(d.conflist())) },
			conflistDeleted, "", true, uninstalled, "",
		},
		{"locks and marks in the journal", func(d *drained) {
			write(d.t, d.journal("a")+journal.LockSuffix, "")
			write(d.t, d.journal("a")+journal.FailedSuffix, "")
			write(d.t, d.journal(".a"), "")
		}, noneAttached, "draining", true, conflistDeleted, ""},
		{"hidden files among the releases", func(d *drained) {
			must(d.t, os.Remove(d.conflist()))
			write(d.t, d.release(journal.ForgetPrefix+"a"), "")
		}, conflistDeleted, "", true, uninstalled, ""},
		{
			"an entry that nobody can read", func(d *drained) { write(d.t, d.journal("damaged"), "{") },
			"waiting for 1 sandboxes with networks to end, delete or evict their pods: damaged@eth0", "draining", true,
			"waiting for 1", "draining",
		},
		{
			"many", func(d *drained) { d.attach("a", "b", "c", "d", "e", "f") },
			": default/a (a), default/b (b), default/c (c), default/d (d), default/e (e)", "draining", true,
			"waiting for 6 sandboxes", "draining",
		},
		{
			"a plugin that is gone", func(d *drained) { d.attach("a"); must(d.t, os.Remove(d.binary())) },
			"waiting for 1", "draining", true, "waiting for 1", "draining",
		},
		{
			"a conflist that is gone", func(d *drained) { d.attach("a"); must(d.t, os.Remove(d.conflist())) },
			"waiting for 1", "draining", true, "waiting for 1", "draining",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := draining(t)
			c.begin(d)
			d.after(0, c.says)
			d.has(c.conflist, c.binary)
			d.after(time.Hour, c.then)
			d.has(c.at, c.then != uninstalled)
		})
	}
}

// TestDrainKeeps: what cannot be known or done takes nothing away.
func TestDrainKeeps(t *testing.T) {
	for _, c := range []struct {
		name     string
		begin    func(*drained)
		says     string
		conflist string
		heal     func(*drained)
		then     string
	}{
		{"a journal that cannot be read", func(d *drained) {
			dir := filepath.Join(d.Entry.StateDir, journal.EntryDir)
			must(d.t, os.Remove(dir))
			write(d.t, dir, "")
		}, "the plugin's journal: ", "open", func(d *drained) { must(d.t, os.Remove(filepath.Join(d.Entry.StateDir, journal.EntryDir))) }, noneAttached},
		{"releases that cannot be read", func(d *drained) {
			must(d.t, os.Remove(d.conflist()))
			must(d.t, os.Remove(filepath.Dir(d.release(""))))
			write(d.t, filepath.Dir(d.release("")), "")
		}, "not a directory", "", func(d *drained) { must(d.t, os.Remove(filepath.Dir(d.release("")))) }, uninstalled},
		{"no primary, with containers", func(d *drained) {
			d.attach("a")
			must(d.t, os.Remove(d.primary()))
		}, errNoPrimary.Error(), "open", func(d *drained) { write(d.t, d.primary(), flannel) }, "waiting for 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := draining(t)
			c.begin(d)
			for range 3 {
				d.after(time.Hour, c.says)
				d.has(c.conflist, true)
			}
			c.heal(d)
			d.after(time.Hour, c.then)
		})
	}
}

// TestDrainFollows: the primary's file may change while pods are waited for.
func TestDrainFollows(t *testing.T) {
	d := draining(t)
	d.attach("a")
	d.after(0, "waiting for 1")
	write(t, d.primary(), round(7))
	d.after(time.Second, "waiting for 1")
	d.has("draining", true)
	if n, err := roundOf([]byte(read(d.conflist()))); n != 7 || err != nil {
		t.Errorf("the conflist is of round %d, %v", n, err)
	}
}

// TestDrainingEntry: the conflist that refuses differs in that alone, and has the version of before.
func TestDrainingEntry(t *testing.T) {
	d := draining(t)
	before := read(d.conflist())
	d.after(0, noneAttached)
	refuses := entryOf(t, []byte(read(d.conflist())))
	opens := entryOf(t, []byte(before))
	if !refuses.Draining || opens.Draining {
		t.Errorf("draining: %v, before: %v", refuses.Draining, opens.Draining)
	}
	refuses.Draining = false
	if got, want := fmt.Sprintf("%+v", refuses), fmt.Sprintf("%+v", opens); got != want {
		t.Errorf("our entry is %s, was %s", got, want)
	}
}

// TestUninstall runs the command: it begins at once, sweeps, says each state once, follows the journal and takes
// nothing away at its end.
func TestUninstall(t *testing.T) {
	d := draining(t)
	d.attach("a", "b")
	left := filepath.Join(d.NetDir, "."+conf.ConflistName+".1234")
	write(t, left, "")
	ctx, cancel := context.WithCancel(t.Context())
	logged, log := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Uninstall(ctx, d.Config, slog.New(slog.NewTextHandler(log, nil)))
		log.Close()
	}()
	lines := linesOf(logged)
	hears(t, lines, "waiting for 2 sandboxes")
	d.has("draining", true)
	if exists(left) {
		t.Error("what a killed installer left is still there")
	}
	d.detach("a")
	hears(t, lines, "waiting for 1 sandboxes")
	d.detach("b")
	hears(t, lines, noneAttached)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if line, more := <-lines; more {
		t.Errorf("it also logs %q", line)
	}
	d.has("draining", true)
	c := d.Config
	c.CNIVersion = "latest"
	if err := Uninstall(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), `--cni-version "latest" is none of`) {
		t.Errorf("with a version that is none: %v", err)
	}
}
