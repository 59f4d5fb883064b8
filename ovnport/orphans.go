package ovnport

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Census says why an owner is gone for good; "" when it is not.
type Census func(o Owner) string

// Orphans releases ports whose pod or node is gone for good, and which no agent is there to release. It acts on what
// it has seen twice, a period apart.
type Orphans struct {
	nb *NB
	// count takes a census of all pods and nodes, or fails.
	count func(ctx context.Context) (Census, error)
	// mayWrite is asked before each release.
	mayWrite func() error
	log      *slog.Logger
	seen     map[string]string // sandbox by port, of the round before
}

// NewOrphans takes what counts pods and nodes: it must fail when it cannot read all of them, and what it counts must
// be no older than its call.
func NewOrphans(nb *NB, count func(ctx context.Context) (Census, error), mayWrite func() error, log *slog.Logger) *Orphans {
	return &Orphans{nb: nb, count: count, mayWrite: mayWrite, log: log}
}

// Run looks once a period until the end of ctx.
func (o *Orphans) Run(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := o.Round(ctx); err != nil && ctx.Err() == nil {
			o.log.Warn("look for ports whose pod or node is gone: nothing is released", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Round looks once. A list that could not be read in full releases nothing, and what was seen before has to be seen
// twice anew.
func (o *Orphans) Round(ctx context.Context) error {
	before := o.seen
	o.seen = nil
	// The ports first: a pod that is newer than the list of pods has no port in the list of ports.
	rows, err := o.nb.podPorts(ctx)
	if err != nil {
		return err
	}
	gone, err := o.count(ctx)
	if err != nil {
		return err
	}
	seen := map[string]string{}
	for _, row := range rows {
		owner := ownerOf(row)
		why := gone(owner)
		if why == "" {
			continue
		}
		if before[row.UUID] != owner.Sandbox {
			o.log.Debug("a port whose pod or node is gone, seen once", "port", row.Name, "reason", why)
			seen[row.UUID] = owner.Sandbox
			continue
		}
		if err := o.mayWrite(); err != nil {
			return err
		}
		if err := o.nb.Release(ctx, owner.Sandbox, []Held{{UUID: row.UUID, Claims: claimsOf(row)}}); err != nil {
			return fmt.Errorf("release port %s: %w", row.Name, err)
		}
		o.log.Info("released a port", "port", row.Name, "network", row.ExternalIDs[keyNetwork], "reason", why)
	}
	o.seen = seen
	return nil
}

// podPorts reads the ports of this cluster's pods, by page: without their addresses, only whose they are.
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
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.db, nb.LogicalSwitchPortTable, keys, "_uuid", "name", "external_ids")
	return slices.DeleteFunc(ports, func(row *nb.LogicalSwitchPort) bool {
		return row.ExternalIDs[keySandbox] == "" || ovndb.OtherCluster(row.ExternalIDs) != ""
	}), err
}
