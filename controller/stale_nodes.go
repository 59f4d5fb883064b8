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

// Leavers gives back what nodes have that left the cluster: their blocks of layer3 networks, and what they said of
// themselves. It acts on what it has seen twice, a period apart, and leaves a switch alone as long as a pod's port is on it.
type StaleNodes struct {
	networks *ovnnet.Networks
	// count takes a census of all nodes, or fails; the answer tells of a node whether it is gone for good.
	count func(ctx context.Context) (gone func(node string) bool, err error)
	log   *slog.Logger
	seen  stale.Tracker[string] // row keys
}

// NewLeavers takes what counts nodes: it must fail when it cannot list all of them, and what it counts must be no older
// than its call. leading is asked before each write.
func NewStaleNodes(db *ovndb.DB, count func(ctx context.Context) (func(node string) bool, error), leading func() error, log *slog.Logger) *StaleNodes {
	s := nbrows.NewLeadersStore(db, leading, func() {})
	return &StaleNodes{networks: ovnnet.New(s, gateway.New(s, nil), conf.DefaultWidestIPAM), count: count, log: log}
}

// Run looks once a period until the end of ctx.
func (l *StaleNodes) Run(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := l.Pass(ctx); err != nil && ctx.Err() == nil {
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
func (l *StaleNodes) Pass(ctx context.Context) error {
	pass := l.seen.Begin()
	// The rows first: a node that is newer than the list of nodes has none among them.
	switches, nodes, err := l.networks.NodeRows(ctx)
	if err != nil {
		return err
	}
	gone, err := l.count(ctx)
	if err != nil {
		return err
	}
	var errs []error // one network's hold up no other's
	confirmed := func(key, node string) bool { return gone(node) && pass.Saw(key) }
	for _, sw := range switches {
		network, node := sw.ExternalIDs[nbrows.KeyNetwork], sw.ExternalIDs[nbrows.KeyNode]
		if !confirmed(sw.UUID, node) {
			continue
		}
		err := l.networks.DeleteNodeSwitch(ctx, network, node)
		if inUse, ok := errors.AsType[*ovnnet.InUse](err); ok {
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
		node := row.ExternalIDs[nbrows.KeyNode]
		if !confirmed(row.UUID, node) {
			continue
		}
		errs = append(errs, l.networks.Write(ctx, []ovsdb.Operation{ovndb.Delete(nb.CoppTable, row.UUID)}))
	}
	pass.End()
	return errors.Join(errs...)
}
