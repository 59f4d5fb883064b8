package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// Each kind of remainder goes for each reason, a period after it was seen first, and nothing else does.
func TestReconcile(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	type kind struct{ plugged, leased, journalled bool }
	kinds := map[string]kind{"a plug": {plugged: true}, "a lease": {leased: true}, "a journal": {journalled: true}, "all": {true, true, true}}
	reasons := []struct {
		name, pod, uid string
		links          []string
		want           string
	}{
		{"pod gone", "gone", "u-9", []string{"net1", "net2"}, "pod shop/gone is gone"},
		{"pod and host ends gone", "gone", "u-9", nil, "pod shop/gone is gone"},
		{"pod of another UID", "web", "u-0", []string{"net1", "net2"}, "pod shop/web with UID u-0 is gone"},
		{"host ends gone", "web", "u-1", nil, "its network namespace is gone"},
		{"host ends gone, no UID", "web", "", nil, "its network namespace is gone"},
		{"lives", "web", "u-1", []string{"net1", "net2"}, ""},
		{"lives, no UID", "web", "", []string{"net1", "net2"}, ""},
		{"lives, static pod", "web", "static-web", []string{"net1", "net2"}, ""},
		{"one host end is there", "web", "u-1", []string{"net2"}, ""},
	}
	for name, k := range kinds {
		for _, c := range reasons {
			t.Run(name+", "+c.name, func(t *testing.T) {
				l := newLooked(t)
				l.neighbours(true)
				defer l.unlink(agentapi.HostVeth("alive", "net1"))
				base := l.world(false)
				o := owner("c1", c.pod, c.uid)
				if k.plugged {
					l.plug(o, "net1", "net2")
				}
				if k.leased {
					l.lease(o, "net1", "net2")
				}
				for _, name := range c.links {
					l.link(agentapi.HostVeth("c1", name))
					defer l.unlink(agentapi.HostVeth("c1", name))
				}
				if k.journalled {
					l.journal(o, "net1", "net2")
				}
				l.takenInTime(c.want, k.plugged, k.leased)
				if k.journalled { // it is the plugin's to take away
					l.must(os.Remove(filepath.Join(l.conf.StateDir, journal.EntryDir, "c1@eth0")))
				}
				if after := l.world(false); c.want != "" && after != base {
					t.Errorf("left is\n%s\nwant\n%s", after, base)
				}
			})
		}
	}
}

// Two ticks of a clock that are a little nearer to each other than its period are a period apart, and two looks that
// are much nearer are not.
func TestTicksArePeriods(t *testing.T) {
	for name, c := range map[string]struct {
		less time.Duration
		want string
	}{"a little": {50 * time.Millisecond, "!c1" + namespaceGone}, "much": {time.Minute, "c1" + namespaceGone}} {
		t.Run(name, func(t *testing.T) {
			l := newLooked(t)
			l.dying("c1")
			l.look(false)
			l.passed += l.conf.ReconcilePeriod - c.less
			l.wantSaid(name, l.look(false), c.want)
		})
	}
}
