package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// An ADD that ends between the list and the repair has added OVS ports that the list does not have. They stay as they
// are.
func TestBoundaryAPodThatHasJustStartedKeepsItsPorts(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLosing(t)
	l.runs("c1", "blue", "green")
	all, err := l.agent.reconciler.pass(t.Context(), false)
	l.must(err)
	for _, m := range all {
		m.ovsPorts = nil // as they were listed before the ADD's end
	}
	before := l.ovsRows()
	l.ovsProxy.Reset()
	_, err = l.agent.reconciler.repairer.pass(t.Context(), all)
	l.must(err)
	if after := l.ovsRows(); !slices.Equal(before, after) {
		t.Errorf("the host ends are the rows %q, want %q", after, before)
	}
	if n := l.ovsProxy.Counts().Committed; n != 0 {
		t.Errorf("%d committed transactions of Open vSwitch, want none", n)
	}
}

// An Interface row that lost its external_ids gets them again, without ovn-controller's; the other host end is not
// touched.
func TestBoundaryLostInterfaceIDs(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for name, args := range map[string][]string{
		"all":      {"clear", "Interface", agentapi.HostVeth("c1", "net2"), "external_ids"},
		"ours":     {"remove", "Interface", agentapi.HostVeth("c1", "net2"), "external_ids", "sandbox"},
		"and more": {"set", "Interface", agentapi.HostVeth("c1", "net2"), "external_ids={iface-id=other}"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			l.runs("c1", "blue", "green")
			rows, plugged := l.ovsRows(), l.plugged()
			l.ovs.VSCtl(append([]string{"--no-wait"}, args...)...)
			l.ovsProxy.Reset()
			for range 2 {
				l.repairs()
			}
			wantEqual(t, "OVS ports", l.plugged(), plugged)
			if after := l.ovsRows(); !slices.Equal(rows, after) {
				t.Errorf("the host ends are the rows %q, want %q", after, rows)
			}
			if n := l.ovsProxy.Counts().Committed; n != 1 {
				t.Errorf("%d committed transactions of Open vSwitch, want 1", n)
			}
		})
	}
}

// ovsRows are the keys of Open vSwitch's rows of ports and interfaces.
func (l *looked) ovsRows() (keys []string) {
	l.t.Helper()
	for _, table := range []string{"Port", "Interface"} {
		keys = append(keys, strings.Fields(l.ovs.VSCtl("--bare", "--columns=_uuid", "list", table))...)
	}
	slices.Sort(keys)
	return keys
}
