package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// changer is an agent that compares pods when the test says so, and does nothing else.
type changer struct {
	*rig
	*changes
	dir journal.Dir
}

func newChanger(t *testing.T) *changer {
	t.Helper()
	r := newRig(t)
	r.conf.Attach = true
	r.t.Cleanup(r.build(r.source))
	c := &changer{rig: r, changes: r.agent.changes, dir: journal.Dir(r.conf.StateDir)}
	r.must(c.dir.Prepare())
	// Both databases have answered before a test may end: it is over sooner than their first copies are there.
	r.must(r.agent.nbdb.WaitConnected(t.Context()))
	_, err := r.agent.ovs.Settings(t.Context())
	r.must(err)
	return c
}

// has writes what shop/web has into the journal, as its ADD or a change leaves it.
func (c *changer) has(networks string, change func(*journal.Entry)) {
	c.t.Helper()
	requests, err := nad.ParseRequests(map[string]string{conf.NetworksAnnotation: networks}, "shop", "eth0")
	c.must(err)
	e := journal.NewEntry(c.sandbox("c1"), "/run/netns/c1", "")
	e.Plan, e.Primary = &agentapi.Plan{}, json.RawMessage(`{"cniVersion":"1.0.0"}`)
	for i := range requests {
		s := &requests[i]
		e.Plan.Interfaces = append(e.Plan.Interfaces, agentapi.Interface{
			Name: s.Interface, Network: s.String(), Position: i, Digest: s.Digest(), MAC: "02:00:00:00:00:01", MTU: 1400,
		})
	}
	if change != nil {
		change(e)
	}
	c.must(c.dir.Write(e))
}

// edit changes the pod's annotation, and compares what is due.
func (c *changer) edit(networks string) {
	c.t.Helper()
	c.source.annotations = map[string]string{conf.NetworksAnnotation: networks}
	c.agent.NetworksEdited(&netmodel.Pod{Namespace: "shop", Name: "web", UID: "u-1", Node: "node1"})
	c.step(0)
}

// step compares what is due after a time.
func (c *changer) step(after time.Duration) {
	c.t.Helper()
	due, _ := c.takeDue(time.Now().Add(after))
	for _, p := range due {
		c.must(c.compareNow(c.t.Context(), p))
	}
}

// dueAt is when the pod is compared next.
func (c *changer) dueAt() time.Time {
	c.t.Helper()
	for _, p := range c.changes.pods {
		return p.due
	}
	c.t.Fatal("no pod is known")
	return time.Time{}
}

// stepTo compares what is due at a moment.
func (c *changer) stepTo(at time.Time) {
	c.t.Helper()
	due, _ := c.takeDue(at)
	for _, p := range due {
		c.must(c.compareNow(c.t.Context(), p))
	}
}

// given returns the sandbox that the program gets; nil: none.
func (c *changer) given() *agentapi.Sandbox {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	cancel()
	return c.next(ctx)
}

// mustGive returns the sandbox that the program gets.
func (c *changer) mustGive() agentapi.Sandbox {
	c.t.Helper()
	s := c.given()
	if s == nil {
		c.t.Fatal("the program gets no sandbox")
	}
	return *s
}

func (c *changer) told(want ...string) {
	c.t.Helper()
	_, events := c.source.told()
	if len(events) != len(want) {
		c.t.Fatalf("Events %q, want %q", events, want)
	}
	for i := range want {
		if !strings.HasPrefix(events[i], want[i]) {
			c.t.Errorf("Event %q, want %q", events[i], want[i])
		}
	}
}

// TestChange: an edit is handed out, its end is told, and the status is written by the journal.
func TestChange(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	c.edit("blue,blue@x1")
	s := c.mustGive()
	if s != c.sandbox("c1") {
		t.Fatalf("the program gets %+v", s)
	}
	if c.given() != nil {
		t.Error("it gets the sandbox twice")
	}
	c.has("blue,blue@x1", func(e *journal.Entry) { e.Changed = true })
	c.ended(&agentapi.ChangeEnded{Sandbox: s})
	c.step(0)
	c.told("Normal AddedInterface: added x1 on shop/blue")
	status, writes, _ := c.source.statusCounts()
	if writes != 1 || !strings.Contains(status, `"interface":"x1"`) || !strings.Contains(status, `"default":true`) {
		t.Errorf("%d writes, status %s", writes, status)
	}
	c.edit("blue@x1")
	s = c.mustGive()
	c.has("blue@x1", func(e *journal.Entry) { e.Changed = true })
	c.ended(&agentapi.ChangeEnded{Sandbox: s})
	c.step(0)
	c.told("Normal AddedInterface", "Normal RemovedInterface: removed net1 from shop/blue")
	if c.given() != nil {
		t.Error("a change that has ended is handed out again")
	}
	if n := testutil.ToFloat64(c.agent.metrics.changes.WithLabelValues("done")); n != 2 {
		t.Errorf("%v changes are counted", n)
	}
}

// TestSameMeaning: other words for what the pod has cost nothing: no change, no write, no Event, no question to NB.
func TestSameMeaning(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	c.proxy.Reset()
	for i := range 100 {
		c.edit(fmt.Sprintf(`[{"namespace":"shop","name":"blue",%s"example.org/n":%d}]`, strings.Repeat(" ", i), i))
	}
	c.told()
	if _, writes, _ := c.source.statusCounts(); writes != 0 || c.given() != nil || c.proxy.Counts().Operations != 0 {
		t.Errorf("%d writes of the status, %d operations", writes, c.proxy.Counts().Operations)
	}
}

// TestRefusedEdit: the owner is told once, and again of another fault; what the pod has stays.
func TestRefusedEdit(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	for range 3 {
		c.edit("green@net1,blue@x1")
	}
	c.told("Warning InterfaceChangeRefused: interface net1 is on network shop/blue")
	c.edit("{")
	c.told("Warning InterfaceChangeRefused: interface net1", "Warning InterfaceChangeRefused: annotation")
	c.edit("blue")
	c.edit("green@net1")
	c.told("Warning InterfaceChangeRefused: interface net1", "Warning InterfaceChangeRefused: annotation",
		"Warning InterfaceChangeRefused: interface net1")
	c.edit("blue")
	c.edit("green@net1")
	if _, events := c.source.told(); len(events) != 4 {
		t.Errorf("an edit that is refused again, after it was taken back, is not told: %q", events)
	}
	if c.given() != nil {
		t.Error("a refused edit is handed out")
	}
}

// TestAttachDisabled: without the program an edit is told and not handed out.
func TestAttachDisabled(t *testing.T) {
	c := newChanger(t)
	c.changes.conf.Attach = false
	c.has("blue", nil)
	c.edit("blue,blue")
	c.edit("blue,blue")
	c.told("Warning NetworksNotChanged: the annotation k8s.v1.cni.cncf.io/networks was edited while the pod ran")
	if c.given() != nil {
		t.Error("a change is handed out")
	}
}

// TestFailedChange: it is told once and tried again after growing pauses, and at once after an edit.
func TestFailedChange(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	c.edit("blue,blue@x1")
	fails := &agentapi.Error{Code: conf.CodeInUse, Msg: "in use"}
	for n := range 3 {
		s := c.mustGive()
		ended := time.Now()
		c.ended(&agentapi.ChangeEnded{Sandbox: s, Error: fails})
		c.step(0)
		due := c.dueAt()
		if c.stepTo(due.Add(-1)); c.given() != nil || due.Sub(ended) < pauseAfter(n+1) {
			t.Fatalf("tried again too early after %d failures", n+1)
		}
		c.stepTo(due)
	}
	c.told("Warning FailedAddingInterface: in use")
	s := c.mustGive()
	c.ended(&agentapi.ChangeEnded{Sandbox: s, Error: fails})
	c.step(0)
	c.edit("blue,blue@x2")
	c.mustGive()
	if a, b := pauseAfter(1), pauseAfter(100); a != firstPause || b != longestPause {
		t.Errorf("pauses %v and %v", a, b)
	}
	if n := testutil.ToFloat64(c.agent.metrics.changes.WithLabelValues("failed")); n != 4 {
		t.Errorf("%v failures are counted", n)
	}
}

// TestFailedRemoval: the Event says that it is a removal which failed.
func TestFailedRemoval(t *testing.T) {
	c := newChanger(t)
	c.has("blue,blue", nil)
	c.edit("blue")
	s := c.mustGive()
	c.has("blue,blue", func(e *journal.Entry) { e.Changing = []string{"net2"} })
	c.ended(&agentapi.ChangeEnded{Sandbox: s, Error: &agentapi.Error{Code: conf.CodeTryAgain, Msg: "NB is away"}})
	c.step(0)
	c.told("Warning FailedRemovingInterface: NB is away")
	c.edit("blue")
	s = c.mustGive() // what is left half-way is reason enough
	c.has("blue", func(e *journal.Entry) { e.Changed = true })
	c.ended(&agentapi.ChangeEnded{Sandbox: s})
	c.step(0)
	c.told("Warning FailedRemovingInterface: NB is away", "Normal RemovedInterface: removed net2")
}

// TestStatusFails: a network-status that cannot be written is written later. The interfaces stay, and are not made again.
func TestStatusFails(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	c.edit("blue,blue@x1")
	s := c.mustGive()
	c.has("blue,blue@x1", func(e *journal.Entry) { e.Changed = true })
	c.source.noStatus = errors.New("conflict")
	c.ended(&agentapi.ChangeEnded{Sandbox: s})
	c.step(0)
	c.source.noStatus = nil
	c.step(firstPause)
	if status, _, _ := c.source.statusCounts(); !strings.Contains(status, "x1") {
		t.Errorf("status %s", status)
	}
	c.source.noStatus = errors.New("conflict")
	c.edit("blue,blue@x1,blue@x2")
	s = c.mustGive()
	c.has("blue,blue@x1,blue@x2", func(e *journal.Entry) { e.Changed = true })
	c.source.noStatus = nil
	c.ended(&agentapi.ChangeEnded{Sandbox: s})
	c.step(0)
	c.told("Normal AddedInterface: added x1", "Normal AddedInterface: added x2")
	if status, _, _ := c.source.statusCounts(); !strings.Contains(status, "x1") || !strings.Contains(status, "x2") {
		t.Errorf("status %s", status)
	}
	if c.given() != nil {
		t.Error("handed out again")
	}
}

// TestAgentRestarted: the next agent writes the status of pods that were changed, once, and of no other pod.
func TestAgentRestarted(t *testing.T) {
	for changed, want := range map[bool]int{false: 0, true: 1} {
		c := newChanger(t)
		c.has("blue", func(e *journal.Entry) { e.Changed = changed })
		c.source.annotations = map[string]string{conf.NetworksAnnotation: "blue"}
		e, err := c.dir.Summary(pointerTo(c.sandbox("c1")))
		c.must(err)
		all := []*sandboxState{{Sandbox: e.Sandbox, entries: []*journal.Summary{e}}}
		for range 3 {
			c.compareAll(t.Context(), all)
			c.step(0)
		}
		c.edit(" blue")
		if _, writes, _ := c.source.statusCounts(); writes != want {
			t.Errorf("changed %v: %d writes of the status", changed, writes)
		}
		if c.compareAll(t.Context(), nil); len(c.changes.pods) != 0 {
			t.Error("a pod without a sandbox is kept")
		}
		c.compareAll(t.Context(), all)
		c.step(0)
		c.source.annotations = map[string]string{conf.NetworksAnnotation: "blue,blue"}
		c.compareAll(t.Context(), all) // an edit that nobody told
		c.step(0)
		c.mustGive()
		c.source.gone = true
		c.changes.ended(&agentapi.ChangeEnded{Sandbox: c.sandbox("c1")})
		c.step(0)
		if c.compareAll(t.Context(), nil); len(c.changes.pods) != 0 {
			t.Error("a pod that is gone is kept")
		}
	}
}

func pointerTo(s agentapi.Sandbox) *agentapi.Sandbox { return &s }

// TestProgramGone: a sandbox for which the plugin does not run is handed out again, one for which it runs is not.
func TestProgramGone(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	c.edit("blue,blue")
	c.mustGive()
	lock, err := c.dir.Lock(t.Context(), pointerTo(c.sandbox("c1")))
	c.must(err)
	c.step(answered)
	if c.given() != nil {
		t.Error("handed out while the plugin runs")
	}
	if !c.programLives(time.Now().Add(time.Hour)) {
		t.Error("the program counts as gone while the plugin runs")
	}
	lock.Unlock()
	due := c.dueAt()
	if c.stepTo(due.Add(-1)); c.given() != nil {
		t.Error("handed out too early")
	}
	c.stepTo(due)
	c.mustGive()
}

// TestNobodyAsks: if the program does not ask, the pod's owner is told once.
func TestNobodyAsks(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	c.edit("blue,blue")
	due := c.dueAt()
	c.stepTo(due.Add(-1))
	c.told()
	c.changes.asked = time.Now().Add(time.Hour) // the program asks, and its workers are busy
	c.stepTo(due)
	c.told()
	c.changes.asked = time.Time{}
	for range 3 {
		c.stepTo(c.dueAt())
		c.step(2 * answered)
	}
	c.told("Warning FailedAddingInterface: the node's program ovn-multinet-attach does not ask for changes")
	c.mustGive()
}

// TestPodsWithoutEntry: a pod that runs without an entry gets its networks, unless its status says that it has some.
func TestPodsWithoutEntry(t *testing.T) {
	c := newChanger(t)
	c.edit("blue")
	if c.given() != nil {
		t.Error("a pod that does not run yet is handed out")
	}
	c.source.runs = true
	c.edit("blue")
	if s := c.mustGive(); s != (agentapi.Sandbox{Namespace: "shop", Pod: "web", UID: "u-1"}) {
		t.Errorf("the program gets %+v", s)
	}
	given := agentapi.Sandbox{Namespace: "shop", Pod: "web", UID: "u-1"}
	c.ended(&agentapi.ChangeEnded{Sandbox: given, Error: &agentapi.Error{Code: conf.CodeTryAgain, Msg: "no result"}})
	c.step(0)
	c.told("Warning FailedAddingInterface: no result")
	c.step(firstPause)
	c.mustGive()
	c.has("blue", func(e *journal.Entry) { e.Changed = true })
	c.ended(&agentapi.ChangeEnded{Sandbox: given})
	c.step(0)
	c.told("Warning FailedAddingInterface: no result", "Normal AddedInterface: added net1 on shop/blue")
	c.must(os.Remove(c.dir.Entry(pointerTo(c.sandbox("c1")))))
	c.source.annotations = map[string]string{conf.NetworksAnnotation: "blue,blue", nad.StatusAnnotation: `[{"name":"shop/blue","interface":"net1"}]`}
	c.agent.NetworksEdited(&netmodel.Pod{Namespace: "shop", Name: "web", UID: "u-1", Node: "node1"})
	c.step(0)
	if c.given() != nil {
		t.Error("a pod whose journal is lost is handed out")
	}
}

// TestBoundaryChangeLimits: a pod that flips for ever, and a namespace of such pods, leave room for others.
func TestBoundaryChangeLimits(t *testing.T) {
	l, now := newChangeLimits(), time.Now()
	allowed := func(pod, namespace string, times int) (n int) {
		for range times {
			if l.allow(now, pod, namespace) {
				n++
			}
		}
		return n
	}
	if n := allowed("a", "shop", 100); n != changesOfPod {
		t.Errorf("a pod changes %d times at once", n)
	}
	rest := 0
	for i := range changesOfNamespace {
		rest += allowed(fmt.Sprint("c", i), "shop", 1)
	}
	if rest != changesOfNamespace-changesOfPod {
		t.Errorf("a pod that may not change uses up what its namespace has: %d are left", rest)
	}
	now = now.Add(changePeriodOfPod)
	if n := allowed("a", "shop", 100); n != 1 {
		t.Errorf("a pod changes %d times in its period", n)
	}
	var all int
	for i := range 100 {
		all += allowed(fmt.Sprint("b", i), "other", 2)
	}
	if all != changesOfNamespace {
		t.Errorf("a namespace changes %d times at once", all)
	}
	if allowed("c", "third", 1) != 1 {
		t.Error("another namespace may not change")
	}
	l.prune(now.Add(time.Hour))
	if n := len(l.pods) + len(l.namespaces); n != 0 {
		t.Errorf("%d limits are kept", n)
	}
	c := newChanger(t)
	c.has("blue", nil)
	given := 0
	c.edit("blue,blue")
	for s := c.given(); s != nil && given < 10*changesOfPod; s = c.given() { // each run changes nothing
		given++
		c.ended(&agentapi.ChangeEnded{Sandbox: *s})
		c.step(0)
	}
	if given < changesOfPod || given > 2*changesOfPod {
		t.Errorf("handed out %d times", given)
	}
}

// TestNextChange: the program's request over the socket, with the end of the last one.
func TestNextChange(t *testing.T) {
	r := newRig(t)
	r.conf.Attach = true
	r.start()
	c := &changer{rig: r, changes: r.agent.changes, dir: journal.Dir(r.conf.StateDir)}
	r.must(c.dir.Prepare())
	c.has("blue", nil)
	c.source.annotations = map[string]string{conf.NetworksAnnotation: "blue,blue"}
	c.agent.NetworksEdited(&netmodel.Pod{Namespace: "shop", Name: "web", UID: "u-1", Node: "node1"})
	client := &agentapi.Client{Socket: r.conf.Socket}
	defer client.Close()
	next := agentapi.NextChange{}
	r.must(client.Call(t.Context(), agentapi.OpNextChange, agentapi.NextChangeRequest{}, &next))
	if next.Change == nil || next.Change.ContainerID != "c1" {
		t.Fatalf("the program gets %+v", next.Change)
	}
	c.has("blue,blue", func(e *journal.Entry) { e.Changed = true })
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { // there is no further pod, so this waits until the test is over
		ended := agentapi.NextChangeRequest{Ended: &agentapi.ChangeEnded{Sandbox: *next.Change}}
		asked <- client.Call(ctx, agentapi.OpNextChange, ended, nil)
	}()
	defer func() { cancel(); <-asked }()
	r.eventually("told", func() bool {
		_, events := r.source.told()
		return slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "AddedInterface: added net2") })
	})
}
