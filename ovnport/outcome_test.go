package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// The ways in which a client does not learn what became of its transaction.
var losses = []struct {
	name string
	lose func(*world, *testing.T)
}{
	{"cut before the server had it", func(w *world, _ *testing.T) { w.proxy.CutBeforeNext() }},
	{"cut after the server did it", func(w *world, _ *testing.T) { w.proxy.DropNextReply() }},
	{"cut before the first read", func(w *world, t *testing.T) {
		w.once(t, func(tx ovndbtest.Transact) bool { return !tx.Writes }, w.proxy.Cut)
	}},
	{"server restarted before it had it", func(w *world, t *testing.T) {
		w.once(t, func(tx ovndbtest.Transact) bool { return tx.Writes }, w.Restart)
	}},
	{"cut after it, server restarted before the next", func(w *world, t *testing.T) {
		w.proxy.DropNextReply()
		writes := 0
		w.once(t, func(tx ovndbtest.Transact) bool {
			if tx.Writes {
				writes++
			}
			return writes == 2
		}, w.Restart)
	}},
}

// Whatever is lost on the way, in the end there is one set of rows, and it is the one that Ensure returned.
func TestEnsureWithUnknownOutcome(t *testing.T) {
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			w := newWorld(t)
			o := owner("web-1", "sandbox-1")
			wants := []ovnport.Request{
				want(w.network(t, "blue", netDual), "net1"),
				want(w.network(t, "red", net4), "net2", "10.1.0.7", "10.1.0.8", "02:00:00:00:00:2a"),
				want(w.network(t, "mac", netMAC), "net3"),
			}
			for _, sandbox := range []string{"sandbox-1", "sandbox-2"} { // new, and a takeover
				o.Sandbox = sandbox
				w.proxy.Reset()
				loss.lose(w, t)
				ports := mustEnsure(t, w.nb, o, wants...)
				w.proxy.Before(nil)
				// If an answer is lost, a second transaction sets the node's epoch.
				if got := w.proxy.Counts(); got.Committed != 1 && got.Committed != 2 {
					t.Errorf("%s: %d transactions committed, want 1 or 2", sandbox, got.Committed)
				}
				w.wantPorts(t, o, ports)
			}
		})
	}
}

func TestReleaseWithUnknownOutcome(t *testing.T) {
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			w := newWorld(t)
			n, m := w.network(t, "blue", netDual), w.network(t, "red", net4)
			o, stays := owner("web-1", "sandbox-1"), owner("web-2", "sandbox-2")
			kept := mustEnsure(t, w.nb, stays, want(n, "net1"), want(m, "net2"))
			for _, release := range []func(ports []ovnport.Port) error{
				func(ports []ovnport.Port) error { return w.nb.Release(timeout(t), o, held(ports)) },
				func([]ovnport.Port) error { return w.nb.ReleaseSandbox(timeout(t), o) },
			} {
				ports := mustEnsure(t, w.nb, o, want(n, "net1"), want(m, "net2", "10.1.0.7", "10.1.0.8"))
				w.proxy.Reset()
				loss.lose(w, t)
				if err := release(ports); err != nil {
					t.Error(err)
				}
				w.proxy.Before(nil)
				// If the answer to the first one is lost, one sets the node's epoch, and one removes the ports from the list.
				if got := w.proxy.Counts(); got.Committed < 1 || got.Committed > 3 {
					t.Errorf("%d transactions committed, want 1 to 3", got.Committed)
				}
				w.wantPorts(t, stays, kept)
				read(t, w.Server).checkLists(t)
				w.proxy.Reset()
			}
		})
	}
}

// The answer was lost, and before the second attempt another sandbox took the port over: it keeps it.
func TestTakenOverAfterAnUnknownOutcome(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	other := w.other(t)
	old, newer := owner("web-1", "sandbox-1"), owner("web-1", "sandbox-2")
	var taken []ovnport.Port
	w.proxy.DropNextReply()
	writes := 0
	happened := w.once(t, func(tx ovndbtest.Transact) bool {
		if tx.Writes {
			writes++
		}
		return writes == 2
	}, func() { taken = mustEnsure(t, other, newer, want(n, "net1")) })
	no := errors.New("a newer sandbox has it")
	_, err := w.nb.Ensure(timeout(t), old, []ovnport.Request{want(n, "net1")}, func(_ context.Context, o ovnport.Owner) error {
		if o != newer {
			t.Errorf("asked about %+v, want %+v", o, newer)
		}
		return no
	})
	happened()
	if !errors.Is(err, no) {
		t.Errorf("error %v, want that of supersedes", err)
	}
	w.wantPorts(t, newer, taken)
}

// While the database is away an ADD tries on until its time is up, and says to try again.
func TestEnsureWhileTheServerIsDown(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	o := owner("web-1", "sandbox-1")
	mustRelease(t, w.nb, o.Sandbox, mustEnsure(t, w.nb, o, want(n, "net1"))...)
	w.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := w.nb.Ensure(ctx, o, []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeTryAgain)
	w.Restart()
	w.wantPorts(t, o, mustEnsure(t, w.nb, o, want(n, "net1")))
}

// Between the look at a port and its takeover, its owner changes: it is decided anew.
func TestTakeoverIsRaced(t *testing.T) {
	isTakeover := hasOp("update", "Logical_Switch_Port")
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	other := w.other(t)
	first, second, third := owner("web-1", "sandbox-1"), owner("web-1", "sandbox-2"), owner("web-1", "sandbox-3")
	wants := []ovnport.Request{want(n, "net1"), want(n, "net2")}
	no := errors.New("no")

	t.Run("by a third sandbox", func(t *testing.T) {
		mustEnsure(t, w.nb, first, wants...)
		var taken []ovnport.Port
		happened := w.once(t, isTakeover, func() { taken = mustEnsure(t, other, third, wants...) })
		_, err := w.nb.Ensure(timeout(t), second, wants, func(_ context.Context, o ovnport.Owner) error {
			if o == third {
				return no
			}
			return nil
		})
		happened()
		if !errors.Is(err, no) {
			t.Errorf("error %v, want that of supersedes about the third", err)
		}
		w.wantPorts(t, third, taken)
		mustRelease(t, w.nb, third.Sandbox, taken...)
	})
	t.Run("by the release of one of the ports", func(t *testing.T) {
		old := mustEnsure(t, w.nb, first, wants...)
		happened := w.once(t, isTakeover, func() { mustRelease(t, other, first.Sandbox, old[1]) })
		ports := mustEnsure(t, w.nb, second, wants...)
		happened()
		w.wantPorts(t, second, ports)
		mustRelease(t, w.nb, second.Sandbox, ports...)
	})
	t.Run("by another pod that gets the address", func(t *testing.T) {
		old := mustEnsure(t, w.nb, first, wants[0])
		stranger := owner("web-2", "sandbox-s")
		var theirs []ovnport.Port
		happened := w.once(t, isTakeover, func() {
			mustRelease(t, other, first.Sandbox, old...)
			theirs = mustEnsure(t, other, stranger, want(n, "net1", old[0].Addresses[0].Addr().String()))
		})
		ports := mustEnsure(t, w.nb, second, wants[0])
		happened()
		s := read(t, w.Server)
		s.check(t)
		if bad := s.differs(stranger, theirs[0], true) + s.differs(second, ports[0], true); bad != "" {
			t.Error(bad)
		}
	})
}

// An Ensure that found its own ports there confirms them: were they released meanwhile, they are made again.
func TestOwnPortsGoBeforeTheAnswer(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	other := w.other(t)
	o := owner("web-1", "sandbox-1")
	wants := []ovnport.Request{want(n, "net1"), want(n, "net2")}
	old := mustEnsure(t, w.nb, o, wants...)
	happened := w.once(t, func(tx ovndbtest.Transact) bool { return !tx.Writes && hasOp("wait", "Logical_Switch_Port")(tx) },
		func() { mustRelease(t, other, o.Sandbox, old[0]) })
	ports := mustEnsure(t, w.nb, o, wants...)
	happened()
	w.wantPorts(t, o, ports)
}

// The name is held at another key, and that port goes, or changes hands, before it can be moved.
func TestMoveIsRaced(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	other := w.other(t)
	first, second, third := owner("web-1", "sandbox-1"), owner("web-1", "sandbox-2"), owner("web-1", "sandbox-3")
	isUnlink := func(tx ovndbtest.Transact) bool {
		return hasOp("mutate", "Logical_Switch")(tx) && !hasOp("insert", "Logical_Switch_Port")(tx)
	}
	old := mustEnsure(t, w.nb, first, want(n, "net1", "10.1.0.7"))
	happened := w.once(t, isUnlink, func() { mustRelease(t, other, first.Sandbox, old...) })
	ports := mustEnsure(t, w.nb, second, want(n, "net1", "10.1.0.8"))
	happened()
	w.wantPorts(t, second, ports)

	var taken []ovnport.Port
	happened = w.once(t, isUnlink, func() { taken = mustEnsure(t, other, third, want(n, "net1", "10.1.0.8")) })
	no := errors.New("no")
	_, err := w.nb.Ensure(timeout(t), first, []ovnport.Request{want(n, "net1", "10.1.0.7")}, func(_ context.Context, o ovnport.Owner) error {
		if o == third {
			return no
		}
		return nil
	})
	happened()
	if !errors.Is(err, no) {
		t.Errorf("error %v, want that of supersedes about the third", err)
	}
	w.wantPorts(t, third, taken)
}

// Two pods want one address at once, the second in between the first's decision and its write.
func TestLastAddressIsRaced(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "tiny", `"subnets":"10.1.0.0/29"`) // five addresses
	other := w.other(t)
	for i := range 3 {
		mustEnsure(t, other, owner(fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i)), want(n, "net1"))
	}
	// Before each of its writes someone takes what it is about to write, until one address is left.
	stranger := owner("stranger", "sandbox-s")
	happened := w.once(t, hasOp("insert", "Logical_Switch_Port"), func() {
		mustEnsure(t, other, stranger, want(n, "net1"))
	})
	o := owner("late", "sandbox-late")
	ports := mustEnsure(t, w.nb, o, want(n, "net1"))
	happened()
	s := read(t, w.Server)
	s.check(t)
	if bad := s.differs(o, ports[0], true); bad != "" || len(s.ports) != 5 {
		t.Errorf("%s; %d ports, want 5", bad, len(s.ports))
	}
	_, err := w.nb.Ensure(timeout(t), owner("too-late", "sandbox-tl"), []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft)
}

// What a client receives for one Ensure does not depend on how many ports there are.
func TestReceivedDoesNotGrowWithPorts(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "big", `"subnets":"10.0.0.0/8"`)
	measure := func() float64 {
		o := owner("web-1", "sandbox-1")
		w.proxy.Reset()
		for i := range 10 {
			o.Sandbox = fmt.Sprint("sandbox-", i) // new, then takeovers
			ports := mustEnsure(t, w.nb, o, want(n, "net1"), want(n, "net2", "10.250.0.1", "10.250.0.2"))
			if i%3 == 2 {
				mustRelease(t, w.nb, o.Sandbox, ports...)
			}
		}
		if err := w.nb.ReleaseSandbox(timeout(t), o); err != nil {
			t.Fatal(err)
		}
		return float64(w.proxy.Counts().Received)
	}
	w.fill(t, n, 0, 10)
	few := measure()
	w.fill(t, n, 10, 20_000)
	many := measure()
	if few == 0 || math.Abs(many-few)/few > 0.1 {
		t.Errorf("received %.0f bytes with 10 ports and %.0f with 20,000", few, many)
	}
}

// fill makes ports of others, from the i-th to the n-th, in one transaction.
func (w *world) fill(t testing.TB, n *netmodel.Network, from, to int) {
	t.Helper()
	w.fillWith(t, n, from, to, func(a netip.Addr) string { return ovndb.AddressKey(n.AddressBook(), a) })
}

// fillWith gives the ports the keys that keyOf makes of their addresses.
func (w *world) fillWith(t testing.TB, n *netmodel.Network, from, to int, keyOf func(netip.Addr) string) {
	t.Helper()
	var ops []ovndbtest.Op
	var keys []any
	for i := from; i < to; i++ {
		a := addr(fmt.Sprintf("10.200.%d.%d", i/250, i%250))
		key := keyOf(a)
		keys = append(keys, ovndbtest.UUID(key))
		text := fmt.Sprintf("0a:58:0a:c8:%02x:%02x %s", i/250, i%250, a)
		ops = append(ops, ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key, "row": ovndbtest.Op{
			"name": fmt.Sprintf("shop/filler-%d/net1", i), "addresses": text, "port_security": text,
			"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/namespace": "shop", "ovn-multinet/pod": fmt.Sprintf("filler-%d", i), "ovn-multinet/interface": "net1",
				"ovn-multinet/network": n.ID(), "ovn-multinet/sandbox": fmt.Sprintf("filler-%d", i)})}})
	}
	ops = append(ops, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch",
		"where":     []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.SwitchKey(n.ID()))}},
		"mutations": []any{[]any{"ports", "insert", ovndbtest.Set(keys...)}}})
	w.Transact(t, ops...)
}
