package nbrows

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Reads are rows that one transaction reads by their keys.
type Reads struct {
	db     *ovndb.DB
	ops    []ovsdb.Operation
	decode []func(ovsdb.OperationResult) error // nil for an assertion
}

// Reads returns Reads without rows. Their transaction makes these assertions first.
func (n *Store) Reads(assertions ...ovsdb.Operation) *Reads {
	return &Reads{n.Db, assertions, make([]func(ovsdb.OperationResult) error, len(assertions))}
}

// ReadOne adds the row with that key. If there is no row, *into does not change.
func ReadOne[T any](r *Reads, table, key string, into **T, columns ...string) {
	r.ops = append(r.ops, ovndb.Select(table, key, columns...))
	r.decode = append(r.decode, func(result ovsdb.OperationResult) error { return One(r.db, result, into) })
}

// ReadInto adds the row with that key, for rows[as]. If there is no row, rows do not change.
func ReadInto[T any](r *Reads, table, key, as string, rows map[string]*T) {
	r.ops = append(r.ops, ovndb.Select(table, key))
	r.decode = append(r.decode, func(result ovsdb.OperationResult) error { return Into(r.db, result, as, rows) })
}

// Found is what NB has at the row key of an address or MAC; nil: no such row.
type Found struct {
	Port  *nb.LogicalSwitchPort
	Claim *nb.Copp
}

// ReadAt adds the port and the claim at the row key of an address or MAC. They are there when the rows have been read.
func ReadAt(r *Reads, key string) *Found {
	found := &Found{}
	ReadOne(r, nb.LogicalSwitchPortTable, key, &found.Port)
	ReadOne(r, nb.CoppTable, key, &found.Claim)
	return found
}

// Do reads the rows. Without rows it makes no transaction.
func (r *Reads) Do(ctx context.Context) error {
	if len(r.ops) == 0 || r.decode[len(r.decode)-1] == nil {
		return nil
	}
	results, err := r.db.Transact(ctx, r.ops)
	if err != nil {
		return err
	}
	var errs []error
	for i, decode := range r.decode {
		if decode != nil {
			errs = append(errs, decode(results[i]))
		}
	}
	return errors.Join(errs...)
}
