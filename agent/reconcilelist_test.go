package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// dying is a container of shop/web, which lives, without its host ends.
func (l *looked) dying(container string) {
	l.t.Helper()
	o := owner(container, "web", "u-1")
	l.lease(o, "net1", "net2")
	l.plug(o, "net1", "net2")
	l.journal(o, "net1", "net2")
}

const namespaceGone = ": its network namespace is gone"

// inVain has one look fail, since a part of the list cannot be had.
func (l *looked) inVain(part string, dry bool) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	over := make(chan struct{})
	hang := func(ovndbtest.Transact) { cancel(); <-over }
	want := ""
	switch part {
	case "NB":
		l.proxy.Before(hang)
		want = "this node's ports: "
	case "OVS":
		l.ovsProxy.Before(hang)
		want = "read OVS ports: "
	case "source":
		l.source.errs["shop/alive"] = errors.New("the source is away")
		want = "pod shop/alive: the source is away"
	case "journal":
		dir := filepath.Join(l.conf.StateDir, journal.EntryDir)
		l.must(os.Rename(dir, dir+".away"))
		l.must(os.WriteFile(dir, nil, 0o600))
		want = "the plugin's journal: open " + dir + ": not a directory"
	}
	all, err := l.agent.reconciler.pass(ctx, dry)
	close(over)
	l.proxy.Before(nil)
	l.ovsProxy.Before(nil)
	if len(all) > 0 || err == nil || !strings.HasPrefix(err.Error(), want) {
		l.t.Errorf("a look without %s: %q, %v; want %q alone", part, said(all), err, want)
	}
	delete(l.source.errs, "shop/alive")
	if dir := filepath.Join(l.conf.StateDir, journal.EntryDir); part == "journal" {
		l.must(os.Remove(dir))
		l.must(os.Rename(dir+".away", dir))
	}
}

// An entry of the journal that the disk does not give back keeps no other container's ports from their release.
func TestBoundaryUnreadableEntryKeepsNoOtherRelease(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLooked(t)
	l.neighbours(true)
	defer l.unlink(agentapi.HostVeth("alive", "net1"))
	l.dying("c1")
	l.must(os.Mkdir(filepath.Join(l.conf.StateDir, journal.EntryDir, "c5@eth0"), 0o700)) // reading it fails
	if got, want := l.look(false), []string{"c1" + namespaceGone}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	l.later()
	if got, want := l.look(false), []string{"!c1" + namespaceGone}; !slices.Equal(got, want) {
		t.Errorf("a period later: got %q, want %q", got, want)
	}
	if got := l.ports()["shop/web/net1"]; got != "" {
		t.Errorf("the port is still %s's", got)
	}
	if got := l.metric("ovn_multinet_agent_damaged_files"); got != 1 {
		t.Errorf("%v damaged files are counted, want 1", got)
	}
}

// Only what every look saw dead for a period is taken away, and what was listed with gaps begins anew.
func TestSeenDeadForAPeriod(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	tests := []struct {
		name, steps string
		taken       bool // by the last step
	}{
		{"once", "look", false},
		{"a period apart", "look later look", true},
		{"dry ones do not count", "dry later dry later dry", false},
		{"a dry one begins nothing", "dry later look", false},
		{"a dry one ends nothing", "look later dry", false},
		{"dry ones in between", "look dry later dry look", true},
		{"it lived in between", "look later lives look dies look", false},
		{"it lived, and nobody looked", "look lives dies later look", true},
		{"without NB", "look later NB look", false},
		{"without NB, and the period after", "look later NB look later look", true},
		{"without Open vSwitch", "look later OVS look", false},
		{"without another's pod", "look later source look", false},
		{"without a journal", "look later journal look", false},
		{"without NB all the time", "NB later NB later NB", false},
		{"dry, without NB", "look later dry-NB look", true},
		{"dry, without another's pod", "look later dry-source look", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLooked(t)
			l.neighbours(true)
			defer l.unlink(agentapi.HostVeth("alive", "net1"))
			l.dying("c1")
			made := l.world(true)
			steps := strings.Fields(tt.steps)
			for i, step := range steps {
				part, dry := strings.CutPrefix(step, "dry-")
				switch part {
				case "look", "dry":
					want := "c1" + namespaceGone
					if tt.taken && i == len(steps)-1 {
						want = "!" + want
					}
					if got := l.look(step == "dry"); !slices.Equal(got, []string{want}) && !slices.Contains(steps[:i], "lives") {
						t.Errorf("step %d: got %q, want %q", i+1, got, want)
					}
				case "later":
					l.later()
				case "lives":
					l.link(agentapi.HostVeth("c1", "net2"))
				case "dies":
					l.unlink(agentapi.HostVeth("c1", "net2"))
				default:
					l.inVain(part, dry)
				}
				if !tt.taken || i < len(steps)-1 {
					l.unchanged(fmt.Sprint("step ", i+1), made)
				}
			}
			if got := l.ports(); tt.taken == (got["shop/web/net1"] != "") {
				t.Errorf("taken: want %t; ports %v", tt.taken, got)
			}
		})
	}
}

// lockOf takes a lock of the plugin's, as a call of it has it while it runs.
func (r *rig) lockOf(name string) (unlock func()) {
	r.t.Helper()
	path := filepath.Join(r.conf.StateDir, journal.EntryDir, name)
	r.must(os.MkdirAll(filepath.Dir(path), 0o700))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	r.must(err)
	r.must(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	return func() { r.must(errors.Join(os.Remove(path), f.Close())) }
}

// What a call of the plugin runs for is left alone, be it an ADD that has its leases and no links yet.
func TestCallsThatRunAreLeftAlone(t *testing.T) {
	tests := []struct {
		name, lock string
		held       bool
		want       []string // who is dead
	}{
		{"an ADD under way", "c1@eth0.lock", true, nil},
		{"for another interface", "c1@eth1.lock", true, nil},
		{"a lock that a killed call left", "c1@eth0.lock", false, []string{"c1" + namespaceGone}},
		{"of another container", "c10@eth0.lock", true, []string{"c1" + namespaceGone}},
		{"of another container, the end of whose ID is alike", "xc1@eth0.lock", true, []string{"c1" + namespaceGone}},
		{"no lock", "c1@eth0", true, []string{"c1" + namespaceGone}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLooked(t)
			o := owner("c1", "web", "u-1")
			l.lease(o, "net1")
			l.plug(o, "net1")
			unlock := l.lockOf(tt.lock)
			if !tt.held {
				unlock()
				l.write("", journal.EntryDir, tt.lock)
			} else {
				defer unlock()
			}
			l.wantSaid("seen", l.look(false), tt.want...)
			l.later()
			gone := slices.Clone(tt.want)
			for i := range gone {
				gone[i] = "!" + gone[i]
			}
			l.wantSaid("a period later", l.look(false), gone...)
			if got := l.ports(); len(got) != 1-len(tt.want) {
				t.Errorf("ports %v", got)
			}
		})
	}
}

// What a DEL has left to the sweep is not what no DEL came for.
func TestReleasesAreTheSweeps(t *testing.T) {
	for name, dead := range map[string]bool{"c1@eth0": false, "c1@eth1": false, "c10@eth0": true, ".forget-c1@eth0": true} {
		t.Run(name, func(t *testing.T) {
			l := newLooked(t)
			l.dying("c1")
			l.look(false)
			l.later()
			l.write("{", journal.ReleaseDir, name)
			var want []string
			if dead {
				want = []string{"!c1" + namespaceGone}
			}
			l.wantSaid("beside "+name, l.look(false), want...)
			if got := l.ports(); (len(got) == 0) != dead {
				t.Errorf("ports %v", got)
			}
		})
	}
}

// A DEL that comes after the container was judged has it left to it.
func TestReleasesThatComeAreTheSweeps(t *testing.T) {
	l := newLooked(t)
	l.dying("c1")
	l.lease(owner("c2", "other", "u-4"), "net1") // judged last
	l.source.uids["shop/other"] = "u-4"
	l.look(false)
	l.later()
	l.source.asked = func(name string) {
		if name == "shop/other" {
			l.write("{", journal.ReleaseDir, "c1@eth0")
		}
	}
	l.wantSaid("while a DEL comes", l.look(false), "c1"+namespaceGone, "!c2"+namespaceGone)
	if got := l.ports(); len(got) != 2 || got["shop/web/net1"] != "c1" {
		t.Errorf("ports %v, want those that are the sweep's", got)
	}
	if got := l.agent.reconciler.staleForPlugin(); len(got) != 0 {
		t.Errorf("the plugin is told %+v", got)
	}
}

// A call of the plugin that begins after the container was judged has it left alone; it goes once that is over.
func TestCallsThatBeginAreLeftAlone(t *testing.T) {
	l := newLooked(t)
	l.dying("c1")
	// Who is asked about last is judged last.
	l.lease(owner("c2", "other", "u-4"), "net1")
	l.source.uids["shop/other"] = "u-4"
	both := []string{"c1" + namespaceGone, "c2" + namespaceGone}
	l.wantSaid("seen", l.look(false), both...)
	l.later()
	var unlock func()
	l.source.asked = func(name string) {
		if name == "shop/other" {
			unlock = l.lockOf("c1@eth0.lock")
		}
	}
	l.wantSaid("while a call runs", l.look(false), both[0], "!"+both[1])
	if got := l.ports(); len(got) != 2 || got["shop/web/net1"] != "c1" {
		t.Errorf("ports %v, want those of the call", got)
	}
	if got := l.agent.reconciler.staleForPlugin(); len(got) != 0 {
		t.Errorf("the plugin is told %+v, which it has in hand", got)
	}
	l.source.asked = nil
	unlock()
	l.wantSaid("after it", l.look(false), "!"+both[0])
	if got := l.ports(); len(got) != 0 {
		t.Errorf("ports %v are left", got)
	}
}

// A request of the plugin that the agent is serving is waited for.
func TestRequestsThatRunAreWaitedFor(t *testing.T) {
	l := newLooked(t)
	l.dying("c1")
	l.look(false)
	l.later()
	unlock, err := l.agent.sandboxes.take(t.Context(), "c1")
	l.must(err)
	before := l.world(true)
	looked := make(chan []string)
	go func() { looked <- l.look(false) }()
	l.eventually("waited for the request", func() bool { return l.agent.sandboxes.usersOf("c1") == 2 })
	l.unchanged("while a request is served", before)
	unlock()
	l.wantSaid("after it", <-looked, "!c1"+namespaceGone)
	if got := l.ports(); len(got) != 0 {
		t.Errorf("ports %v are left", got)
	}
}

// becomes makes a port another container's, as the ADD of a newer one does.
func (l *looked) becomes(port, container string) {
	l.nb.Transact(l.t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch_Port", "where": []any{[]any{"name", "==", port}},
		"mutations": []any{[]any{"external_ids", "delete", []any{"set", []any{"ovn-multinet/sandbox"}}},
			[]any{"external_ids", "insert", ovndbtest.Map(map[string]string{"ovn-multinet/sandbox": container})}}})
}

// A port that is another container's by the time it would go stays, as it is, and the others go.
func TestPortsThatChangeOwners(t *testing.T) {
	for _, when := range []string{"between two looks", "before it goes"} {
		t.Run(when, func(t *testing.T) {
			l := newLooked(t)
			l.dying("c1")
			l.look(false)
			l.later()
			row := func() string {
				for _, row := range l.nb.Dump(t, "Logical_Switch_Port") {
					if row["name"] == "shop/web/net2" {
						return fmt.Sprint(row)
					}
				}
				return "gone"
			}
			var taken string
			take := func() { l.becomes("shop/web/net2", "c2"); taken = row() }
			if when == "between two looks" {
				take()
			} else {
				l.proxy.Before(func(tr ovndbtest.Transact) {
					if tr.Writes && taken == "" {
						take()
					}
				})
			}
			if got := l.look(false); !slices.Contains(got, "!c1"+namespaceGone) {
				t.Errorf("got %q", got)
			}
			l.proxy.Before(nil)
			if got := l.ports(); len(got) != 1 || row() != taken {
				t.Errorf("ports %v; the one that was taken over is %s, want %s", got, row(), taken)
			}
		})
	}
}

// One that cannot be taken away keeps no other from going, and goes when it can.
func TestOneThatStaysKeepsNoOther(t *testing.T) {
	l := newLooked(t)
	for container, pod := range map[string]string{"sick": "gone", "well": "gone-too"} {
		o := owner(container, pod, "u-9")
		l.lease(o, "net1")
		l.plug(o, "net1")
		l.journal(o, "net1")
	}
	l.look(false)
	l.later()
	// Whenever it is to be released it is another's, and when that is looked at it is its own again.
	l.proxy.Before(func(tr ovndbtest.Transact) {
		switch {
		case !tr.Writes:
			l.becomes("shop/gone/net1", "sick")
		case strings.Contains(fmt.Sprint(tr.Ops), "sick"):
			l.becomes("shop/gone/net1", "another")
		}
	})
	all, err := l.agent.reconciler.pass(t.Context(), false)
	l.proxy.Before(nil)
	if err == nil || !strings.HasPrefix(err.Error(), "sandbox sick: release ports: ports of sandbox sick were not released in ") {
		t.Errorf("error %v, want one of the container that stays", err)
	}
	l.wantSaid("without it", said(all), "sick: pod shop/gone is gone", "!well: pod shop/gone-too is gone")
	l.becomes("shop/gone/net1", "sick")
	equalMaps(t, "ports", l.ports(), map[string]string{"shop/gone/net1": "sick"})
	l.wantDead("without it", l.agent.reconciler.staleForPlugin(), agentapi.Garbage{Sandbox: entryOf("well", "gone-too", "u-9")})
	l.wantSaid("the next time", l.look(false), "!sick: pod shop/gone is gone", "!well: pod shop/gone-too is gone")
	equalMaps(t, "ports in the end", l.ports(), map[string]string{})
}

// Many go in as many transactions as they are, of which the list is one.
func TestManyAtOnce(t *testing.T) {
	const many = 60
	l := newLooked(t)
	base := l.world(false)
	var want []string
	for i := range many {
		o := owner(fmt.Sprintf("c%02d", i), fmt.Sprint("gone-", i), "u-9")
		l.lease(o, "net1", "net2")
		l.plug(o, "net1", "net2")
		want = append(want, fmt.Sprintf("!%s: pod shop/%s is gone", o.Sandbox, o.Pod))
	}
	l.look(false)
	l.later()
	l.proxy.Reset()
	l.ovsProxy.Reset()
	l.wantSaid("a period later", l.look(false), want...)
	l.cost("many", many, 0, many+1, many, 0, many+1)
	if after := l.world(false); after != base {
		t.Errorf("left is\n%s\nwant\n%s", after, base)
	}
}
