package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// dead has containers seen dead for a period; what is left for the plugin is returned.
func (l *looked) dead() []agentapi.Garbage {
	l.t.Helper()
	l.look(false)
	l.later()
	l.look(false)
	return l.agent.reconciler.staleForPlugin()
}

func (l *looked) wantDead(what string, got []agentapi.Garbage, want ...agentapi.Garbage) {
	l.t.Helper()
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		l.t.Errorf("%s: the plugin is told %+v, want %+v", what, got, want)
	}
}

// entryOf is the sandbox that journal writes.
func entryOf(container, pod, uid string) agentapi.Sandbox {
	return agentapi.Sandbox{ContainerID: container, Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: pod, UID: uid}
}

// What only the plugin can take away it is told of: the entries of its journal, and host ends that no entry tells of,
// as long as they are there.
func TestWhatIsLeftToThePlugin(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLooked(t)
	l.neighbours(true)
	file := func(name string) string { return filepath.Join(l.conf.StateDir, journal.EntryDir, name) }
	gone, lost := owner("c1", "gone", "u-9"), owner("c2", "lost", "u-9")
	l.journal(gone, "net1")
	l.link(agentapi.HostVeth("c1", "net1"))
	l.lease(lost, "net1", "net2", "net3")
	for _, name := range []string{"net1", "net2"} {
		l.link(agentapi.HostVeth("c2", name))
	}
	l.lease(owner("c3", "without", "u-9"), "net1") // and nothing else
	entry := agentapi.Garbage{Sandbox: entryOf("c1", "gone", "u-9")}
	ends := []string{agentapi.HostVeth("c2", "net1"), agentapi.HostVeth("c2", "net2")}
	slices.Sort(ends)
	links := agentapi.Garbage{Sandbox: agentapi.Sandbox{ContainerID: "c2", Namespace: "shop", Pod: "lost", UID: "u-9"}, HostVeths: ends}

	l.look(false)
	l.wantDead("seen once", l.agent.reconciler.staleForPlugin())
	l.later()
	l.look(true)
	l.wantDead("dry", l.agent.reconciler.staleForPlugin())
	l.look(false)
	l.wantDead("a period later", l.agent.reconciler.staleForPlugin(), entry, links)
	l.unlink(ends[0])
	l.wantDead("one link less", l.agent.reconciler.staleForPlugin(), entry, links)
	l.unlink(ends[1])
	l.wantDead("without links", l.agent.reconciler.staleForPlugin(), entry)
	l.write("", journal.EntryDir, "c1@eth0.left")
	l.wantDead("tried by the plugin, which marked it", l.agent.reconciler.staleForPlugin())
	l.must(os.Remove(file("c1@eth0.left")))
	l.look(false)
	l.wantDead("without the mark", l.agent.reconciler.staleForPlugin(), entry)
	l.must(os.Remove(file("c1@eth0")))
	l.wantDead("without an entry", l.agent.reconciler.staleForPlugin())
}

// A container has an entry for each interface that its runtime calls for; and one that is damaged still names it.
func TestAllEntriesAreLeftToThePlugin(t *testing.T) {
	l := newLooked(t)
	l.journal(owner("c1", "gone", "u-9"), "net1")
	second := l.attachedTo("c1", "d1")
	second.Sandbox = entryOf("c1", "gone", "u-9")
	second.Sandbox.Interface = "eth1"
	l.writeAttached(second)
	l.write("{", journal.EntryDir, "c2@eth0")
	l.lease(owner("c2", "gone-too", "u-9"), "net1")
	l.write("{", journal.EntryDir, "c3@eth0") // of which nobody can tell
	l.wantSaid("why", l.look(true), "c1: pod shop/gone is gone", "c2: pod shop/gone-too is gone")
	l.wantDead("all", l.dead(), agentapi.Garbage{Sandbox: entryOf("c1", "gone", "u-9")}, agentapi.Garbage{Sandbox: second.Sandbox},
		agentapi.Garbage{Sandbox: agentapi.Sandbox{ContainerID: "c2", Interface: "eth0"}})
}

// A container counts as alive while one of the entries has a host end that is there.
func TestHostEndsOfAllEntries(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLooked(t)
	l.journal(owner("c1", "web", "u-1"), "net1")
	second := &journal.Summary{Sandbox: entryOf("c1", "web", "u-1"), Plan: &agentapi.Plan{Interfaces: []agentapi.Interface{{Name: "net5"}}}}
	second.Sandbox.Interface = "eth1"
	l.writeAttached(second)
	for _, name := range []string{"net1", "net5"} {
		l.link(agentapi.HostVeth("c1", name))
		l.wantSaid("with "+name, l.look(true))
		l.unlink(agentapi.HostVeth("c1", name))
	}
	l.wantSaid("without", l.look(true), "c1"+namespaceGone)
}

// A container that lives again is nothing to undo: its pod was away for a while, or one of its host ends.
func TestDeadThatLivesAgain(t *testing.T) {
	l := newLooked(t)
	l.writeAttached(l.attachedTo("c1", "d1")) // delegates alone, of pod shop/old
	entry := agentapi.Garbage{Sandbox: l.attachedTo("c1", "d1").Sandbox}
	l.wantDead("dead", l.dead(), entry)
	l.inVain("NB", false)
	l.wantDead("after a list with gaps", l.agent.reconciler.staleForPlugin(), entry)
	l.source.uids["shop/old"] = "u-0"
	l.look(true)
	l.wantDead("alive, seen by nobody", l.agent.reconciler.staleForPlugin(), entry)
	l.look(false)
	l.wantDead("alive", l.agent.reconciler.staleForPlugin())
	delete(l.source.uids, "shop/old")
	l.look(false)
	l.wantDead("dead again, seen once", l.agent.reconciler.staleForPlugin())
}

// What has its delegates left of it alone, after a DEL that failed, tells by no host end that it is dead, and is.
func TestEndsThatFailedAreLeftToThePlugin(t *testing.T) {
	l := newLooked(t)
	failed := l.leftIn("c1", "eth0")
	failed.Sandbox, failed.FailedAttempts = entryOf("c1", "web", "u-1"), 1
	alive := l.attachedTo("c2", "d1")
	alive.Sandbox = entryOf("c2", "web", "u-1")
	l.writeAttached(failed, alive)
	l.wantDead("a period later", l.dead(), agentapi.Garbage{Sandbox: failed.Sandbox})
	l.wantSaid("why", l.look(true), "c1: a DEL has begun, and failed for networks of other plugins")
}

// Those whose rows were taken away are counted, each once.
func TestTakenAwayIsCounted(t *testing.T) {
	l := newLooked(t)
	l.dying("c1")
	l.lease(owner("c2", "gone", "u-9"), "net1")
	l.plug(owner("c3", "gone", "u-9"), "net5")
	l.journal(owner("c4", "gone", "u-9"), "net1") // has no row
	l.look(false)
	for range 3 {
		l.later()
		l.look(false)
	}
	if got := testutil.ToFloat64(l.agent.metrics.stale); got != 3 {
		t.Errorf("%v are counted, want 3", got)
	}
	for container, want := range map[string]string{
		"c1": `level=INFO msg="deleted the ports of a stale sandbox" pod=shop/web containerID=c1 reason="its network namespace is gone" ovsPorts=2 ports=2`,
		"c2": `level=WARN msg="deleted the ports of a stale sandbox; the plugin's journal has lost this sandbox: what other plugins gave it must be deleted by hand" pod=shop/gone containerID=c2 reason="pod shop/gone is gone" ovsPorts=0 ports=1`,
		"c3": `pod=shop/gone containerID=c3 reason="pod shop/gone is gone" ovsPorts=1 ports=0`,
	} {
		if n := strings.Count(l.log.String(), want); n != 1 {
			t.Errorf("the log has %d times %q, want once, of %s:\n%s", n, want, container, l.log.String())
		}
	}
	if strings.Contains(l.log.String(), "containerID=c4") {
		t.Errorf("the log: %s", l.log.String())
	}
}

// The plugin takes up one at a call: it is not told of hundreds.
func TestFewAreToldAtOnce(t *testing.T) {
	l := newLooked(t)
	var want []agentapi.Garbage
	for i := range 7 {
		id := fmt.Sprint("c", i)
		l.journal(owner(id, "gone", "u-9"), "net1")
		want = append(want, agentapi.Garbage{Sandbox: entryOf(id, "gone", "u-9")})
	}
	l.wantDead("of seven", l.dead(), want[:4]...)
	l.must(os.Remove(filepath.Join(l.conf.StateDir, journal.EntryDir, "c1@eth0")))
	l.wantDead("of six", l.agent.reconciler.staleForPlugin(), want[0], want[2], want[3], want[4])
}

// told asks the agent by its socket, and returns which dead containers the answer names.
func (r *rig) told(op string, body any) ([]agentapi.Garbage, error) {
	c := &agentapi.Client{Socket: r.conf.Socket, Patience: 10 * time.Second}
	defer c.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	err := c.Call(ctx, op, body, nil)
	return c.Garbage, err
}

// An agent that runs looks by itself, and names in each answer, be it a refusal, who is dead.
func TestReconcileRuns(t *testing.T) {
	r := newRig(t)
	r.conf.ReconcilePeriod = 50 * time.Millisecond
	r.start()
	unlock := r.lockOf("c1@eth0.lock") // until its ADD is over
	_, err := r.plan("c1")
	r.must(err)
	if got := r.ports(); len(got) != 2 {
		t.Fatalf("ports %v", got)
	}
	unlock()
	r.writeAttached(r.attachedTo("c9", "d1")) // of pod shop/old, which is not there
	r.eventually("released", func() bool { return len(r.ports()) == 0 })
	want := []agentapi.Garbage{{Sandbox: r.attachedTo("c9", "d1").Sandbox}}
	r.eventually("named", func() bool {
		got, err := r.told(agentapi.OpFailedDELs, agentapi.FailedDELsRequest{})
		r.must(err)
		return reflect.DeepEqual(got, want)
	})
	r.eventually("named in a refusal", func() bool {
		got, err := r.told(agentapi.OpForget, agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{ContainerID: "x"}})
		if !conf.HasCode(err, conf.CodeInvalidConfig) {
			t.Fatalf("got %v, want a refusal", err)
		}
		return reflect.DeepEqual(got, want)
	})
	if log := r.log.String(); !strings.Contains(log, `pod=shop/web containerID=c1 reason="its network namespace is gone" ovsPorts=0 ports=2`) {
		t.Errorf("the log: %s", log)
	}
}

// While a database hangs under a look, requests are answered.
func TestAnswersWhileALookHangs(t *testing.T) {
	r := newRig(t)
	r.conf.ReconcilePeriod = 50 * time.Millisecond
	r.start()
	unlock := r.lockOf("c1@eth0.lock") // until its ADD is over
	_, err := r.plan("c1")
	r.must(err)
	hangs, over := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(over) })
	defer goOn()
	r.proxy.Before(func(tr ovndbtest.Transact) {
		if tr.Writes {
			r.proxy.Before(nil)
			close(hangs)
			<-over
		}
	})
	unlock()
	<-hangs // the release of c1's ports
	_, err = r.told(agentapi.OpFailedDELs, agentapi.FailedDELsRequest{})
	r.must(err)
	if got := r.ports(); len(got) != 2 {
		t.Errorf("ports %v: nothing hung", got)
	}
	goOn()
	r.eventually("released", func() bool { return len(r.ports()) == 0 })
}

// remainders asks the agent as an operator does.
func (r *rig) remainders(dry bool) []agentapi.StaleSandbox {
	r.t.Helper()
	var answer agentapi.GCResult
	r.must(r.call(agentapi.OpGC, agentapi.GCRequest{DryRun: dry}, &answer))
	return answer.Sandboxes
}

// An operator is told what is left of whom and why, and that it was taken away only if it was.
func TestGC(t *testing.T) {
	l := newLooked(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listener, err := listen(l.conf.Socket)
	l.must(err)
	served := make(chan error, 1)
	go func() { served <- l.agent.serve(ctx, listener) }()
	defer func() { cancel(); l.must(<-served) }()
	var raw json.RawMessage
	l.must(l.call(agentapi.OpGC, agentapi.GCRequest{DryRun: true}, &raw))
	if string(raw) != `{"containers":[]}` {
		t.Errorf("of nothing: %s", raw)
	}
	l.dying("c1")
	l.lease(owner("c2", "gone", "u-9"), "net1")
	l.lease(owner("alive", "alive", "u-2"), "net1")
	unlock := l.lockOf("alive@eth0.lock")
	defer unlock()
	c1 := agentapi.StaleSandbox{Sandbox: entryOf("c1", "web", "u-1"), Why: "its network namespace is gone", Journal: true, Delegates: []string{"net9 on shop/ext"},
		Ports: []string{"shop/web/net1", "shop/web/net2"}, HostVeths: []string{agentapi.HostVeth("c1", "net1"), agentapi.HostVeth("c1", "net2")}}
	c2 := agentapi.StaleSandbox{Sandbox: agentapi.Sandbox{ContainerID: "c2", Namespace: "shop", Pod: "gone", UID: "u-9"}, Why: "pod shop/gone is gone", Ports: []string{"shop/gone/net1"}}
	want := func(what string, dry bool, want ...agentapi.StaleSandbox) {
		t.Helper()
		got := l.remainders(dry)
		for i := range got {
			slices.Sort(got[i].Ports)
			slices.Sort(got[i].HostVeths)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", what, got, want)
		}
	}
	slices.Sort(c1.HostVeths)
	made := l.world(true)
	want("dry", true, c1, c2)
	want("at once", false, c1, c2)
	want("at once, twice", false, c1, c2)
	l.later()
	want("dry, a period later", true, c1, c2)
	l.unchanged("until then", made)
	c1.Collected, c2.Collected = true, true
	want("a period later", false, c1, c2)
	c1.Ports, c1.HostVeths = nil, nil
	want("what is the plugin's", false, c1)
	l.must(os.Remove(filepath.Join(l.conf.StateDir, journal.EntryDir, "c1@eth0")))
	if got := l.remainders(false); len(got) != 0 {
		t.Errorf("in the end: %+v", got)
	}
	l.eventually("counted", func() bool { return testutil.ToFloat64(l.agent.metrics.requests.WithLabelValues("gc", "0")) == 8 })

	l.source.errs["shop/alive"] = fmt.Errorf("the source is away")
	wantCoded(t, l.call(agentapi.OpGC, agentapi.GCRequest{DryRun: true}, nil), conf.CodeTryAgain, "pod shop/alive: the source is away")
}
