package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

const (
	never  = "Warning NetworksMissing: the pod runs without its networks: it started while ovn-multinet was not chained on this node, or its annotation was written later; delete it, so that it is made again"
	lostIt = "Warning JournalLost: the node's journal of this pod's networks is lost: its ports on OVN networks are deleted with the pod, but what other plugins made for it must be deleted by hand"
)

// running is shop/web as it runs on this node, with networks.
func running() *netmodel.Pod {
	return &netmodel.Pod{Namespace: "shop", Name: "web", UID: "u-1", Node: "node1", Running: true, Annotations: map[string]string{conf.NetworksAnnotation: "blue"}}
}

// missed looks for pods without their networks, and returns what was said so far.
func (l *looked) missed() []string {
	l.t.Helper()
	l.must(l.agent.reconciler.unattached.pass(l.t.Context()))
	_, events := l.source.told()
	return events
}

// Who runs with networks and is not in the journal is told so by the second look, and by no other.
func TestMissing(t *testing.T) {
	const primary = `{"name":"cbr0","interface":"eth0","default":true}`
	entry := func(name, uid string) func(l *looked) {
		return func(l *looked) { l.journal(owner("c1", name, uid), "net1") }
	}
	tests := []struct {
		name string
		pod  func(p *netmodel.Pod)
		do   func(l *looked)
		want string
	}{
		{"before the plugin", nil, nil, never},
		{"before the plugin, with a status of the primary network", func(p *netmodel.Pod) {
			p.Annotations[nad.StatusAnnotation] = "[" + primary + "]"
		}, nil, never},
		{"with a status that is none", func(p *netmodel.Pod) { p.Annotations[nad.StatusAnnotation] = "{" }, nil, never},
		{"the journal is lost", func(p *netmodel.Pod) {
			p.Annotations[nad.StatusAnnotation] = "[" + primary + `,{"name":"shop/blue","interface":"net1"}]`
		}, nil, lostIt},
		{"of a node that nobody names", func(p *netmodel.Pod) { p.Node = "" }, nil, never},
		{"of another node", func(p *netmodel.Pod) { p.Node = "node2" }, nil, ""},
		{"not running", func(p *netmodel.Pod) { p.Running = false }, nil, ""},
		{"without networks", func(p *netmodel.Pod) { p.Annotations = nil }, nil, ""},
		{"with an annotation of blanks", func(p *netmodel.Pod) { p.Annotations[conf.NetworksAnnotation] = " \n" }, nil, ""},
		{"with an empty list", func(p *netmodel.Pod) { p.Annotations[conf.NetworksAnnotation] = "[]" }, nil, ""},
		{"with a list that nobody understands", func(p *netmodel.Pod) { p.Annotations[conf.NetworksAnnotation] = "[{" }, nil, never},
		{"with another annotation that nobody understands", func(p *netmodel.Pod) { p.Annotations = map[string]string{conf.AnnotationPrefix + "x": "y"} }, nil, ""},
		{"in the journal", nil, entry("web", "u-1"), ""},
		{"in the journal, by a runtime that tells no UID", nil, entry("web", ""), ""},
		{"in the journal, static", func(p *netmodel.Pod) { p.Mirror = "static" }, entry("web", "static"), ""},
		{"an older pod of the name is in the journal", nil, entry("web", "u-0"), never},
		{"another pod is in the journal", nil, entry("web-1", "u-1"), never},
		{"an entry of the journal is damaged", nil, func(l *looked) { l.write("{", journal.EntryDir, "c1@eth0") }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLooked(t)
			p := running()
			if tt.pod != nil {
				tt.pod(p)
			}
			l.source.here = []*netmodel.Pod{p}
			if tt.do != nil {
				tt.do(l)
			}
			if got := l.missed(); len(got) != 0 {
				t.Errorf("said by the first look: %q", got)
			}
			for _, what := range []string{"second", "third", "fourth"} {
				if got := strings.Join(l.missed(), "\n"); got != tt.want {
					t.Errorf("said by the %s look: %q, want %q", what, got, tt.want)
				}
			}
			if said := strings.Contains(l.log.String(), `msg="the plugin's journal has lost a running pod" pod=shop/web`); said != (tt.want == lostIt) {
				t.Errorf("the log: %s", l.log.String())
			}
		})
	}
}

// What happens between looks: an ADD or a DEL that runs is no news, and what cannot be read says nothing.
func TestMissingBetweenLooks(t *testing.T) {
	l := newLooked(t)
	web, other := running(), running()
	other.Name, other.UID = "db", "u-5"
	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{"both", func() { l.source.here = []*netmodel.Pod{web, other} }, nil},
		{"one gets its entry", func() { l.journal(owner("c1", "web", "u-1"), "net1") }, []string{never}},
		{"which goes", func() { l.must(os.Remove(filepath.Join(l.conf.StateDir, journal.EntryDir, "c1@eth0"))) }, []string{never}},
		{"and comes back", func() { l.journal(owner("c1", "web", "u-1"), "net1") }, []string{never}},
		{"a third pod", func() {
			l.source.here = append(l.source.here, &netmodel.Pod{UID: "u-6", Running: true, Annotations: web.Annotations})
		}, []string{never}},
		{"an entry is damaged", func() { l.write("{", journal.EntryDir, "c9@eth0") }, []string{never}},
		{"and gone", func() { l.must(os.Remove(filepath.Join(l.conf.StateDir, journal.EntryDir, "c9@eth0"))) }, []string{never, never}},
		{"nothing new", func() {}, []string{never, never}},
	}
	for _, step := range steps {
		step.do()
		if got := l.missed(); !slices.Equal(got, step.want) {
			t.Errorf("%s: said so far %q, want %q", step.name, got, step.want)
		}
	}
}

// What cannot be listed is an error, and what was seen before is seen still.
func TestMissingWithoutAList(t *testing.T) {
	for name, want := range map[string]string{"pods": "the source is away", "journal": "not a directory"} {
		t.Run(name, func(t *testing.T) {
			l := newLooked(t)
			l.source.here = []*netmodel.Pod{running()}
			l.missed()
			dir := filepath.Join(l.conf.StateDir, journal.EntryDir)
			if name == "pods" {
				l.source.away = errors.New(want)
			} else {
				l.write("", journal.EntryDir)
			}
			err := l.agent.reconciler.unattached.pass(t.Context())
			if _, events := l.source.told(); err == nil || !strings.Contains(err.Error(), want) || len(events) != 0 {
				t.Errorf("error %v and events %q, want %q alone", err, events, want)
			}
			l.source.away = nil
			l.must(os.RemoveAll(dir))
			if got := l.missed(); !slices.Equal(got, []string{never}) {
				t.Errorf("after it: said %q", got)
			}
		})
	}
}
