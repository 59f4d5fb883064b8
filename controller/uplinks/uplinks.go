// Package uplinks owns which nodes should have which uplinks to physical networks: it resolves the selectors of the
// operator's objects, writes the result into NB for each node, and counts what the nodes have made of it.
package uplinks

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/uplinks"
)

const (
	kindUplinks = "uplinks"
	// every is the time between two passes, as long as there are uplinks.
	every = 2 * time.Second
	// perPass is how many nodes' reports a pass reads, and writesPerPass how many nodes' rows it writes.
	perPass, writesPerPass = 20, 200
	// maxProblems is how many nodes a status names.
	maxProblems = 10
	// patience is how long a node may be about to have its uplinks.
	patience = time.Minute
)

// Item is the item of the pass over the uplinks of all nodes.
var Item = engine.Item{Kind: kindUplinks, Tenant: engine.Operators}

// Config has what the kind needs.
type Config struct {
	Engine *engine.Engine
	Rows   *nbrows.Store
	// Nodes returns all nodes or an error; nil: the source knows no nodes.
	Nodes func(ctx context.Context) ([]netmodel.Node, error)
	// Told is called when a state has changed.
	Told func()
	Log  *slog.Logger
}

// Kind are the uplinks of all nodes. Only the worker uses it.
type Kind struct {
	Config
	rules   []rule
	rows    map[string]uplinks.Wanted // by node, as NB has them; nil: they are not read yet
	reports map[string]uplinks.Report // by node, as last read
	states  map[string]State          // by physical network
	seen    map[string]bool           // the nodes that were read since this controller leads
	turn    int                       // counts the nodes that were read
	pending map[string]time.Time      // by node: since when it has been about to have its uplinks
	now     func() time.Time
}

// rule is an uplink with its selector.
type rule struct {
	physical string
	nodes    labels.Selector
	uplink   netmodel.NodeUplink
}

// State says how far the nodes have their uplinks to a physical network.
type State struct {
	Nodes    int // that an uplink fits
	Ready    int
	Problems []string // of the first others
	Why      string   // why no node has one; "": some node has
}

// New makes the kind, and registers its pass.
func New(c Config) *Kind {
	k := &Kind{Config: c, reports: map[string]uplinks.Report{}, states: map[string]State{}, seen: map[string]bool{},
		pending: map[string]time.Time{}, now: time.Now}
	c.Engine.Register(kindUplinks, func(ctx context.Context, _ engine.Item) error { return k.Pass(ctx) })
	return k
}

// Run does nothing: the states of uplinks are in the statuses of the operator's objects.
func (k *Kind) Run(context.Context) {}

// QueueAll has the rows read again, because another program may have changed NB. Without uplinks there is nothing to
// read.
func (k *Kind) QueueAll(context.Context, map[string]*ovnnet.Listed) error {
	if len(k.rules) == 0 && k.rows != nil && len(k.rows) == 0 {
		return nil
	}
	k.rows = nil
	k.Engine.Add(Item)
	return nil
}

// Configure replaces the uplinks. tagged reports whether networks and gateways may be on VLANs of a physical network.
func (k *Kind) Configure(all netmodel.Uplinks, tagged func(physical string) bool) {
	k.rules = nil
	for _, physical := range slices.Sorted(maps.Keys(all)) {
		for _, u := range all[physical] {
			selector, err := labels.Parse(u.Nodes)
			if err != nil { // impossible: the configuration is refused before
				k.Log.Warn("an uplink has no selector of nodes", "physical network", physical, "err", err)
				continue
			}
			k.rules = append(k.rules, rule{physical, selector, u.On(physical, tagged(physical))})
		}
	}
	clear(k.states)
	k.Engine.Add(Item)
}

// wantedOf returns what a node should have.
func (k *Kind) wantedOf(node *netmodel.Node) uplinks.Wanted {
	wanted := uplinks.Wanted{}
	for _, r := range k.rules {
		if _, has := wanted[r.physical]; !has && r.nodes.Matches(labels.Set(node.Labels)) {
			wanted[r.physical] = r.uplink
		}
	}
	return wanted
}

// Pass makes one pass over all nodes.
func (k *Kind) Pass(ctx context.Context) error {
	if k.rows == nil {
		rows, err := uplinks.All(ctx, k.Rows.Db)
		if err != nil {
			return err
		}
		k.rows = rows
	}
	if len(k.rules) == 0 && len(k.rows) == 0 {
		k.setStates(map[string]State{})
		return nil
	}
	nodes, err := k.Nodes(ctx)
	if err != nil {
		return err
	}
	k.Engine.AddAfter(Item, every)
	if nodes == nil {
		k.setStates(k.withoutNodes())
		return nil
	}
	if err := k.read(ctx, nodes); err != nil {
		return err
	}
	unread := slices.ContainsFunc(nodes, func(n netmodel.Node) bool { return k.rows[n.Name] != nil && !k.seen[n.Name] })
	more, err := k.write(ctx, nodes)
	if more || unread {
		k.Engine.Add(Item)
	}
	if !unread { // otherwise a new leader would say of nodes that they have said nothing
		k.setStates(k.count(nodes))
	}
	return err
}

// write writes the rows of nodes that differ. A node that an uplink fitted keeps a row that says so until it has
// removed its bridges.
func (k *Kind) write(ctx context.Context, nodes []netmodel.Node) (more bool, err error) {
	set, there := map[string]uplinks.Wanted{}, map[string]bool{}
	var gone []string
	for i := range nodes {
		name, wanted := nodes[i].Name, k.wantedOf(&nodes[i])
		there[name] = true
		has, row := k.rows[name]
		switch report, told := k.reports[name]; {
		case len(set)+len(gone) >= writesPerPass:
			more = true
		case len(wanted) == 0 && row && len(has) == 0 && told && len(report) == 0:
			gone = append(gone, name)
		case len(wanted) == 0 && !row, row && maps.Equal(has, wanted):
		default:
			set[name] = wanted
		}
	}
	for name := range k.rows {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	if len(set)+len(gone) == 0 {
		return more, nil
	}
	if err := uplinks.Write(ctx, k.Rows, set, gone); err != nil {
		return false, err
	}
	for name, wanted := range set {
		k.rows[name] = wanted
		delete(k.pending, name)
		k.Log.Info("the uplinks of a node have changed", "node", name, "physical networks", nbrows.SortedKeys(wanted))
	}
	for _, name := range gone {
		delete(k.rows, name)
		delete(k.reports, name)
		delete(k.pending, name)
	}
	return more, nil
}

// read reads what some nodes say: all in turn, but first those that have not said that they are ready.
func (k *Kind) read(ctx context.Context, nodes []netmodel.Node) error {
	var open, others []string
	for i := range nodes {
		name := nodes[i].Name
		if wanted, row := k.rows[name]; !row {
			continue
		} else if k.seen[name] && k.isReady(name, wanted) {
			others = append(others, name)
		} else {
			open = append(open, name)
		}
	}
	names := k.some(open, perPass/2)
	names = append(names, k.some(others, perPass-len(names))...)
	if len(names) == 0 {
		return nil
	}
	reports, err := uplinks.Reports(ctx, k.Rows.Db, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		k.seen[name] = true
		if delete(k.reports, name); reports[name] != nil {
			k.reports[name] = reports[name]
		}
	}
	return nil
}

// some returns a part of a list, each time another one.
func (k *Kind) some(all []string, n int) []string {
	if len(all) <= n {
		return all
	}
	k.turn += n
	first := k.turn % len(all)
	return append(slices.Clone(all[first:]), all[:first]...)[:n]
}

func (k *Kind) isReady(node string, wanted uplinks.Wanted) bool {
	report := k.reports[node]
	for name, uplink := range wanted {
		if said := report[name]; said.Of != uplink || said.Problem != "" {
			return false
		}
	}
	return len(report) == len(wanted)
}

// isLate reports whether a node has been about to have its uplinks for longer than that should take.
func (k *Kind) isLate(node string, wanted uplinks.Wanted) bool {
	if k.isReady(node, wanted) {
		delete(k.pending, node)
		return false
	}
	if k.pending[node].IsZero() {
		k.pending[node] = k.now()
	}
	return k.now().Sub(k.pending[node]) > patience
}

// count counts the nodes.
func (k *Kind) count(nodes []netmodel.Node) map[string]State {
	states := map[string]State{}
	for _, r := range k.rules {
		states[r.physical] = State{}
	}
	pending := map[string]int{}
	for i := range nodes {
		node := nodes[i].Name
		late := k.isLate(node, k.wantedOf(&nodes[i]))
		for physical, uplink := range k.wantedOf(&nodes[i]) {
			s := states[physical]
			s.Nodes++
			said := k.reports[node][physical]
			if said.Of != uplink {
				said.Problem, said.Pending = "its agent has not read this uplink yet: see the pods of the agent", true
			}
			switch {
			case said.Problem == "":
				s.Ready++
			case said.Pending && !late:
				pending[physical]++
			case len(s.Problems) < maxProblems:
				s.Problems = append(s.Problems, node+": "+conf.OneLine(said.Problem, conf.MaxReason))
			}
			states[physical] = s
		}
	}
	for physical, s := range states {
		switch {
		case s.Nodes == 0:
			s.Why = "uplinks: no node has the labels of an entry; label a node, or correct nodes"
		case len(s.Problems) > 0:
			broken := s.Nodes - s.Ready - pending[physical]
			s.Why = fmt.Sprintf("%d of %d nodes have no uplink that works; %s", broken, s.Nodes, s.Problems[0])
		case s.Ready < s.Nodes:
			s.Why = entry.Settling
		}
		states[physical] = s
	}
	return states
}

func (k *Kind) withoutNodes() map[string]State {
	states := map[string]State{}
	for _, r := range k.rules {
		states[r.physical] = State{Why: "uplinks: this source knows no nodes; put objects Node into the folder"}
	}
	return states
}

func (k *Kind) setStates(states map[string]State) {
	same := func(a, b State) bool {
		return a.Nodes == b.Nodes && a.Ready == b.Ready && a.Why == b.Why && slices.Equal(a.Problems, b.Problems)
	}
	if !maps.EqualFunc(states, k.states, same) {
		k.states = states
		k.Told()
	}
}

// Of returns the nodes of a physical network for the status of an object, and what is missing. known is false until a
// pass has looked.
func (k *Kind) Of(physical string) (nodes *entry.Nodes, problem string, known bool) {
	s, known := k.states[physical]
	return &entry.Nodes{Ready: fmt.Sprintf("%d/%d", s.Ready, s.Nodes), Problems: s.Problems}, s.Why, known
}
