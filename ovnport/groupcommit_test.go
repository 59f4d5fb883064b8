package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// heldWrite is a database whose answer to one write is held back, and the writes that wait behind it.
type heldWrite struct {
	*world
	blocked  ovnport.Owner
	ports    []ovnport.Port // of the pod whose write is held back
	release  chan struct{}
	pods     sync.WaitGroup
	expected int // writes that wait
}

// holdWrite adds a pod, and holds its transaction back until the test lets it go.
func (w *world) holdWrite(t *testing.T, n *netmodel.Network) *heldWrite {
	t.Helper()
	h := &heldWrite{world: w, blocked: owner("blocker", "sandbox-of-blocker"), release: make(chan struct{})}
	arrived := make(chan struct{})
	w.once(t, func(tx ovndbtest.Transact) bool { return tx.Writes }, func() {
		close(arrived)
		<-h.release
	})
	h.pods.Go(func() { h.ports = mustEnsure(t, w.nb, h.blocked, want(n, "net1")) })
	<-arrived
	return h
}

// behind runs something that writes, and returns when its write waits behind the one that is held back.
func (h *heldWrite) behind(t *testing.T, do func()) {
	t.Helper()
	h.pods.Go(do)
	h.expected++
	for ctx := timeout(t); h.nb.Waiting() != h.expected; {
		if ctx.Err() != nil {
			t.Fatalf("%d writes wait, want %d", h.nb.Waiting(), h.expected)
		}
		time.Sleep(time.Millisecond)
	}
}

// letGo lets the write go that is held back, and waits until all writes have ended.
func (h *heldWrite) letGo() {
	h.proxy.Before(nil)
	h.proxy.Reset()
	close(h.release)
	h.pods.Wait()
}

// pod is a pod with one port, on node-1.
type pod struct {
	owner ovnport.Owner
	ports []ovnport.Port
	err   error
}

// add adds a pod behind the write that is held back.
func (h *heldWrite) add(t *testing.T, name string, wants ...ovnport.Request) *pod {
	p := &pod{owner: owner(name, "sandbox-of-"+name)}
	h.behind(t, func() { p.ports, p.err = h.nb.Ensure(timeout(t), p.owner, wants, anyone) })
	return p
}

// wantAll demands that the pods have their ports, and the pod whose write was held back.
func (h *heldWrite) wantAll(t *testing.T, pods ...*pod) {
	t.Helper()
	now := read(t, h.Server)
	now.checkLists(t)
	for _, p := range append(pods, &pod{owner: h.blocked, ports: h.ports}) {
		if p.err != nil || len(p.ports) == 0 {
			t.Errorf("%s: %d ports, %v", p.owner.Pod, len(p.ports), p.err)
		}
		for _, port := range p.ports {
			if bad := now.differs(p.owner, port, true); bad != "" {
				t.Error(bad)
			}
		}
	}
}

// The pods that come while a transaction is at the database are one transaction: adds and releases, of one network and
// of several.
func TestGroupCommit(t *testing.T) {
	w := newWorld(t)
	wide := `"subnets":"10.0.0.0/8,fd01::/64"` // no two of these pods begin their search at one address
	n, m := w.network(t, "blue", wide), w.network(t, "red", wide)
	var old []*pod
	for i := range 10 {
		o := owner(fmt.Sprint("old-", i), fmt.Sprint("sandbox-of-old-", i))
		old = append(old, &pod{owner: o, ports: mustEnsure(t, w.nb, o, want(n, "net1"))})
	}
	h := w.holdWrite(t, n)
	var pods []*pod
	for i := range 20 {
		pods = append(pods, h.add(t, fmt.Sprint("web-", i), want(n, "net1"), want(m, "net2")))
	}
	for _, p := range old {
		h.behind(t, func() { p.err = h.nb.Release(timeout(t), p.owner, held(p.ports)) })
	}
	h.letGo()
	h.wantCounts(t, 2, 0, 0)
	h.wantAll(t, pods...)
	for _, p := range old {
		if row := read(t, h.Server).ports[p.ports[0].UUID]; p.err != nil || row != nil && ids(row)["ovn-multinet/pod"] == p.owner.Pod {
			t.Errorf("%s: %v after its release (%v)", p.owner.Pod, row, p.err)
		}
	}
}

// A group has a bounded size: the database serves other clients between two groups.
func TestGroupCommitIsBounded(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", `"subnets":"10.0.0.0/8"`)
	h := w.holdWrite(t, n)
	var pods []*pod
	for i := range 150 {
		pods = append(pods, h.add(t, fmt.Sprint("web-", i), want(n, "net1")))
	}
	largest, total := 0, 0
	h.letGoSeeing(func(tx ovndbtest.Transact) {
		largest, total = max(largest, len(tx.Ops)), total+len(tx.Ops)
	})
	groups := (total + ovnport.MaxGroupOperations - 1) / ovnport.MaxGroupOperations
	if got := h.proxy.Counts().Committed; largest > ovnport.MaxGroupOperations || groups < 2 || got > 1+groups+1 {
		t.Errorf("%d transactions, the largest of %d operations, %d in all; want at most %d operations in one",
			got, largest, total, ovnport.MaxGroupOperations)
	}
	h.wantAll(t, pods...)
}

// letGoSeeing is letGo. It shows the test each transaction after the one that was held back.
func (h *heldWrite) letGoSeeing(see func(ovndbtest.Transact)) {
	h.proxy.Before(see)
	h.proxy.Reset()
	close(h.release)
	h.pods.Wait()
	h.proxy.Before(nil)
}

// Writes that the database refuses do not fail the other pods of the group: an address that is in use, a network that
// does not exist, and a name that is in use (this shows only at the commit).
func TestGroupCommitWithoutTheRefused(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	holder := owner("holder", "sandbox-of-holder")
	mustEnsure(t, w.nb, holder, want(n, "net1", "10.1.0.7"))
	foreign := ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid-name": "foreign",
		"row": ovndbtest.Op{"name": "shop/named/net1"}}
	w.Transact(t, foreign, ovndbtest.Op{"op": "insert", "table": "Logical_Switch",
		"row": ovndbtest.Op{"name": "other", "ports": []any{"named-uuid", "foreign"}}})
	h := w.holdWrite(t, n)
	var pods []*pod
	add := func(name string, wants ...ovnport.Request) *pod { return h.add(t, name, wants...) }
	for i := range 4 {
		pods = append(pods, add(fmt.Sprint("early-", i), want(n, "net1")))
	}
	refused := map[*pod]uint{
		add("second", want(n, "net1", "10.1.0.7")):                              conf.CodeInUse,
		add("named", want(n, "net1")):                                           conf.CodeInUse,
		add("homeless", want(parseNetwork(t, "none", net4), "net1")):            conf.CodeTryAgain,
		add("unlucky", want(n, "net1"), want(n, "net2", "10.1.0.7")):            conf.CodeInUse,
		add("beside", want(n, "net1", "10.1.0.9"), want(n, "net2", "10.1.0.7")): conf.CodeInUse,
	}
	for i := range 4 {
		pods = append(pods, add(fmt.Sprint("late-", i), want(n, "net1")))
	}
	h.letGo()
	for p, code := range refused {
		wantCode(t, p.err, code)
	}
	h.wantAll(t, pods...)
	if got := len(read(t, w.Server).ports); got != len(pods)+3 { // and those of holder, blocker and the other
		t.Errorf("%d ports, want %d", got, len(pods)+3)
	}
}

// A takeover and the release of the same port, at the same moment: the database deletes a row that lost its last
// reference at the commit, so in one transaction both would succeed, and the port would be gone.
func TestGroupCommitKeepsOneRowApart(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	first, second := owner("web", "sandbox-1"), owner("web", "sandbox-2")
	ports := mustEnsure(t, w.nb, first, want(n, "net1"))
	again := &pod{owner: second}
	asked, proceed, taken := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(taken)
		again.ports, again.err = w.nb.Ensure(timeout(t), second, []ovnport.Request{want(n, "net1")},
			func(context.Context, ovnport.Owner) error {
				close(asked)
				<-proceed
				return nil
			})
	}()
	<-asked
	h := w.holdWrite(t, n)
	var err error
	h.behind(t, func() { err = h.nb.Release(timeout(t), first, held(ports)) })
	h.behind(t, func() {
		close(proceed)
		<-taken
	})
	h.letGo()
	if err != nil {
		t.Error(err)
	}
	h.wantAll(t, again)
}

// A pod whose time ends while its write waits has written nothing.
func TestGroupCommitEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	h := w.holdWrite(t, n)
	ctx, cancel := context.WithCancel(timeout(t))
	waits := make(chan error)
	h.behind(t, func() {
		_, err := h.nb.Ensure(ctx, owner("web", "sandbox-1"), []ovnport.Request{want(n, "net1")}, anyone)
		waits <- err
	})
	stays := h.add(t, "stays", want(n, "net1"))
	cancel()
	err := <-waits
	wantCode(t, err, conf.CodeTryAgain, "not written")
	if errors.Is(err, ovndb.ErrUnknownOutcome) {
		t.Errorf("%v: its write was not sent", err)
	}
	h.letGo()
	h.wantAll(t, stays)
	if got := len(read(t, w.Server).ports); got != 2 {
		t.Errorf("%d ports, want 2", got)
	}
}

// In a group of which one write is refused, a write whose context has ended is not sent again: its caller may have
// looked for the rows already.
func TestGroupCommitForgetsTheEnded(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	mustEnsure(t, w.nb, owner("holder", "sandbox-of-holder"), want(n, "net1", "10.1.0.7"))
	h := w.holdWrite(t, n)
	ctx, cancel := context.WithCancel(timeout(t))
	ended := make(chan error, 1)
	h.behind(t, func() {
		_, err := h.nb.Ensure(ctx, owner("web", "sandbox-1"), []ovnport.Request{want(n, "net1")}, anyone)
		ended <- err
	})
	h.add(t, "second", want(n, "net1", "10.1.0.7"))
	stays := h.add(t, "stays", want(n, "net1"))
	var once sync.Once
	h.letGoSeeing(func(tx ovndbtest.Transact) {
		if slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool { return o["op"] == "insert" }) {
			once.Do(func() { // the group with all three
				cancel()
				if err := <-ended; !errors.Is(err, ovndb.ErrUnknownOutcome) {
					t.Errorf("%v, want that the outcome is unknown", err)
				}
			})
		}
	})
	h.wantAll(t, stays)
	for _, row := range read(t, w.Server).ports {
		if row["name"] == "shop/web/net1" {
			t.Error("the port was written after its caller had left")
		}
	}
}
