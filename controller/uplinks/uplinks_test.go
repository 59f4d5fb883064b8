package uplinks_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/uplinks"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	rows "github.com/ovn-multinet/ovn-multinet/ovnnet/uplinks"
)

// world is the kind on a real NB. A test makes its passes.
type world struct {
	*nbtest.World
	kind  *uplinks.Kind
	nodes []netmodel.Node
	told  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: nbtest.NewWorld(t)}
	w.leads()
	return w
}

// leads makes another controller lead.
func (w *world) leads() {
	log := slog.New(slog.DiscardHandler)
	e := engine.New(engine.NewQueue(), engine.NewMetrics(), func() error { return nil }, log)
	w.kind = uplinks.New(uplinks.Config{
		Engine: e, Rows: nbrows.NewStore(w.Networks.DB), Told: func() { w.told++ }, Log: log,
		Nodes: func(context.Context) ([]netmodel.Node, error) { return w.nodes, nil },
	})
}

// has has these nodes, each "name=rack".
func (w *world) has(nodes ...string) {
	w.nodes = []netmodel.Node{}
	for _, text := range nodes {
		name, rack, _ := strings.Cut(text, "=")
		w.nodes = append(w.nodes, netmodel.Node{Name: name, Labels: map[string]string{"rack": rack}})
	}
}

// pass makes a pass and compares what the nodes should have.
func (w *world) pass(t *testing.T, wanted string) {
	t.Helper()
	if err := w.kind.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := rows.All(t.Context(), w.Networks.DB)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, node := range nbrows.SortedKeys(all) {
		got = append(got, node+fmt.Sprint(all[node]))
	}
	if text := strings.Join(got, " "); text != wanted {
		t.Errorf("NB has %s, want %s", text, wanted)
	}
}

// says has a node say that it has read what is wanted now, with a problem.
func (w *world) says(t *testing.T, node, problem string) {
	t.Helper()
	all, err := rows.All(t.Context(), w.Networks.DB)
	if err != nil {
		t.Fatal(err)
	}
	report := rows.Report{}
	for physical, uplink := range all[node] {
		report[physical] = rows.Said{Of: uplink, Problem: problem}
	}
	if err := w.Networks.Node.Announce(t.Context(), gateway.Announcement{Node: node, Chassis: "of-" + node, Uplinks: report}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) state(t *testing.T, wanted string) {
	t.Helper()
	nodes, problem, known := w.kind.Of("provider")
	got := "unknown"
	if known {
		got = strings.TrimSpace(nodes.Ready + " " + problem)
	}
	if got != wanted {
		t.Errorf("the state is %q, want %q", got, wanted)
	}
}

func untagged(string) bool { return false }

// TestNodesOfUplinks: each node has the first uplink that fits; its row follows labels, objects and nodes; a node that
// is to have none is told so until it has none.
func TestNodesOfUplinks(t *testing.T) {
	w := newWorld(t)
	w.has("a=1", "b=2", "c=3")
	w.pass(t, "")
	w.kind.Configure(netmodel.Uplinks{"provider": {{Nodes: "rack=1", Interface: "eth1"}, {Nodes: "rack in (1,2)", Bridge: "br-ex"}}}, untagged)
	const a, b = "amap[provider:{eth1 br-provider false}]", "bmap[provider:{ br-ex false}]"
	w.pass(t, a+" "+b)
	w.state(t, "0/2 nodes are making their bridges")
	w.kind.Wait(2 * time.Minute) // the agents are away
	w.pass(t, a+" "+b)
	w.state(t, "0/2 2 of 2 nodes have no uplink that works; a: its agent has not read this uplink yet: see the pods of the agent")
	w.says(t, "a", "")
	w.says(t, "b", "the node has no bridge br-ex")
	w.pass(t, a+" "+b)
	w.state(t, "1/2 1 of 2 nodes have no uplink that works; b: the node has no bridge br-ex")
	w.says(t, "b", "")
	w.pass(t, a+" "+b)
	w.state(t, "2/2")
	before := w.told
	w.pass(t, a+" "+b)
	if w.told != before {
		t.Error("a pass without news tells something")
	}
	w.says(t, "a", "eth1 has no carrier")
	w.pass(t, a+" "+b)
	w.state(t, "1/2 1 of 2 nodes have no uplink that works; a: eth1 has no carrier")
	w.says(t, "a", "")
	w.pass(t, a+" "+b)
	w.state(t, "2/2")

	// What a node says of its former uplink does not count for another one.
	w.kind.Configure(netmodel.Uplinks{"provider": {{Nodes: "rack in (1,2)", Interface: "eth1"}}}, func(string) bool { return true })
	w.state(t, "unknown")
	w.pass(t, "amap[provider:{eth1 br-provider true}] bmap[provider:{eth1 br-provider true}]")
	w.state(t, "0/2 nodes are making their bridges")

	// A node loses its label, another one goes.
	w.has("a=1", "b=3")
	w.pass(t, "amap[provider:{eth1 br-provider true}] bmap[]")
	w.says(t, "a", "")
	w.pass(t, "amap[provider:{eth1 br-provider true}] bmap[]")
	w.state(t, "1/1")
	w.says(t, "b", "") // it has nothing any more
	w.pass(t, "amap[provider:{eth1 br-provider true}]")
	w.has("b=3")
	w.pass(t, "")
	w.state(t, "0/0 uplinks: no node has the labels of an entry; label a node, or correct nodes")
}

// TestNewLeaderOfUplinks: another controller reads what NB has before it says something, and writes nothing that is
// there.
func TestNewLeaderOfUplinks(t *testing.T) {
	w := newWorld(t)
	all := netmodel.Uplinks{"provider": {{Interface: "eth1"}}}
	var names, want []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("n%02d=1", i))
		want = append(want, fmt.Sprintf("n%02dmap[provider:{eth1 br-provider false}]", i))
	}
	w.has(names...)
	w.kind.Configure(all, untagged)
	w.pass(t, strings.Join(want, " "))
	for i := range 50 {
		w.says(t, fmt.Sprintf("n%02d", i), "")
	}
	w.leads()
	w.kind.Configure(all, untagged)
	versions := func() string {
		var all []string
		for _, row := range w.Dump(t, nb.CoppTable) {
			all = append(all, fmt.Sprint(row["_version"]))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	before := versions()
	for i := range 5 {
		if _, _, known := w.kind.Of("provider"); known && i < 3 {
			t.Errorf("after %d passes over 50 nodes the state is known", i)
		}
		w.pass(t, strings.Join(want, " "))
	}
	w.state(t, "50/50")
	if versions() != before {
		t.Error("the new leader has written rows")
	}
	// The object went while no controller led.
	w.leads()
	w.kind.Configure(nil, untagged)
	w.pass(t, strings.ReplaceAll(strings.Join(want, " "), "provider:{eth1 br-provider false}", ""))
}

// TestNoNodes: a source without nodes changes nothing, and says so.
func TestNoNodes(t *testing.T) {
	w := newWorld(t)
	w.kind.Configure(netmodel.Uplinks{"provider": {{Interface: "eth1"}}}, untagged)
	w.pass(t, "")
	w.state(t, "0/0 uplinks: this source knows no nodes; put objects Node into the folder")
}
