package gateway

import (
	"cmp"
	"context"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Node does what a node's agent does for gateways: it writes which chassis the node is, and keeps a gateway on the node
// that has become the active node.
type Node struct {
	*nbrows.Store
	// Beside returns operations that FailoversOf sends in its first message, and Results takes their results.
	Beside  func(context.Context) []ovsdb.Operation
	Results func(context.Context, []ovsdb.OperationResult) error
}

// NewNode returns a Node that uses this connection to NB.
func NewNode(db *ovndb.DB) *Node { return &Node{Store: nbrows.NewStore(db)} }

// Failover is the order of the nodes of a router's gateway, by priority: the first node that is alive is the active
// node.
type Failover struct {
	Router string
	nodes  []*nb.HAChassis
}

// FailoversOf returns the orders of all gateways that have the chassis in their HA_Chassis_Group.
func (n *Node) FailoversOf(ctx context.Context, chassis string) ([]Failover, error) {
	mine := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: nb.HAChassisTable, Columns: []string{"external_ids"},
		Where: []ovsdb.Condition{ovsdb.NewCondition("chassis_name", ovsdb.ConditionEqual, chassis)}}
	ops := []ovsdb.Operation{mine}
	if n.Beside != nil {
		ops = append(ops, n.Beside(ctx)...)
	}
	results, err := n.Db.ReadTogether(ctx, ops)
	if err != nil {
		return nil, err
	}
	if n.Results != nil {
		if err := n.Results(ctx, results[1:]); err != nil {
			return nil, err
		}
	}
	rows, err := ovndb.Rows[nb.HAChassis](n.Db, results[0])
	if err != nil {
		return nil, err
	}
	var turns []Failover
	for _, row := range rows {
		router := row.ExternalIDs[nbrows.KeyRouter]
		if router == "" {
			continue // not ours
		}
		groups, err := ovndb.ReadByKey[nb.HAChassisGroup](ctx, n.Db, nb.HAChassisGroupTable, []string{groupKey(router)})
		if err != nil {
			return nil, err
		}
		if len(groups) == 0 {
			continue
		}
		members, err := ovndb.ReadByKey[nb.HAChassis](ctx, n.Db, nb.HAChassisTable, groups[0].HaChassis)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(members, func(a, b *nb.HAChassis) int { return cmp.Compare(b.Priority, a.Priority) })
		turns = append(turns, Failover{router, members})
	}
	return turns, nil
}

// TookOver reports whether the chassis is active although another chassis has a higher priority. alive are the chassis
// that this chassis reaches by BFD. The decision is the one of ovn-controller: a chassis that reaches no other chassis
// has itself lost the network, so it has taken over nothing.
func (t *Failover) TookOver(chassis string, alive map[string]bool) bool {
	for i, m := range t.nodes {
		if m.ChassisName == chassis {
			return i > 0 && len(alive) > 0
		}
		if alive[m.ChassisName] {
			return false
		}
	}
	return false
}

// MakeFirst gives a chassis the highest priority: the gateway stays on it when the failed chassis comes back. Otherwise
// OVN would move the gateway back as soon as the failed chassis answers BFD, which is before it has flows. The
// transaction asserts the priorities that were read. If they have changed, MakeFirst writes nothing and returns false.
func (n *Node) MakeFirst(ctx context.Context, t *Failover, chassis string) (made bool, err error) {
	b := &nbrows.Batch{Db: n.Db}
	var first *nb.HAChassis
	for _, m := range t.nodes {
		was := ovndb.Present(nb.HAChassisTable, m.UUID)
		was.Columns, was.Rows = []string{"priority"}, []ovsdb.Row{{"priority": m.Priority}}
		b.Add(was)
		if m.ChassisName == chassis {
			first = m
		}
	}
	if first == nil || first == t.nodes[0] {
		return false, nil
	}
	order := append([]*nb.HAChassis{first},
		slices.DeleteFunc(slices.Clone(t.nodes), func(m *nb.HAChassis) bool { return m == first })...)
	before := map[string]int{}
	for _, m := range order {
		before[m.UUID] = m.Priority
	}
	first.Priority = order[1].Priority + 1
	number(order, nil)
	for _, m := range order {
		if m.Priority != before[m.UUID] {
			b.Add(ovndb.Update(nb.HAChassisTable, m.UUID, ovsdb.Row{"priority": m.Priority}))
		}
	}
	err = n.Write(ctx, b.Ops)
	if nbrows.Raced(err) { // the agent's next check decides
		return false, nil
	}
	return err == nil, err
}
