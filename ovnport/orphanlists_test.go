package ovnport_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// passes returns what makes one pass.
func passes(t *testing.T, orphans *ovnport.Orphans) (pass func()) {
	return func() {
		t.Helper()
		if err := orphans.Pass(timeout(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A node whose agent was of an older version has no port list. When it is gone, the next two passes release its ports,
// and no pass after them scans for it.
func TestOrphansOfANodeWithoutAPortList(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	mustEnsure(t, w.nb, owner("stays", "sandbox-1"), want(n, "net1"))
	o := owner("goes", "sandbox-2")
	o.Node = "node-2"
	mustEnsure(t, w.nb, o, want(n, "net1"), want(n, "net2"))
	list := []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.PortListKey("node-2"))}}
	w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": list})
	c := &cluster{nodes: []string{"node-1", "node-2"}}
	pass := passes(t, c.orphans(w.nb))
	pass()
	pass()
	c.nodes = []string{"node-1"}
	c.gone = func(o ovnport.Owner) bool { return o.Node == "node-2" }
	pass()
	pass()
	if left := read(t, w.Server).ports; len(left) != 1 {
		t.Errorf("%d ports are left, want that of node-1: %v", len(left), left)
	}
	pass() // sees that the node has nothing any more
	w.proxy.Before(func(tx ovndbtest.Transact) {
		if found := scans(tx); len(found) > 0 {
			t.Errorf("a pass scans for %q", found)
		}
	})
	pass()
	pass()
	w.proxy.Before(nil)
}

// A node that gets its first port after the two passes over all ports, and goes before the next pass, is not forgotten.
func TestOrphansOfANodeThatGoesEarly(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	c := &cluster{nodes: []string{"node-1", "node-2"}}
	pass := passes(t, c.orphans(w.nb))
	pass()
	pass()
	o := owner("goes", "sandbox-2")
	o.Node = "node-2"
	mustEnsure(t, w.nb, o, want(n, "net1"))
	c.nodes = []string{"node-1"}
	c.gone = func(o ovnport.Owner) bool { return o.Node == "node-2" }
	pass()
	pass()
	if left := read(t, w.Server).ports; len(left) != 0 {
		t.Errorf("ports are left: %v", left)
	}
}

// ownerOn is the owner of a port of the i-th pod, on the i-th node.
func ownerOn(i int) ovnport.Owner {
	o := owner(fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i))
	o.Node = fmt.Sprintf("node-%02d", i)
	return o
}

// After two passes over all ports, a pass looks at the port lists of some nodes: those that the cluster does not have
// any more, those with orphans, and the next ones in the order of their names. No pass of these scans a table.
func TestOrphansByPortLists(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	const many = 45
	c := &cluster{}
	for i := range many {
		c.nodes = append(c.nodes, fmt.Sprintf("node-%02d", i))
		mustEnsure(t, w.nb, ownerOn(i), want(n, "net1"))
	}
	all := slices.Clone(c.nodes)
	pass := passes(t, c.orphans(w.nb))
	left := func() int { return len(read(t, w.Server).ports) }
	for range 2 {
		if pass(); len(c.asked) != 0 {
			t.Fatalf("a pass over all ports asks about %q", c.asked)
		}
	}
	var scanned []string
	w.proxy.Before(func(tx ovndbtest.Transact) { scanned = append(scanned, scans(tx)...) })
	seen := map[string]int{}
	for range 9 { // 9 × 20 = 4 × 45
		pass()
		for _, node := range c.asked {
			seen[node]++
		}
	}
	for _, node := range all {
		if seen[node] != 4 {
			t.Errorf("nine passes looked %d times at %s, want 4 times", seen[node], node)
		}
	}

	// A node goes: the next two passes release what it had, wherever the order is.
	c.nodes = slices.DeleteFunc(c.nodes, func(name string) bool { return name == "node-30" })
	c.gone = func(o ovnport.Owner) bool { return o.Node == "node-30" }
	pass()
	if !slices.Contains(c.asked, "node-30") || left() != many {
		t.Errorf("asked about %q, %d ports left", c.asked, left())
	}
	if pass(); left() != many-1 {
		t.Errorf("%d ports left, want %d", left(), many-1)
	}
	// The node's agent still runs and inserts the port again. Two passes release it.
	for range 3 {
		pass()
	}
	mustEnsure(t, w.nb, ownerOn(30), want(n, "net1"))
	pass()
	if pass(); left() != many-1 {
		t.Errorf("%d ports left after the agent of a deleted node inserted one again, want %d", left(), many-1)
	}
	for range ovnport.EmptyPasses {
		pass()
	}
	if pass(); slices.Contains(c.asked, "node-30") {
		t.Errorf("a node that is gone is still looked at after %d passes without a port", ovnport.EmptyPasses)
	}

	// A pod goes without a DEL, and its node's agent does not run: the pass that comes to the node sees it, and the next
	// one releases its port.
	c.gone = isPod("web-7")
	for passes := 0; left() == many-1; passes++ {
		if pass(); passes > 4 {
			t.Fatal("the orphan stays")
		}
	}
	if len(scanned) != 0 {
		t.Errorf("the server scanned for %q", scanned)
	}
	w.proxy.Before(nil)
	read(t, w.Server).checkLists(t)
}
