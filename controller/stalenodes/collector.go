// Package stalenodes owns the garbage collection of the rows of nodes that are gone from the cluster. It writes these
// rows only through package ovnnet.
package stalenodes

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

// Collector deletes the rows of nodes that are gone from the cluster: their node switches of layer3 networks, with the
// claims of their node subnets, the rows with their chassis, and their port lists. It deletes a row only if two passes
// in a row found the node gone. It keeps a node switch and a port list as long as they have a pod's port.
type Collector struct {
	networks *ovnnet.Networks
	nodes    Nodes
	log      *slog.Logger
	seen     stale.Tracker[string] // the row keys that passes found stale
	present  map[string]bool       // the names of the nodes at the last pass
	clean    bool                  // the last pass that read the rows found nothing stale
	due      time.Time             // when a pass reads the rows without another reason
}

// Nodes is what a Collector asks the source of nodes.
type Nodes interface {
	// NodeNames returns the names of all nodes, or nil if the source does not know the nodes. The names may be slightly
	// out of date.
	NodeNames(ctx context.Context) ([]string, error)
	// GoneNodes lists all nodes. The function that it returns reports whether a node is gone. It fails if it cannot
	// list all of them, and its list is not older than the call.
	GoneNodes(ctx context.Context) (gone func(node string) bool, err error)
}

// scanPeriod is the time after which a pass reads the rows of all nodes although no node has gone since.
const scanPeriod = 12 * time.Hour

// New makes a Collector. leading is called before each write; it returns an error if this controller does
// not lead.
func New(db *ovndb.DB, nodes Nodes, leading func() error, log *slog.Logger) *Collector {
	s := nbrows.NewLeadersStore(db, leading, func([]ovsdb.Operation) {})
	return &Collector{networks: ovnnet.New(s, gateway.New(s, nil), conf.DefaultWidestIPAM), nodes: nodes, log: log}
}

// Run makes a pass now and one every period, until the end of ctx.
func (l *Collector) Run(ctx context.Context, period time.Duration) {
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

// Pass makes one reconcile pass: it deletes the rows that this pass and the previous pass found stale. To read the rows
// the server scans tables, so a pass reads them only if a node has gone since, if the last pass found something stale,
// and once in a scanPeriod.
func (l *Collector) Pass(ctx context.Context) error {
	if gone, err := l.nodeHasGone(ctx); err != nil || !gone && l.clean && time.Now().Before(l.due) {
		return err
	}
	l.clean = false
	pass := l.seen.Begin()
	// Read the rows before the nodes: then each node that created one of these rows and exists is in the list of nodes.
	switches, nodes, err := l.networks.NodeRows(ctx)
	if err != nil {
		return err
	}
	gone, err := l.nodes.GoneNodes(ctx)
	if err != nil {
		return err
	}
	var errs []error // an error of one network must not delay the other networks
	found := false
	confirmed := func(key, node string) bool {
		found = found || gone(node)
		return gone(node) && pass.Saw(key)
	}
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
	l.clean, l.due = !found, time.Now().Add(scanPeriod)
	return errors.Join(errs...)
}

// nodeHasGone reports whether the source does not have a node that it had at the last pass, or does not know the
// nodes.
func (l *Collector) nodeHasGone(ctx context.Context) (bool, error) {
	names, err := l.nodes.NodeNames(ctx)
	if err != nil {
		return false, err
	}
	before := l.present
	l.present = map[string]bool{}
	for _, name := range names {
		l.present[name] = true
		delete(before, name)
	}
	return names == nil || len(before) > 0, nil
}
