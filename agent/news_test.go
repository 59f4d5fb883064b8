package agent

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// announce has a controller announce news, and waits until it is the agent's turn to read.
func (k *keeper) announce() {
	k.t.Helper()
	k.must(nbrows.NewStore(k.networks.DB).TellNews(k.t.Context()))
	k.eventually("its turn", k.agent.gateways.due.Load)
}

// An agent whose NB has a controller that announces news reads after news, when it has a pod on a network that it does
// not know yet, when the reconcile pass reads, and otherwise rarely.
func TestReadsAfterNews(t *testing.T) {
	k := newKeeper(t)
	k.announce()
	k.look() // announces the node
	look := func(why string, want int) {
		t.Helper()
		k.proxy.Reset()
		if wait := k.look(); wait != memberEvery {
			t.Errorf("%s: the next pass comes after %v, want %v", why, wait, memberEvery)
		}
		if got := k.proxy.Counts(); got.ReadOnly != want || got.Committed != 0 {
			t.Errorf("%s: %+v, want %d transactions that read", why, got, want)
		}
	}
	for range readEvery/memberEvery - 1 {
		look("no news", 0)
	}
	look("no news for a long time", 1)
	k.announce()
	look("news", 1)
	look("no more news", 0)
	reconcile := func() {
		t.Helper()
		k.now = k.now.Add(readEvery / 3)
		k.agent.reconciler.beside()
	}
	reconcile()
	look("a reconcile pass", 1)
	k.agent.reconciler.beside()
	look("another one right after it", 0)

	// What NB has lost of the node comes back.
	k.nb.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{}})
	k.announce()
	look("NB has lost the node", 1)
	k.now = k.now.Add(announceEvery)
	if k.look(); k.chassis() != "chassis-1" {
		t.Errorf("NB knows chassis %q, want chassis-1", k.chassis())
	}
	look("NB has it again", 0)

	// An NB that is read in vain is read again soon.
	reconcile()
	look("a reconcile pass before the failure", 1)
	reconcile()
	k.failing("HA_Chassis")
	again := k.now
	if k.look(); k.agent.gateways.looked != again {
		t.Error("after a failure nothing is read")
	}

	k.port("shop/a/net1", "shop/blue", "5")
	k.eventually("in the copy", func() bool { ports, err := k.agent.ovs.PodPorts(t.Context()); return err == nil && len(ports) == 1 })
	for range 2 { // its network, and then the router of the network
		if wait := k.look(); wait != activeEvery {
			t.Errorf("a new port: the next pass comes after %v, want %v", wait, activeEvery)
		}
	}
	look("the list of the network", 1)
	look("all of the port is known", 0)

	// Each of these rare messages reads again which router the network is on.
	for range 2 {
		reconcile()
		look("a reconcile pass with a pod", 1)
		if got := k.proxy.Counts().Operations; got != 8 {
			t.Errorf("it reads by %d operations, want 8: the gateways, two lists, the router of the network and of the node's part of it, "+
				"the node, the MTUs and the uplinks", got)
		}
	}
}
