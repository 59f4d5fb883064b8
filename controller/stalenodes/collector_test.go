package stalenodes_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/stalenodes"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// census is a cluster of nodes that are there.
type census struct {
	there   []string
	fails   error
	leading error
}

func (c *census) NodeNames(context.Context) ([]string, error) { return slices.Clone(c.there), nil }

func (c *census) GoneNodes(context.Context) (func(string) bool, error) {
	there := slices.Clone(c.there)
	return func(node string) bool { return !slices.Contains(there, node) }, c.fails
}

func (c *census) leavers(n *nbtest.Client) *stalenodes.Collector {
	return stalenodes.New(n.DB, c, func() error { return c.leading }, slog.New(slog.DiscardHandler))
}

// leaving is a database in which n1 and n2 have parts of two networks.
func leaving(t *testing.T) *nbtest.World {
	t.Helper()
	w := nbtest.NewWorld(t)
	blue, red := nbtest.Network(t, "blue", nbtest.Layer3All), nbtest.Network(t, "red", `"topology":"layer3","subnets":"10.2.0.0/16/24"`+nbtest.OnR1)
	for _, n := range []string{"n1", "n2"} {
		nbtest.Ensure(t, w.Networks, blue)
		nbtest.Ensure(t, w.Networks, red)
		nbtest.Share(t, w.Networks, blue, n)
		nbtest.Share(t, w.Networks, red, n)
		if err := w.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: n, Chassis: n}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

const (
	allParts = "shop/blue shop/blue@n1 shop/blue@n2 shop/red shop/red@n1 shop/red@n2"
	n1Parts  = "shop/blue shop/blue@n1 shop/red shop/red@n1"
)

// A node that left gives back what it had, once that was seen twice.
func TestLeavers(t *testing.T) {
	w := leaving(t)
	// What is there when n2 never was.
	blue, red := nbtest.Network(t, "blue", nbtest.Layer3All), nbtest.Network(t, "red", `"topology":"layer3","subnets":"10.2.0.0/16/24"`+nbtest.OnR1)
	fresh := nbtest.NewWorld(t)
	nbtest.Ensure(t, fresh.Networks, blue)
	nbtest.Ensure(t, fresh.Networks, red)
	nbtest.Share(t, fresh.Networks, blue, "n1")
	nbtest.Share(t, fresh.Networks, red, "n1")
	if err := fresh.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: "n1"}); err != nil {
		t.Fatal(err)
	}
	c := &census{there: []string{"n1", "n2"}}
	l := c.leavers(w.Networks)
	rounds := []struct {
		name            string
		do              func()
		err             string
		switches, nodes string
	}{
		{"all are there", func() {}, "", allParts, "n1 n2"},
		{"one is gone", func() { c.there = []string{"n1"} }, "", allParts, "n1 n2"},
		{"it is back", func() { c.there = []string{"n1", "n2"} }, "", allParts, "n1 n2"},
		{"it is gone again", func() { c.there = []string{"n1"} }, "", allParts, "n1 n2"},
		{"nobody can tell", func() { c.fails = errors.New("a list that is not whole") }, "a list that is not whole", allParts, "n1 n2"},
		{"it is gone, as far as is known", func() { c.fails = nil }, "", allParts, "n1 n2"},
		{"the controller does not lead", func() { c.leading = errors.New("does not lead") }, "does not lead", allParts, "n1 n2"},
	}
	for _, tt := range rounds {
		tt.do()
		w.Proxy.Reset()
		err := l.Pass(nbtest.WithLimit(t))
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		w.WantCommitted(t, 0)
		w.WantNodes(t, tt.switches, tt.nodes)
	}
	c.leading = nil
	for range 2 {
		if err := l.Pass(nbtest.WithLimit(t)); err != nil {
			t.Error(err)
		}
	}
	w.WantNodes(t, n1Parts, "n1")
	w.WantRows(t, fresh.Rows(t))
}

// While no node goes, a pass reads nothing of NB: the server would scan tables.
func TestStaleNodesReadsRowsForAReason(t *testing.T) {
	w := leaving(t)
	c := &census{there: []string{"n1", "n2"}}
	l := c.leavers(w.Networks)
	pass := func(want int) {
		t.Helper()
		w.Proxy.Reset()
		if err := l.Pass(nbtest.WithLimit(t)); err != nil {
			t.Fatal(err)
		}
		if got := w.Proxy.Counts(); got.ReadOnly != want || got.Committed+got.Refused != 0 {
			t.Errorf("transactions %+v, want %d reads", got, want)
		}
	}
	pass(1) // the first one
	pass(0)
	c.there = append(c.there, "n3")
	pass(0)
	c.there = []string{"n1", "n3"}
	pass(1) // a node has gone: its rows are stale
	c.there = []string{"n1", "n2", "n3"}
	pass(1) // and not any more
	pass(0)
}

// A pod's port keeps its node's part, and no other.
func TestLeaversWithPods(t *testing.T) {
	w := leaving(t)
	w.PodOn(t, "n2")
	c := &census{there: []string{"n1"}}
	l := c.leavers(w.Networks)
	for range 3 {
		if err := l.Pass(nbtest.WithLimit(t)); err != nil {
			t.Error(err)
		}
	}
	w.WantNodes(t, "shop/blue shop/blue@n1 shop/blue@n2 shop/red shop/red@n1", "n1")
	if got := w.Rows(t)["Logical_Switch_Port"][nbtest.Strange]["name"]; got != "shop/web-0/net1" {
		t.Errorf("the pod's port is %q", got)
	}
	w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": nbtest.ByKey(nbtest.NodeKey("n2")),
		"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(nbtest.Strange)}}})
	if err := l.Pass(nbtest.WithLimit(t)); err != nil {
		t.Error(err)
	}
	w.WantNodes(t, n1Parts, "n1")
}

// One network that is spoilt keeps nobody from giving back what he has of others.
func TestLeaversPassOverWhatIsSpoilt(t *testing.T) {
	w := leaving(t)
	w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(nil)})
	c := &census{there: []string{"n1"}}
	l := c.leavers(w.Networks)
	if err := l.Pass(nbtest.WithLimit(t)); err != nil {
		t.Error(err)
	}
	want := "network shop/blue: logical switch " + nbtest.BlueKey + " is not ours"
	if err := l.Pass(nbtest.WithLimit(t)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	w.WantNodes(t, "shop/blue shop/blue@n1 shop/blue@n2 shop/red shop/red@n1", "n1")
}

// Rows with copied marks are not a node's.
func TestLeaversLeaveForeignRows(t *testing.T) {
	w := nbtest.NewWorld(t)
	w.Put(t, "Logical_Switch", nbtest.Strange, "theirs", map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n1"})
	w.Put(t, "Copp", ovndb.SwitchKey("x"), "theirs", map[string]string{"ovn-multinet/node": "n1"})
	before := w.Rows(t)
	c := &census{}
	l := c.leavers(w.Networks)
	for range 3 {
		if err := l.Pass(nbtest.WithLimit(t)); err != nil {
			t.Error(err)
		}
	}
	w.WantRows(t, before)
}

// The port list of a node that is gone is deleted when it has no ports.
func TestStaleNodesDeletePortLists(t *testing.T) {
	w := leaving(t)
	insert := func(node string, ids map[string]string) {
		ids["ovn-multinet/kind"], ids["ovn-multinet/node"] = "port-list", node
		w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.PortListKey(node),
			"row": ovndbtest.Op{"name": "ports of " + node, "external_ids": ovndbtest.Map(ids)}})
	}
	insert("n1", map[string]string{})
	insert("n2", map[string]string{nbtest.Strange: "sandbox-1"})
	insert("n3", map[string]string{})
	l := (&census{there: []string{"n1"}}).leavers(w.Networks)
	for range 2 {
		if err := l.Pass(nbtest.WithLimit(t)); err != nil {
			t.Error(err)
		}
	}
	left := func() (nodes []string) {
		for _, row := range w.Dump(t, "Copp") {
			if ids := row["external_ids"].(map[string]string); ids["ovn-multinet/kind"] == "port-list" {
				nodes = append(nodes, ids["ovn-multinet/node"])
			}
		}
		slices.Sort(nodes)
		return nodes
	}
	if got := left(); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("the lists of %q are left, want those of n1 and n2", got)
	}
}
