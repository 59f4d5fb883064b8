package agent

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// A node's first pod costs a look and the claim more than one on a layer2 network, the others nothing. An agent that
// begins anew finds what the node has.
func TestBlockIsAskedForOnce(t *testing.T) {
	r := newLayer3(t)
	r.has(l3)
	r.start()
	first, err := r.planFor("c1", on("x1"))
	r.must(err)
	r.wantCounts(2, 0, 1)
	block := netip.MustParsePrefix(r.blocks()["node1"])
	wantIn(t, first.Interfaces[0], block, way(block))
	if first.Interfaces[0].MTU != 1400 || block.Bits() != 24 {
		t.Errorf("MTU %d and block %s, want 1400 and a /24", first.Interfaces[0].MTU, block)
	}

	second, err := r.planFor("c2", on("x2"))
	r.must(err)
	r.wantCounts(1, 0, 0)
	wantIn(t, second.Interfaces[0], block, way(block))

	r.restart()
	third, err := r.planFor("c3", on("x3"))
	r.must(err)
	r.wantCounts(1, 0, 1)
	wantIn(t, third.Interfaces[0], block, way(block))
	r.wantPods("shop/web/x1", "shop/web/x2", "shop/web/x3")
	if got := r.blocks(); len(got) != 1 || got["node1"] != block.String() {
		t.Errorf("blocks %v, want %s of node1 alone", got, block)
	}
}

// Twenty pods at once on a node that has nothing yet: one asks, the others get what it was given.
func TestPodsAtOnceOnAFreshNode(t *testing.T) {
	r := newLayer3(t)
	r.has(l3)
	r.start()
	claims, looks := 0, 0
	held := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(held) })
	defer letGo()
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if claimsBlock(tx) {
			claims++
		} else if tx.Ops[0]["op"] == "select" && tx.Ops[0]["table"] == "Logical_Switch" {
			looks++
			<-held
		}
	})
	answers := r.beginPlans(20, on("x%d"))
	r.eventually("waited, all but one", func() bool { return r.agent.subnets.reading.usersOf("shop/l3") == 20 })
	letGo()
	plans := answers()
	r.proxy.Before(nil)
	if got := r.proxy.Counts(); claims != 1 || looks != 1 || got.Committed < 2 || got.Committed > 21 {
		t.Errorf("%d claims, %d looks at switches, %d transactions committed; want 1, 1, and one for the subnet and up to 20 for the pods", claims, looks, got.Committed)
	}
	block := netip.MustParsePrefix(r.blocks()["node1"])
	addresses := map[netip.Prefix]bool{}
	for _, p := range plans {
		wantIn(t, p.Interfaces[0], block, way(block))
		addresses[p.Interfaces[0].Addresses[0]] = true
	}
	if len(addresses) != 20 || len(r.pods()) != 20 {
		t.Errorf("%d addresses, ports %v; want 20", len(addresses), r.pods())
	}
}

// A layer3 network that NB lost with all nodes' blocks: the node gets those again that its pods have addresses of.
func TestBoundaryLostBlocksComeBack(t *testing.T) {
	r := newLayer3(t)
	n := r.has(l3)
	first := r.share(n, "node1")
	r.must(r.networks.DeleteNodeSwitch(t.Context(), n.ID(), "node1"))
	for _, a := range []string{"10.128.7.9", "10.128.200.3"} {
		view, err := r.networks.Subnets.Ensure(t.Context(), n, "node1", netip.MustParseAddr(a))
		r.must(err)
		want := netip.PrefixFrom(netip.MustParseAddr(a), 24).Masked()
		if view.Subnets[0] != want || want == first {
			t.Errorf("a node with address %s got block %s, want %s, which is not the one that it begins with", a, view.Subnets[0], want)
		}
		r.must(r.networks.DeleteNodeSwitch(t.Context(), n.ID(), "node1"))
	}
	r.give(n, "10.128.7.0/24")
	view, err := r.networks.Subnets.Ensure(t.Context(), n, "node1", netip.MustParseAddr("10.128.7.9"))
	r.must(err)
	if view.Subnets[0].Addr() == netip.MustParseAddr("10.128.7.0") {
		t.Errorf("a node got the block %s that another node has", view.Subnets[0])
	}
}

// What the agent knows of its node's blocks is of the networks that have ports there, not of all that ever had.
func TestBoundaryBlocksOfUnusedNetworksAreForgotten(t *testing.T) {
	r := newLayer3(t)
	r.has(l3)
	r.start()
	_, err := r.planFor("c1", on("x1"))
	r.must(err)
	known := func() int {
		r.agent.subnets.mu.Lock()
		defer r.agent.subnets.mu.Unlock()
		return len(r.agent.subnets.known)
	}
	r.agent.subnets.mu.Lock()
	for i := range 1000 {
		r.agent.subnets.known[fmt.Sprint("shop/gone", i)] = "10.0.0.0/24"
	}
	r.agent.subnets.mu.Unlock()
	_, err = r.agent.reconciler.pass(t.Context(), false)
	r.must(err)
	if got := known(); got != 1 {
		t.Errorf("%d networks are known, want the one that has a port", got)
	}
	r.proxy.Reset()
	_, err = r.planFor("c2", on("x2"))
	r.must(err)
	r.wantCounts(1, 0, 0) // it was not forgotten
}
