package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// An ADD that ended before it heard of its plan has an entry without one: it tells whose it is, and nothing else.
func TestIntentsOfTheDead(t *testing.T) {
	l := newLooked(t)
	for container, pod := range map[string]string{"c1": "gone", "c2": "web"} {
		l.writeAttached(&journal.Summary{Sandbox: entryOf(container, pod, "u-1")})
	}
	l.wantDead("a period later", l.dead(), agentapi.Garbage{Sandbox: entryOf("c1", "gone", "u-1")})
	l.wantSaid("why", l.look(true), "c1: pod shop/gone is gone")
}

// A host end that several know of is one.
func TestWhatIsLeftOfAll(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLooked(t)
	o := owner("c1", "gone", "u-9")
	l.lease(o, "net1", "net2")
	l.plug(o, "net1", "net2")
	ends := []string{agentapi.HostVeth("c1", "net1"), agentapi.HostVeth("c1", "net2")}
	slices.Sort(ends)
	for _, name := range ends {
		l.link(name)
	}
	l.wantDead("a period later", l.dead(), agentapi.Garbage{Sandbox: agentapi.Sandbox{ContainerID: "c1", Namespace: "shop", Pod: "gone", UID: "u-9"}, HostVeths: ends})
}

// What is left stays left until the plugin comes by, however many looks later, though nothing lists its container any
// more: the host ends of a lost journal, and an entry that nobody can read. An ADD that runs for the container anew
// ends it.
func TestWhatIsLeftStaysLeft(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLooked(t)
	l.lease(owner("c1", "gone", "u-9"), "net1")
	l.link(agentapi.HostVeth("c1", "net1"))
	l.lease(owner("c2", "gone-too", "u-9"), "net1")
	l.write("{", journal.EntryDir, "c2@eth0")
	links := agentapi.Garbage{Sandbox: agentapi.Sandbox{ContainerID: "c1", Namespace: "shop", Pod: "gone", UID: "u-9"}, HostVeths: []string{agentapi.HostVeth("c1", "net1")}}
	entry := agentapi.Garbage{Sandbox: agentapi.Sandbox{ContainerID: "c2", Interface: "eth0"}}
	l.wantDead("a period later", l.dead(), links, entry)
	for range 3 {
		l.later()
		l.look(false)
		l.wantDead("many looks later", l.agent.reconciler.staleForPlugin(), links, entry)
	}
	l.journal(owner("c1", "web", "u-1"), "net1")
	l.lease(owner("c2", "web", "u-1"), "net7")
	l.link(agentapi.HostVeth("c2", "net7"))
	l.look(false)
	l.wantDead("alive", l.agent.reconciler.staleForPlugin())
}

// A host end in Open vSwitch may have a name that no link can have: it is not there.
func TestNamesThatNoLinkHas(t *testing.T) {
	l := newLooked(t)
	o := owner("c1", "web", "u-1")
	ports := []ovnport.OVSPort{{HostVeth: "a-name-that-is-too-long-for-a-link", PortUUID: "k", PortName: "shop/web/net1"}}
	l.must(l.agent.ovs.Add(t.Context(), o, ports, l.agent.supersedes(&o)))
	l.wantSaid("seen", l.look(false), "c1"+namespaceGone)
	l.must(l.agent.deleteRebooted(t.Context()))
	if got := l.plugs(); len(got) != 0 {
		t.Errorf("plugs %v are left", got)
	}
}

// Where what a DEL has left cannot be read, every container may be the sweep's.
func TestFoldersThatCannotBeRead(t *testing.T) {
	l := newLooked(t)
	l.dying("c1")
	l.look(false)
	l.later()
	dir := filepath.Join(l.conf.StateDir, journal.ReleaseDir)
	l.must(os.RemoveAll(dir))
	l.must(os.WriteFile(dir, nil, 0o600))
	l.wantSaid("without the folder", l.look(false))
	if got := l.ports(); len(got) != 2 {
		t.Errorf("ports %v", got)
	}
}
