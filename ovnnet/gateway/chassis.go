package gateway

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Announce says which chassis a node is. It writes only what is not there already.
func (n *Node) Announce(ctx context.Context, node, chassis string) error {
	want := &nb.Copp{
		UUID: ovndb.NodeKey(node), Name: "ovn-multinet node " + node,
		ExternalIDs: map[string]string{nbrows.KeyKind: nbrows.KindNode, nbrows.KeyNode: node, nbrows.KeyChassis: chassis},
	}
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("node " + node); err != nil {
			return err
		}
		results, err := n.Db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.CoppTable, want.UUID)})
		if err != nil {
			return err
		}
		var have *nb.Copp
		if err := nbrows.One(n.Db, results[0], &have); err != nil {
			return err
		}
		b := &nbrows.Batch{Db: n.Db}
		nbrows.Put(b, nb.CoppTable, want.UUID, have, want)
		if b.Err != nil || len(b.Ops) == 0 {
			return b.Err
		}
		if err = n.Write(ctx, b.Ops); !nbrows.Raced(err) {
			return nbrows.AsRefused(err)
		}
	}
}

// ChassisOf returns the chassis that the nodes are; a node whose agent has not said so yet is left out.
func (n *Gateways) ChassisOf(ctx context.Context, nodes []string) ([]Chassis, error) {
	keys := make([]string, len(nodes))
	for i, node := range nodes {
		keys[i] = ovndb.NodeKey(node)
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, n.Db, nb.CoppTable, keys)
	if err != nil {
		return nil, err
	}
	list := []Chassis{} // nil would mean something else to EnsureGateway
	for _, row := range rows {
		if name := row.ExternalIDs[nbrows.KeyChassis]; name != "" {
			list = append(list, Chassis{Node: row.ExternalIDs[nbrows.KeyNode], Name: name})
		}
	}
	return list, nil
}

// Priorities of a gateway's nodes begin in the middle of what OVN knows (0 to 32767), so that there is room on both sides.
const (
	firstPriority = 16384
	lastPriority  = 32767
)

// order gives each node of a gateway its priority: OVN has the gateway on the highest that is alive. Nodes that have one
// keep it, new ones come last, in an order of the router's own, so that several gateways are on several nodes.
func (have *present) order(router string, nodes []Chassis) map[string]*nb.HAChassis {
	var list []*nb.HAChassis
	fresh := map[string]int{}
	for _, c := range nodes {
		key := ovndb.PartKey("ha-chassis "+c.Name, router)
		row := &nb.HAChassis{UUID: key, ChassisName: c.Name, ExternalIDs: map[string]string{nbrows.KeyRouter: router, nbrows.KeyNode: c.Node}}
		if old := have.chassis[key]; old != nil {
			row.Priority = old.Priority
		} else {
			fresh[key] = 1
		}
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b *nb.HAChassis) int {
		if fresh[a.UUID]+fresh[b.UUID] > 0 {
			return cmp.Or(cmp.Compare(fresh[a.UUID], fresh[b.UUID]), cmp.Compare(rank(router, a), rank(router, b)), cmp.Compare(a.UUID, b.UUID))
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

// number gives new nodes priorities below the others', and all of them new ones when there is no room.
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

// turn is where a node stands in a router's order.
func rank(router string, c *nb.HAChassis) uint64 {
	h := fnv.New64a()
	h.Write([]byte(router + " " + c.ChassisName))
	return h.Sum64()
}
