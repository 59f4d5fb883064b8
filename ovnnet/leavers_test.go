package ovnnet_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// census is a cluster of nodes that are there.
type census struct {
	there   []string
	fails   error
	leading error
}

func (c *census) leavers(n *ovnnet.Networks) *ovnnet.Leavers {
	count := func(context.Context) (func(string) bool, error) {
		there := slices.Clone(c.there)
		return func(node string) bool { return !slices.Contains(there, node) }, c.fails
	}
	return ovnnet.NewLeavers(n, count, func() error { return c.leading }, slog.New(slog.DiscardHandler))
}

// wantNodes compares whose parts of networks there are, and which nodes are announced.
func (w *world) wantNodes(t *testing.T, switches, announced string) {
	t.Helper()
	var nodes []any
	for _, row := range w.rows(t)["Copp"] {
		if ext(row, "ovn-multinet/kind") == "node" {
			nodes = append(nodes, ext(row, "ovn-multinet/node"))
		}
	}
	if got := w.switches(t); got != switches || line(nodes) != announced {
		t.Errorf("switches %q and nodes %q, want %q and %q", got, line(nodes), switches, announced)
	}
}

// leaving is a database in which n1 and n2 have parts of two networks.
func leaving(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	blue, red := network(t, "blue", layer3All), network(t, "red", `"topology":"layer3","subnets":"10.2.0.0/16/24"`+onR1)
	for _, n := range []string{"n1", "n2"} {
		ensure(t, w.networks, blue)
		ensure(t, w.networks, red)
		share(t, w.networks, blue, n)
		share(t, w.networks, red, n)
		if err := w.networks.Announce(withLimit(t), n, n); err != nil {
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
	blue, red := network(t, "blue", layer3All), network(t, "red", `"topology":"layer3","subnets":"10.2.0.0/16/24"`+onR1)
	fresh := newWorld(t)
	ensure(t, fresh.networks, blue)
	ensure(t, fresh.networks, red)
	share(t, fresh.networks, blue, "n1")
	share(t, fresh.networks, red, "n1")
	if err := fresh.networks.Announce(withLimit(t), "n1", "n1"); err != nil {
		t.Fatal(err)
	}
	c := &census{there: []string{"n1", "n2"}}
	l := c.leavers(w.networks)
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
		w.proxy.Reset()
		err := l.Round(withLimit(t))
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		w.wantCommitted(t, 0)
		w.wantNodes(t, tt.switches, tt.nodes)
	}
	c.leading = nil
	for range 2 {
		if err := l.Round(withLimit(t)); err != nil {
			t.Error(err)
		}
	}
	w.wantNodes(t, n1Parts, "n1")
	w.wantRows(t, fresh.rows(t))
}

// A pod's port keeps its node's part, and no other.
func TestLeaversWithPods(t *testing.T) {
	w := leaving(t)
	w.podOn(t, "n2")
	c := &census{there: []string{"n1"}}
	l := c.leavers(w.networks)
	for range 3 {
		if err := l.Round(withLimit(t)); err != nil {
			t.Error(err)
		}
	}
	w.wantNodes(t, "shop/blue shop/blue@n1 shop/blue@n2 shop/red shop/red@n1", "n1")
	if got := w.rows(t)["Logical_Switch_Port"][strange]["name"]; got != "shop/web-0/net1" {
		t.Errorf("the pod's port is %q", got)
	}
	w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": byKey(nodeKey("n2")),
		"mutations": []any{[]any{"ports", "delete", ovndbtest.UUID(strange)}}})
	if err := l.Round(withLimit(t)); err != nil {
		t.Error(err)
	}
	w.wantNodes(t, n1Parts, "n1")
}

// One network that is spoilt keeps nobody from giving back what he has of others.
func TestLeaversPassOverWhatIsSpoilt(t *testing.T) {
	w := leaving(t)
	w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(nil)})
	c := &census{there: []string{"n1"}}
	l := c.leavers(w.networks)
	if err := l.Round(withLimit(t)); err != nil {
		t.Error(err)
	}
	want := "network shop/blue: logical switch " + blueKey + " is not ours"
	if err := l.Round(withLimit(t)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	w.wantNodes(t, "shop/blue shop/blue@n1 shop/blue@n2 shop/red shop/red@n1", "n1")
}

// Rows with copied marks are not a node's.
func TestLeaversLeaveForeignRows(t *testing.T) {
	w := newWorld(t)
	w.put(t, "Logical_Switch", strange, "theirs", map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n1"})
	w.put(t, "Copp", ovndb.SwitchKey("x"), "theirs", map[string]string{"ovn-multinet/node": "n1"})
	before := w.rows(t)
	c := &census{}
	l := c.leavers(w.networks)
	for range 3 {
		if err := l.Round(withLimit(t)); err != nil {
			t.Error(err)
		}
	}
	w.wantRows(t, before)
}
