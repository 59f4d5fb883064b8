package agent

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// plugs lists whose host ends are in Open vSwitch, by name.
func (l *looked) plugs() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for _, row := range l.ovs.Dump(l.t, "Interface") {
		ids, _ := row["external_ids"].(map[string]string)
		if ids["ovn-multinet/port-uuid"] != "" {
			out[row["name"].(string)] = ids["sandbox"]
		}
	}
	return out
}

// What a reboot left plugged is unplugged at the agent's start, and nothing else: neither what the kernel has, nor
// what is others', nor what a call of the plugin runs for.
func TestScrub(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLooked(t)
	l.neighbours(true)
	base := l.world(false)
	stale, gone, busy := owner("c1", "web", "u-1"), owner("c2", "gone", "u-9"), owner("c4", "busy", "u-9")
	l.plug(busy, "net1")
	half := []string{"h1", "h2", "h3", "h4"} // several, as rows come in no order
	for _, container := range half {
		l.plug(owner(container, container, "u-9"), "net1", "net2", "net3", "net4")
		l.link(agentapi.HostVeth(container, "net2"))
	}
	unlock := l.lockOf("c4@eth0.lock")
	stays := l.plugs()
	l.plug(stale, "net1", "net2", "net3")
	l.plug(gone, "net1")
	l.lease(stale, "net1") // which are NB's: a pod's port is its own until it is gone for good
	ports := l.ports()
	l.ovsProxy.Reset()
	l.proxy.Reset()
	l.must(l.agent.deleteRebooted(t.Context()))
	l.cost("a scrub of two", 0, 0, 0, 2, 0, 3)
	equalMaps(t, "plugs", l.plugs(), stays)
	equalMaps(t, "ports", l.ports(), ports)
	l.must(l.agent.deleteRebooted(t.Context()))
	l.cost("a scrub of none", 0, 0, 0, 0, 0, 1)

	l.must(l.agent.nb.ReleaseSandbox(t.Context(), stale))
	for _, container := range append(half, "c4") {
		l.must(l.agent.ovs.Delete(t.Context(), container))
	}
	unlock()
	if after := l.world(false); after != base {
		t.Errorf("beside what it took away, left is\n%s\nwant\n%s", after, base)
	}
}

func equalMaps(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if g, w := marshal(t, got), marshal(t, want); string(g) != string(w) {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

// An Open vSwitch that is down at the agent's start, as it is at a boot, is waited for, and then it is scrubbed
// before anything is plugged.
func TestScrubOnceOpenVSwitchIsThere(t *testing.T) {
	l := newLooked(t)
	l.plug(owner("c1", "web", "u-1"), "net1")
	failed := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	first := true
	l.ovsProxy.Before(func(ovndbtest.Transact) {
		if first {
			first = false
			l.ovsProxy.Before(nil)
			l.ovs.Kill()
			close(failed)
		}
	})
	ended := make(chan struct{})
	go func() { l.agent.reconciler.run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	<-failed
	select {
	case <-l.agent.reconciler.cleaned:
		t.Error("it is said to be done without Open vSwitch")
	default:
	}
	l.ovs.Restart()
	l.eventually("said to be done", func() bool {
		select {
		case <-l.agent.reconciler.cleaned:
			return true
		default:
			return false
		}
	})
	if got := l.plugs(); len(got) != 0 {
		t.Errorf("plugs %v are left", got)
	}
}

// The end of an agent that still waits for Open vSwitch is its end.
func TestScrubEndsWithTheAgent(t *testing.T) {
	l := newLooked(t)
	l.ovs.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var ended atomic.Bool
	go func() { l.agent.reconciler.run(ctx); ended.Store(true) }()
	l.eventually("ended", ended.Load)
	select {
	case <-l.agent.reconciler.cleaned:
		t.Error("it is said to be done without Open vSwitch")
	default:
	}
}

// Nothing is plugged before what a reboot left is gone.
func TestBindWaitsForTheScrub(t *testing.T) {
	l := newLooked(t)
	r := agentapi.BindRequest{Sandbox: l.sandbox("c1"), Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`)}
	r.Plan.Interfaces = []agentapi.Interface{{Name: "net1", Network: "shop/blue", Port: agentapi.Port{Name: "shop/web/net1"}}}
	ctx, cancel := context.WithCancel(t.Context())
	l.source.asked = func(string) { cancel() }
	l.ovsProxy.Reset()
	err := l.agent.bind(ctx, &r, noSockets, func(any) error { t.Error("it is bound"); return nil })
	if !conf.HasCode(err, conf.CodeTryAgain) || !strings.Contains(err.Error(), "OVS ports of before a reboot are not deleted yet") {
		t.Errorf("error %v, want code 11 and why", err)
	}
	l.cost("while it waits", 0, 0, 0, 0, 0, 0)
	close(l.agent.reconciler.cleaned)
	plugged := false
	ctx, cancel = context.WithCancel(t.Context())
	l.source.asked = nil
	l.ovsProxy.Before(func(tr ovndbtest.Transact) {
		if tr.Writes {
			plugged = true
			cancel() // nobody installs flows here
		}
	})
	_ = l.agent.bind(ctx, &r, noSockets, func(any) error { return nil })
	cancel()
	if l.ovsProxy.Before(nil); !plugged {
		t.Error("nothing is plugged once that is done")
	}
	// Other plugins' networks have nothing to wait for.
	l.agent.reconciler.cleaned = make(chan struct{})
	r.Plan = agentapi.Plan{}
	bound := false
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l.must(l.agent.bind(ctx, &r, noSockets, func(any) error { bound = true; return nil }))
	if !bound {
		t.Error("a pod without interfaces of ours is not bound")
	}
}

// noSockets are the sockets of a plugin that sends none.
func noSockets() []*os.File { return nil }
