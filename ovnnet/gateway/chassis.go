package gateway

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/uplinks"
)

// Announcement is what a node says about itself.
type Announcement struct {
	Node, Chassis string
	Sizes         pathmtu.Sizes
	Physical      []string       // the physical networks that the node has bridges for
	Uplinks       uplinks.Report // nil: not known, and what NB has stays
}

// Announce writes what a node says about itself, if NB does not have this yet.
func (n *Node) Announce(ctx context.Context, a Announcement) error {
	wanted := &nb.Copp{
		UUID: ovndb.NodeKey(a.Node), Name: "ovn-multinet node " + a.Node,
		ExternalIDs: map[string]string{
			nbrows.KeyKind: nbrows.KindNode, nbrows.KeyNode: a.Node, nbrows.KeyChassis: a.Chassis,
		},
	}
	if len(a.Physical) > 0 {
		wanted.ExternalIDs[nbrows.KeyPhysical] = strings.Join(slices.Sorted(slices.Values(a.Physical)), ",")
	}
	a.Sizes.Mark(wanted.ExternalIDs)
	_, err := n.Change(ctx, "node "+a.Node, func(b *nbrows.Batch) error {
		results, err := n.Db.Transact(ctx, []ovsdb.Operation{SelectSaid(a.Node)})
		if err != nil {
			return err
		}
		var have *nb.Copp
		if err := nbrows.One(n.Db, results[0], &have); err != nil {
			return err
		}
		report := a.Uplinks
		if report == nil && have != nil {
			report = uplinks.ReportOf(have.ExternalIDs)
		}
		report.Mark(wanted.ExternalIDs)
		nbrows.Put(b, nb.CoppTable, wanted.UUID, have, wanted)
		return nil
	})
	return err
}

// SelectSaid is the operation that reads what a node has said about itself.
func SelectSaid(node string) ovsdb.Operation { return ovndb.Select(nb.CoppTable, ovndb.NodeKey(node)) }

// ReadSaid takes the result of SelectSaid; nil: NB has nothing.
func ReadSaid(db *ovndb.DB, result ovsdb.OperationResult) (map[string]string, error) {
	var row *nb.Copp
	if err := nbrows.One(db, result, &row); err != nil || row == nil {
		return nil, err
	}
	return row.ExternalIDs, nil
}

// ChassisOf returns the chassis of the nodes, without the nodes whose agents have not announced a chassis yet. The
// list is never nil.
func (n *Gateways) ChassisOf(ctx context.Context, nodes []string) ([]Chassis, error) {
	rows, err := nbrows.ReadNodes(ctx, n.Db, nodes)
	if err != nil {
		return nil, err
	}
	list := []Chassis{} // not nil: with nil, Ensure would not change the nodes
	for _, node := range nodes {
		if ids := rows[node]; ids[nbrows.KeyChassis] != "" {
			list = append(list, Chassis{Node: node, Name: ids[nbrows.KeyChassis], physical: ids[nbrows.KeyPhysical]})
		}
	}
	return list, nil
}

// HasPhysical reports whether the node has a bridge for a physical network. A physical network has no comma in its
// name.
func (c *Chassis) HasPhysical(network string) bool {
	return slices.Contains(strings.Split(c.physical, ","), network)
}

// Priorities of a gateway's nodes begin in the middle of OVN's range (0 to 32767), so there is room on both sides.
const (
	firstPriority = 16384
	lastPriority  = 32767
)

// order returns the chassis rows of a gateway, with a priority for each node. OVN puts the gateway on the node with
// the highest priority that is alive. Nodes that have a priority keep it. New nodes get lower ones, in an order that
// depends on the router, so that several gateways are on several nodes.
func (have *present) order(router string, nodes []Chassis) map[string]*nb.HAChassis {
	var list []*nb.HAChassis
	fresh := map[string]int{}
	for _, c := range nodes {
		key := ovndb.PartKey("ha-chassis "+c.Name, router)
		row := &nb.HAChassis{
			UUID: key, ChassisName: c.Name,
			ExternalIDs: map[string]string{nbrows.KeyRouter: router, nbrows.KeyNode: c.Node},
		}
		if old := have.chassis[key]; old != nil {
			row.Priority = old.Priority
		} else {
			fresh[key] = 1
		}
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b *nb.HAChassis) int {
		if fresh[a.UUID]+fresh[b.UUID] > 0 {
			return cmp.Or(
				cmp.Compare(fresh[a.UUID], fresh[b.UUID]), cmp.Compare(rank(router, a), rank(router, b)),
				cmp.Compare(a.UUID, b.UUID))
		}
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.UUID, b.UUID))
	})
	number(list, fresh)
	rows := map[string]*nb.HAChassis{}
	for _, row := range list {
		rows[row.UUID] = row
	}
	return rows
}

// number gives new nodes priorities below those of the other nodes. If there is no room, all nodes get new priorities
// in the same order.
func number(list []*nb.HAChassis, fresh map[string]int) {
	room := true
	for i, c := range list {
		if fresh[c.UUID] > 0 {
			c.Priority = firstPriority
			if i > 0 {
				c.Priority = list[i-1].Priority - 1
			}
		}
		room = room && c.Priority >= 0 && c.Priority <= lastPriority && (i == 0 || c.Priority < list[i-1].Priority)
	}
	for i, c := range list {
		if !room {
			c.Priority = firstPriority - i
		}
	}
}

// rank is a hash that orders the new nodes of a router's gateway.
func rank(router string, c *nb.HAChassis) uint64 {
	h := fnv.New64a()
	h.Write([]byte(router + " " + c.ChassisName))
	return h.Sum64()
}
