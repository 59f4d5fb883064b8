package ovnnet

import (
	"context"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// NodeRows returns this cluster's node switches, and three kinds of rows of nodes: the rows that say which chassis a
// node is, the port lists that have no ports, and the lists of ended connections.
func (n *Networks) NodeRows(ctx context.Context) ([]*nb.LogicalSwitch, []*nb.Copp, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids"}},
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, nbrows.KindNode),
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, nbrows.KindPortList),
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, nbrows.KindEnded),
	})
	if err != nil {
		return nil, nil, err
	}
	all, err := ovndb.Rows[nb.LogicalSwitch](n.Db, results[0])
	if err != nil {
		return nil, nil, err
	}
	var switches []*nb.LogicalSwitch
	for _, sw := range all {
		id, node := sw.ExternalIDs[nbrows.KeyNetwork], sw.ExternalIDs[nbrows.KeyNode]
		if node != "" && sw.UUID == nbrows.NodeSwitchKey(id, node) && ovndb.OtherCluster(sw.ExternalIDs) == "" {
			switches = append(switches, sw)
		}
	}
	nodes, err := ovndb.Rows[nb.Copp](n.Db, results[1])
	if err != nil {
		return nil, nil, err
	}
	lists, err := ovndb.Rows[nb.Copp](n.Db, results[2])
	if err != nil {
		return nil, nil, err
	}
	ended, err := ovndb.Rows[nb.Copp](n.Db, results[3])
	lists = slices.DeleteFunc(lists, func(row *nb.Copp) bool { return len(row.ExternalIDs) > 2 }) // beside kind and node
	nodes = slices.DeleteFunc(slices.Concat(nodes, lists, ended), func(row *nb.Copp) bool {
		return ovndb.OtherCluster(row.ExternalIDs) != ""
	})
	return switches, nodes, err
}

// DeleteNodeSwitch deletes a node's switch of a layer3 network and the claims on its node subnets. A switch with ports
// of pods stays, and the error wraps an *InUse.
func (n *Networks) DeleteNodeSwitch(ctx context.Context, id, node string) error {
	_, err := n.Change(ctx, "network "+id, func(b *nbrows.Batch) error {
		have, err := n.readNodeSwitch(ctx, id, node)
		if err != nil || have == nil {
			return err
		}
		ports, err := n.ports(ctx, &networkRows{own: have})
		if err != nil {
			return err
		}
		if len(ports.others) > 0 {
			return fmt.Errorf("logical switch %s: %w", have.Row.Name, &InUse{By: []string{count(len(ports.others), "port")}})
		}
		b.Add(ports.unchanged()...)
		b.DeleteSwitch(have)
		return nil
	})
	return err
}

// readNodeSwitch reads one node switch; nil if it does not exist.
func (n *Networks) readNodeSwitch(ctx context.Context, id, node string) (*nbrows.Switch, error) {
	have, err := n.read(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	return have.nodes[nbrows.NodeSwitchKey(id, node)], nil
}
