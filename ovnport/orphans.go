package ovnport

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/internal/stale"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Gone says why the pod or the node of an owner is gone for good; "" when both are there.
type Gone func(o Owner) string

// Orphans releases ports whose pod or node is gone for good: no agent is left to release them. It releases a port that
// two passes in a row saw as an orphan of one sandbox.
type Orphans struct {
	nb       *NB
	list     func(ctx context.Context) (Gone, error)
	mayWrite func() error
	log      *slog.Logger
	seen     stale.Tracker[orphan]
}

// orphan is a port as a pass sees it: the key of its row, and the sandbox that owns it.
type orphan struct{ key, sandbox string }

// NewOrphans takes list, which lists all pods and nodes. list fails when it cannot read all of them, and what it reads
// is no older than its call. mayWrite is asked before each release.
func NewOrphans(
	nb *NB, list func(ctx context.Context) (Gone, error), mayWrite func() error, log *slog.Logger,
) *Orphans {
	return &Orphans{nb: nb, list: list, mayWrite: mayWrite, log: log}
}

// Run makes one pass per period until ctx ends.
func (o *Orphans) Run(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := o.Pass(ctx); err != nil && ctx.Err() == nil {
			o.log.Warn("garbage collection of ports", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Pass makes one pass. After an error two new passes have to see a port before it is released.
func (o *Orphans) Pass(ctx context.Context) error {
	pass := o.seen.Begin()
	// The ports first: a pod that is newer than the list of pods has no port in the list of ports.
	rows, err := o.nb.podPorts(ctx)
	if err != nil {
		return err
	}
	gone, err := o.list(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		owner := ownerOf(row)
		reason := gone(owner)
		if reason == "" {
			continue
		}
		if confirmed := pass.Saw(orphan{row.UUID, owner.Sandbox}); !confirmed {
			o.log.Debug("saw an orphan", "port", row.Name, "reason", reason)
			continue
		}
		if err := o.mayWrite(); err != nil {
			return err
		}
		if err := o.nb.Release(ctx, owner.Sandbox, []Keys{{UUID: row.UUID, Claims: claimsOf(row)}}); err != nil {
			return fmt.Errorf("release port %s: %w", row.Name, err)
		}
		o.log.Info("released an orphan", "port", row.Name, "network", row.ExternalIDs[keyNetwork], "reason", reason)
	}
	pass.End()
	return nil
}

// podPorts reads the names and owners of the ports of this cluster's pods, page by page.
func (n *NB) podPorts(ctx context.Context) ([]*nb.LogicalSwitchPort, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"ports", "external_ids"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, sw := range switches {
		if sw.ExternalIDs[keyNetwork] != "" && ovndb.OtherCluster(sw.ExternalIDs) == "" {
			keys = append(keys, sw.Ports...)
		}
	}
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, n.db, nb.LogicalSwitchPortTable, keys, "_uuid", "name", "external_ids")
	return slices.DeleteFunc(ports, func(row *nb.LogicalSwitchPort) bool {
		return row.ExternalIDs[keySandbox] == "" || ovndb.OtherCluster(row.ExternalIDs) != ""
	}), err
}
