package ovnport_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// A transaction whose answer was lost arrives after the release of its ports: the database refuses it. Later pods of
// the node, and another process of the node, get ports all the same.
func TestLateTransactionIsRefused(t *testing.T) {
	for name, ended := range map[string]func(t *testing.T, w *world, request ovnport.Request) *ovnport.NB{
		"the ADD was repeated": func(t *testing.T, w *world, request ovnport.Request) *ovnport.NB {
			mustRelease(t, w.nb, "sandbox-1", mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), request)...)
			return w.nb
		},
		"the ADD ended, and a DEL came": func(t *testing.T, w *world, request ovnport.Request) *ovnport.NB {
			w.loseAdd(t, request)
			if err := w.nb.ReleaseSandbox(timeout(t), owner("web-1", "sandbox-1")); err != nil {
				t.Fatal(err)
			}
			return w.nb
		},
		"the ADD ended, and a DEL came that knows the keys": func(t *testing.T, w *world, request ovnport.Request) *ovnport.NB {
			keys := mustEnsure(t, w.other(t), owner("web-1", "sandbox-1"), request) // they follow from the request
			mustRelease(t, w.other(t), "sandbox-1", keys...)
			w.loseAdd(t, request)
			mustRelease(t, w.nb, "sandbox-1", keys...)
			return w.nb
		},
		"the agent ended, and the next one had the DEL": func(t *testing.T, w *world, request ovnport.Request) *ovnport.NB {
			w.loseAdd(t, request)
			next := w.other(t)
			portsOf(t, next.PortsOn("node-1")) // the agent begins with that
			if err := next.ReleaseSandbox(timeout(t), owner("web-1", "sandbox-1")); err != nil {
				t.Fatal(err)
			}
			return next
		},
		"a pod's port was inserted again": func(t *testing.T, w *world, request ovnport.Request) *ovnport.NB {
			o := owner("web-1", "sandbox-1")
			port := mustEnsure(t, w.other(t), o, request)[0]
			w.NBCtl("lsp-del", port.Name)
			restored := request
			restored.IPs, restored.MAC = port.Addresses, port.MAC
			if err := w.nb.Restore(timeout(t), o, restored, port, nobody(t)); err == nil {
				t.Fatal("the answer was not lost")
			}
			mustRelease(t, w.nb, "sandbox-1", port)
			return w.nb
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			request := want(w.network(t, "blue", net4), "net1")
			arrive := w.proxy.DelayNext()
			client := ended(t, w, request)
			if err := arrive(); err == nil || !strings.Contains(err.Error(), ovndb.ReasonTimedOut) {
				t.Errorf("the late transaction: %v; want that a guard refuses it", err)
			}
			w.wantPorts(t, owner("web-1", "sandbox-1"), nil)
			for _, n := range []*ovnport.NB{client, w.other(t), client} {
				o := owner("web-2", "sandbox-2")
				mustRelease(t, n, "sandbox-2", mustEnsure(t, n, o, request)...)
			}
			read(t, w.Server).checkLists(t)
		})
	}
}

// loseAdd has an ADD of sandbox-1 end while its transaction is on its way.
func (w *world) loseAdd(t *testing.T, request ovnport.Request) {
	t.Helper()
	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()
	w.proxy.Before(func(tx ovndbtest.Transact) {
		if tx.Writes {
			cancel()
		}
	})
	defer w.proxy.Before(nil)
	if _, err := w.nb.Ensure(ctx, owner("web-1", "sandbox-1"), []ovnport.Request{request}, nobody(t)); err == nil {
		t.Fatal("the answer was not lost")
	}
}

// The answers that are lost cost one transaction more for all pods that waited for them, and a list of an older version,
// which has no epoch, gets one.
func TestEpochIsSetOnce(t *testing.T) {
	w := newWorld(t)
	request := want(w.network(t, "blue", netDual), "net1")
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), request)
	w.wantCounts(t, 1, 0, 0)
	w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Copp",
		"where":     []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.PortListKey("node-1"))}},
		"mutations": []any{[]any{"external_ids", "delete", ovndbtest.Set("ovn-multinet/epoch")}}})
	w.proxy.Reset()
	mustEnsure(t, w.nb, owner("web-2", "sandbox-2"), request)
	w.wantCounts(t, 2, 1, 1) // refused; the list; its epoch; the port
	w.proxy.Reset()
	w.proxy.DropNextReply()
	mustEnsure(t, w.nb, owner("web-3", "sandbox-3"), request)
	mustEnsure(t, w.nb, owner("web-4", "sandbox-4"), request)
	w.wantCounts(t, 3, 1, 2) // lost; the list and its epoch; refused, because the port is there; it is; the next port
}

// The transaction of a migration's target arrives after the target has failed: it does not name the target again.
func TestLateTargetIsRefused(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	port := mustEnsure(t, w.other(t), launcher(1), wantClaim(n))[0]
	var arrive func() error
	happened := w.once(t, hasOp("update", "Logical_Switch_Port"), func() { arrive = w.proxy.DelayNext() })
	if _, err := w.nb.Ensure(timeout(t), launcher(2), []ovnport.Request{wantClaim(n)}, migrates); err != nil {
		t.Fatal(err)
	}
	happened()
	w.mustLeave(t, 2, port)
	if err := arrive(); err == nil || !strings.Contains(err.Error(), ovndb.ReasonTimedOut) {
		t.Errorf("the late transaction: %v; want that a guard refuses it", err)
	}
	w.wantShared(t, "launcher-1", "requested-chassis:chassis-2", "node-2 sandbox-1 ")
}
