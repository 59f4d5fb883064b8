package ovndb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// One Northbound database belongs to one cluster: the row at ClusterKey names it. Every transaction that writes
// asserts that row, with its age, and every row that is written carries the identity of the cluster.

// ClusterMark is the key of external_ids with the identity of the cluster that wrote the row.
const ClusterMark = "ovn-multinet/cluster"

// ClusterKey is the key of the row that names the owner of the database. It is a row of the table Copp: rows of that
// table need no parent, have unique names, and are not copied to the Southbound database.
var ClusterKey = rowKey("cluster", "", nil, 0)

// OtherCluster returns the identity of the other cluster that wrote a row; "": this cluster or an older version wrote
// the row. Rows hides the identity of this cluster.
func OtherCluster(externalIDs map[string]string) string { return externalIDs[ClusterMark] }

// NotOwner is the error of a write to a database that does not belong to the cluster of this process. Nothing was
// written.
type NotOwner struct {
	Database string
	Owner    string // "": no cluster has taken the database
	Cluster  string // of this process
}

func (e *NotOwner) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("no controller has taken this %s yet", e.Database)
	}
	return fmt.Sprintf("%s belongs to cluster %s, not to cluster %s", e.Database, e.Owner, e.Cluster)
}

// identityPause is the time between two attempts to learn the identity of the cluster.
const identityPause = time.Second

// identify asks for the identity of the cluster until the identity is known. It returns false if ctx ends first.
func (d *DB) identify(ctx context.Context, cfg Config) bool {
	if cfg.Cluster == nil {
		return true
	}
	for said := false; ; said = true {
		attempt, cancel := context.WithTimeout(ctx, checkTimeout)
		id, err := cfg.Cluster(attempt)
		cancel()
		if err == nil {
			d.cluster = id
			d.unknown.Store(nil)
			return true
		}
		d.unknown.Store(&err)
		if !said && ctx.Err() == nil {
			cfg.Log.Warn("the identity of this cluster is not known yet; trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(identityPause):
		}
	}
}

// maxTakes limits the attempts of Take. An attempt fails only if another controller writes at the same moment.
const maxTakes = 10

// Take makes the cluster of this process the owner of the database when the database has no owner, or when its owner
// is adopt. It also increases the age in the row. The error is a *NotOwner when another cluster owns the database.
func (d *DB) Take(ctx context.Context, adopt string) error {
	if err := d.WaitConnected(ctx); err != nil {
		return err
	}
	var last error
	var there bool
	for range maxTakes {
		var row ownerRow
		var err error
		there, row, err = d.owner(ctx)
		switch {
		case err != nil:
			return err
		case row.cluster == d.cluster && !d.age.due():
			return nil
		case row.cluster != d.cluster && row.cluster != "" && row.cluster != adopt:
			return &NotOwner{d.name, row.cluster, d.cluster}
		}
		next := row.next(d.cluster)
		var ops []ovsdb.Operation
		if there {
			ops = []ovsdb.Operation{
				HasMap(nb.CoppTable, ClusterKey, "external_ids", row.ids),
				Update(nb.CoppTable, ClusterKey, ovsdb.Row{"external_ids": Map(next.ids)}),
			}
		} else {
			op, err := d.Insert(&nb.Copp{UUID: ClusterKey, Name: "ovn-multinet cluster", ExternalIDs: next.ids})
			if err != nil {
				return err
			}
			ops = []ovsdb.Operation{op}
		}
		before := d.age.last()
		if _, last = d.transact(ctx, ops); last == nil {
			d.age.counted()
			d.age.observe(before, version{next.made, next.age})
			return nil
		}
		if _, refused := errors.AsType[*Refused](last); !refused {
			return last
		}
		// The next read tells which of several controllers was first.
	}
	last = cmp.Or(last, errors.New("the row changes all the time"))
	if refused, is := errors.AsType[*Refused](last); is && !there && refused.Reason == ReasonConstraint {
		last = fmt.Errorf("%w: the row exists with another UUID, as after ovsdb-client's restore, which gives all rows "+
			"new UUIDs (docs/operations.md, \"Back up and restore NB\")", last)
	}
	return fmt.Errorf("%s database: cannot write the row of its owner: %w", d.name, last)
}

// owner reads which cluster owns the database. A row without an identity was changed by hand: it names no owner.
func (d *DB) owner(ctx context.Context) (there bool, row ownerRow, err error) {
	before := d.age.last()
	results, err := d.transact(ctx, []ovsdb.Operation{readOwner})
	if err != nil {
		return false, row, err
	}
	d.answered()
	there, row = d.readOwner(before, results[0])
	return there, row, nil
}

// Owned reads whether the database belongs to this cluster. If it does not, the error is a *NotOwner. If this process
// has no cluster, Owned reads nothing.
func (d *DB) Owned(ctx context.Context) error {
	if err := d.WaitConnected(ctx); err != nil {
		return err
	}
	if d.cluster == "" {
		return nil
	}
	_, err := d.own(ctx)
	return err
}

// own reads the row of the owner. If another cluster owns the database, the error is a *NotOwner.
func (d *DB) own(ctx context.Context) (ownerRow, error) {
	_, row, err := d.owner(ctx)
	if err == nil && row.cluster != d.cluster {
		err = &NotOwner{d.name, row.cluster, d.cluster}
	}
	return row, err
}

// guarded runs a transaction that writes. It first asserts that the database belongs to this cluster, and that it is
// the database that this process knows: in a database that was replaced, no row may say that a running pod has an
// address. The results and the index in a *Refused are those of the caller's operations.
func (d *DB) guarded(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	known := d.age.last()
	if known.made == "" {
		row, err := d.own(ctx)
		if err != nil {
			return nil, err
		}
		known = row.version()
	}
	ops = d.stamp(ops)
	for range maxTakes {
		results, err := d.transact(ctx, append([]ovsdb.Operation{d.isStill(known)}, ops...))
		if err == nil {
			return results[1:], nil
		}
		refused, ok := errors.AsType[*Refused](err)
		if !ok {
			return nil, err
		}
		if refused.Index > 0 {
			return nil, &Refused{Index: refused.Index - 1, Reason: refused.Reason, Details: refused.Details}
		}
		row, err := d.own(ctx)
		if err != nil {
			return nil, err
		}
		if known.replacedBy(row.version()) {
			return nil, &Replaced{d.name}
		}
		known = row.version() // a controller of this cluster has written the row meanwhile
	}
	return nil, &NotOwner{d.name, "", d.cluster}
}

// isStill asserts that the database belongs to this cluster and has this version. A row that an older controller wrote
// has no version.
func (d *DB) isStill(v version) ovsdb.Operation {
	ids := map[string]string{ClusterMark: d.cluster}
	if v.made != "" {
		ids[madeMark], ids[ageMark] = v.made, strconv.FormatInt(v.age, 10)
	}
	return HoldsAll(nb.CoppTable, ClusterKey, "external_ids", ids)
}

// writes reports whether a transaction changes rows.
func writes(ops []ovsdb.Operation) bool {
	return slices.ContainsFunc(ops, func(op ovsdb.Operation) bool {
		return op.Op != ovsdb.OperationSelect && op.Op != ovsdb.OperationWait
	})
}

// stamp writes the identity of this cluster into the external_ids of inserted and updated rows. It also writes the
// identity into external_ids that a guard compares as a whole, because Rows hid the identity from the caller.
func (d *DB) stamp(ops []ovsdb.Operation) []ovsdb.Operation {
	ops = slices.Clone(ops)
	for i := range ops {
		op := &ops[i]
		if op.Op == ovsdb.OperationWait {
			op.Rows = slices.Clone(op.Rows)
			for j, row := range op.Rows {
				if ids, ok := row["external_ids"].(ovsdb.OvsMap); ok && ids.GoMap[ClusterMark] == nil {
					op.Rows[j] = d.stamped(row, ids)
				}
			}
		} else if ids, ok := op.Row["external_ids"].(ovsdb.OvsMap); ok {
			op.Row = d.stamped(op.Row, ids)
		}
	}
	return ops
}

func (d *DB) stamped(row ovsdb.Row, ids ovsdb.OvsMap) ovsdb.Row {
	row = maps.Clone(row)
	with := maps.Clone(ids.GoMap)
	if with == nil {
		with = map[any]any{}
	}
	with[ClusterMark] = d.cluster
	row["external_ids"] = ovsdb.OvsMap{GoMap: with}
	return row
}

// hideOwn removes the identity of this cluster from a row that was read, so that callers compare rows without it.
func (d *DB) hideOwn(row ovsdb.Row) {
	if ids, ok := row["external_ids"].(ovsdb.OvsMap); ok && d.cluster != "" && ids.GoMap[ClusterMark] == d.cluster {
		delete(ids.GoMap, ClusterMark)
	}
}
