package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/stale"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// StaleNodes deletes the rows of nodes that are gone from the cluster: their node switches of layer3 networks, with the
// claims of their node subnets, the rows with their chassis, and their port lists. It deletes a row only if two passes
// in a row found the node gone. It keeps a node switch and a port list as long as they have a pod's port.
type StaleNodes struct {
	networks *ovnnet.Networks
	// count lists all nodes. The function that it returns tells whether a node is gone.
	count func(ctx context.Context) (gone func(node string) bool, err error)
	log   *slog.Logger
	seen  stale.Tracker[string] // the row keys that passes found stale
}

// NewStaleNodes makes a StaleNodes. count lists the nodes: it must return an error if it cannot list all of them, and
// its list must not be older than the call. leading is called before each write; it returns an error if this controller
// does not lead.
func NewStaleNodes(db *ovndb.DB, count func(ctx context.Context) (func(node string) bool, error),
	leading func() error, log *slog.Logger) *StaleNodes {
	s := nbrows.NewLeadersStore(db, leading, func() {})
	return &StaleNodes{networks: ovnnet.New(s, gateway.New(s, nil), conf.DefaultWidestIPAM), count: count, log: log}
}

// Run makes a pass now and one every period, until the end of ctx.
func (l *StaleNodes) Run(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := l.Pass(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("garbage collection of the rows of deleted nodes failed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Pass makes one reconcile pass: it deletes the rows that this pass and the previous pass found stale.
func (l *StaleNodes) Pass(ctx context.Context) error {
	pass := l.seen.Begin()
	// Read the rows before the nodes: then each node that created one of these rows and exists is in the list of nodes.
	switches, nodes, err := l.networks.NodeRows(ctx)
	if err != nil {
		return err
	}
	gone, err := l.count(ctx)
	if err != nil {
		return err
	}
	var errs []error // an error of one network must not delay the other networks
	confirmed := func(key, node string) bool { return gone(node) && pass.Saw(key) }
	for _, sw := range switches {
		network, node := sw.ExternalIDs[nbrows.KeyNetwork], sw.ExternalIDs[nbrows.KeyNode]
		if !confirmed(sw.UUID, node) {
			continue
		}
		err := l.networks.DeleteNodeSwitch(ctx, network, node)
		if inUse, ok := errors.AsType[*ovnnet.InUse](err); ok {
			l.log.Debug("the node switch of a deleted node still has ports", "node", node, "network", network, "reason", inUse)
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", network, err))
			continue
		}
		l.log.Info("node switch of a deleted node is deleted",
			"node", node, "network", network, "subnets", sw.ExternalIDs[ovndb.NodeSubnetsKey])
	}
	for _, row := range nodes {
		node := row.ExternalIDs[nbrows.KeyNode]
		if !confirmed(row.UUID, node) {
			continue
		}
		err := l.networks.Write(ctx, []ovsdb.Operation{
			ovndb.HasMap(nb.CoppTable, row.UUID, "external_ids", row.ExternalIDs), ovndb.Delete(nb.CoppTable, row.UUID),
		})
		if !nbrows.Raced(err) { // the agent of the node has written the row since
			errs = append(errs, err)
		}
	}
	pass.End()
	return errors.Join(errs...)
}
