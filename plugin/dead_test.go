package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

func deadOf(containers ...string) (all []agentapi.Garbage) {
	for _, c := range containers {
		all = append(all, agentapi.Garbage{Sandbox: sandbox(c)})
	}
	return all
}

// A call takes up one container of others: the first that the agent says is dead and that it has something of, else
// one that would not go.
func TestFinishOther(t *testing.T) {
	tests := []struct {
		name string
		dead []agentapi.Garbage
		want string // whose delegates' DEL is called: c2 has alpha, c3 has alpha twice, c4, given up, alpha thrice
	}{
		{"nobody is dead", nil, "c4"},
		{"one is", deadOf("c2"), "c2"},
		{"two are", deadOf("c3", "c2"), "c3"},
		{"the call's own", deadOf("c1"), "c4"},
		{"the call's own, and another", deadOf("c1", "c2"), "c2"},
		{"one whose entry is gone, and another", deadOf("c9", "c2"), "c2"},
		{"one whose entry is gone", deadOf("c9"), "c4"},
		{"one whose entry and links are gone", []agentapi.Garbage{{Sandbox: sandbox("c9"), HostVeths: []string{agentapi.HostVethPrefix + "000000000000"}}}, ""},
		{"a path, and another", deadOf("../attached/c3", "c2"), "c2"},
		{"a file that is no entry, and another", deadOf(".c3", "c2"), "c2"},
		{"another interface of the container", []agentapi.Garbage{{Sandbox: agentapi.Sandbox{ContainerID: "c2", Interface: "eth1"}}}, "c4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.call.sandbox = sandbox("c1")
			alpha := of(`{"type":"alpha"}`, "")
			n.attached("c4", alpha, alpha, alpha)
			n.must(os.WriteFile(n.entry("c4")+journal.FailedSuffix, nil, 0o600))
			n.attached("c1", of(`{"type":"beta"}`, ""))
			n.attached("c2", alpha)
			n.attached("c3", alpha, alpha)
			n.called()
			all := files(t, n.state, "attached")
			n.call.garbage = tt.dead
			n.call.collectGarbage()
			var want []string
			for i := map[string]int{"c2": 1, "c3": 2, "c4": 3}[tt.want]; i > 0; i-- {
				want = append(want, "DEL alpha net"+string(rune('0'+i)))
			}
			n.wantCalled("DELs", want...)
			kept := slices.DeleteFunc(all, func(name string) bool { return tt.want != "" && strings.HasPrefix(name, tt.want+"@") })
			if got := files(t, n.state, "attached"); !slices.Equal(got, kept) {
				t.Errorf("the journal has %q, want %q", got, kept)
			}
		})
	}
}

// What the agent names is not trusted with paths: no file is touched outside of the journal, or in it that is no entry.
func TestDeadIsNoPath(t *testing.T) {
	for _, id := range []string{"../c2", "../../c2", "../attached/c2", "./c2", ".c2", "c/2"} {
		n := newNode(t)
		n.attached("c2", of(`{"type":"alpha"}`, ""))
		path := n.entry(id)
		n.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.MkdirAll(filepath.Dir(n.release(id)), 0o700)))
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			n.must(os.WriteFile(path, []byte("{}"), 0o600))
		}
		n.called()
		tree := func() (all []string) {
			n.must(filepath.WalkDir(n.dir, func(path string, _ os.DirEntry, err error) error {
				all = append(all, path)
				return err
			}))
			return all
		}
		before := tree()
		n.call.garbage = deadOf(id)
		n.call.collectGarbage()
		n.wantCalled("DELs of " + id)
		if after := tree(); !slices.Equal(after, before) {
			t.Errorf("%s: files changed from %q to %q", id, before, after)
		}
	}
}

// A dead container whose delegate will not go stays in the journal with a complaint, and is none of the call's errors.
func TestDeadThatWillNotGo(t *testing.T) {
	n := newNode(t)
	n.attached("c1", of(`{"type":"beta"}`, ""))
	n.attached("c2", of(`{"type":"alpha"}`, ""))
	n.fails("DEL", "alpha")
	n.called()
	n.call.garbage = deadOf("c2")
	n.call.collectGarbage()
	n.wantCalled("DELs", "DEL alpha net1")
	if a := n.readAttached("c2"); a.FailedAttempts != 1 || !strings.Contains(a.LastError, "alpha cannot DEL") {
		t.Errorf("the entry has %d complaints, %q", a.FailedAttempts, a.LastError)
	}
	// Nor is one that another call has in hand.
	held, err := n.call.journal.Lock(t.Context(), pointer("c2"))
	n.must(err)
	defer held.Unlock()
	n.call.collectGarbage()
	n.wantCalled("DELs while another call runs")
}

// Host ends that no entry tells of go by their names, and no link of others does.
func TestHostEndsOfALostJournal(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	n := newNode(t)
	ours, gone, stays := agentapi.HostVeth("c9", "net1"), agentapi.HostVeth("c9", "net2"), agentapi.HostVeth("c8", "net1")
	for _, name := range []string{ours, stays, "eth7"} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		n.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	}
	n.call.garbage = []agentapi.Garbage{{Sandbox: sandbox("c9"), HostVeths: []string{"eth7", gone, ours, "lo"}}}
	n.call.collectGarbage()
	links, err := netlink.LinkList()
	n.must(err)
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	if want := []string{"eth7", "lo", stays}; !slices.Equal(slices.Compact(names), want) {
		t.Errorf("links %q are there, want %q", names, want)
	}
}
