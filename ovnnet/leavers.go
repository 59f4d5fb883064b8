package ovnnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Leavers gives back what nodes have that left the cluster: their blocks of layer3 networks, and what they said of
// themselves. It acts on what it has seen twice, a period apart, and leaves a switch alone as long as a pod's port is on it.
type Leavers struct {
	networks *Networks
	// count takes a census of all nodes, or fails; the answer tells of a node whether it is gone for good.
	count func(ctx context.Context) (gone func(node string) bool, err error)
	log   *slog.Logger
	seen  map[string]bool // rows, of the round before
}

// NewLeavers takes what counts nodes: it must fail when it cannot list all of them, and what it counts must be no older
// than its call. leading is asked before each write.
func NewLeavers(networks *Networks, count func(ctx context.Context) (func(node string) bool, error), leading func() error, log *slog.Logger) *Leavers {
	own := *networks
	own.mayWrite, own.written = leading, nil
	return &Leavers{networks: &own, count: count, log: log}
}

// Run looks once a period until the end of ctx.
func (l *Leavers) Run(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := l.Round(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("look for what nodes have that are gone: nothing more is given back", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Round looks once.
func (l *Leavers) Round(ctx context.Context) error {
	before := l.seen
	l.seen = nil
	// The rows first: a node that is newer than the list of nodes has none among them.
	switches, nodes, err := l.networks.nodeRows(ctx)
	if err != nil {
		return err
	}
	gone, err := l.count(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var errs []error // one network's hold up no other's
	twice := func(key, node string) bool {
		if !gone(node) {
			return false
		}
		seen[key] = true
		return before[key]
	}
	for _, sw := range switches {
		network, node := sw.ExternalIDs[keyNetwork], sw.ExternalIDs[keyNode]
		if !twice(sw.UUID, node) {
			continue
		}
		err := l.networks.DropNode(ctx, network, node)
		if inUse, ok := errors.AsType[*InUse](err); ok {
			l.log.Debug("a node that is gone keeps its blocks", "node", node, "network", network, "reason", inUse)
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", network, err))
			continue
		}
		l.log.Info("gave back the blocks of a node that is gone", "node", node, "network", network, "blocks", sw.ExternalIDs[ovndb.BlocksKey])
	}
	for _, row := range nodes {
		node := row.ExternalIDs[keyNode]
		if !twice(row.UUID, node) {
			continue
		}
		errs = append(errs, l.networks.write(ctx, []ovsdb.Operation{ovndb.Delete(nb.CoppTable, row.UUID)}))
	}
	l.seen = seen
	return errors.Join(errs...)
}

// nodeRows lists, of this cluster, the switches that nodes have on layer3 networks, and what nodes say of themselves.
func (n *Networks) nodeRows(ctx context.Context) ([]*nb.LogicalSwitch, []*nb.Copp, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids"}},
		ovndb.SelectWith(nb.CoppTable, "external_ids", keyKind, kindNode),
	})
	if err != nil {
		return nil, nil, err
	}
	all, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return nil, nil, err
	}
	var switches []*nb.LogicalSwitch
	for _, sw := range all {
		id, node := sw.ExternalIDs[keyNetwork], sw.ExternalIDs[keyNode]
		if node != "" && sw.UUID == nodeSwitchKey(id, node) && ovndb.OtherCluster(sw.ExternalIDs) == "" {
			switches = append(switches, sw)
		}
	}
	nodes, err := ovndb.Rows[nb.Copp](n.db, results[1])
	nodes = slices.DeleteFunc(nodes, func(row *nb.Copp) bool { return ovndb.OtherCluster(row.ExternalIDs) != "" })
	return switches, nodes, err
}
