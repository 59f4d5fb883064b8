package ovndb

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Options are our keys in a map column that others may add keys to. A key that is ours has the wanted value, or is
// missing if none is wanted. All other keys stay.
type Options struct {
	Column string // "": the table has no such column
	Ours   []string
}

// Set returns the operations that give a row our options; none if the row has them. have are the present options.
func (o Options) Set(table, key string, have, wanted map[string]string) []ovsdb.Operation {
	names := slices.Clone(o.Ours)
	for name := range wanted {
		names = append(names, name)
	}
	slices.Sort(names)
	var remove []string
	set := map[string]string{}
	for _, name := range slices.Compact(names) {
		is, present := have[name]
		value, ours := wanted[name]
		if present && (!ours || value != is) {
			remove = append(remove, name)
		}
		if ours && (!present || value != is) {
			set[name] = value
		}
	}
	if len(remove)+len(set) == 0 {
		return nil
	}
	return []ovsdb.Operation{SetPairs(table, key, o.Column, remove, set)}
}

// Change returns the operations that insert the wanted row, or change the present row into it; none if the rows are
// equal. The columns in without are inserted, but not compared.
func Change[T any](
	d *DB, table, key string, have, wanted *T, o Options, without ...string,
) ([]ovsdb.Operation, error) {
	if have == nil {
		insert, err := d.Insert(wanted)
		return []ovsdb.Operation{insert}, err
	}
	is, err := d.Columns(have, without...)
	ought, more := d.Columns(wanted, without...)
	if err := cmp.Or(err, more); err != nil {
		return nil, err
	}
	options := o.Set(table, key, takePairs(is, o.Column), takePairs(ought, o.Column))
	ops := []ovsdb.Operation{Present(table, key)}
	if !reflect.DeepEqual(is, ought) {
		ops = append(ops, Update(table, key, ought))
	}
	if ops = append(ops, options...); len(ops) == 1 {
		return nil, nil
	}
	return ops, nil
}

// Holder is the row and the column that refer to another row. The database deletes a row that has no reference.
type Holder struct{ Table, Key, Column string }

// ChangeIn is Change for a row that another row refers to. It also moves the reference if its holder changes. If wanted
// is nil, it removes the reference: then the database deletes the row.
func ChangeIn[T any](
	d *DB, table, key string, have, wanted *T, from, to Holder, o Options, without ...string,
) (ops []ovsdb.Operation, err error) {
	moves := from.Key != to.Key
	if have != nil && (wanted == nil || moves) {
		ops = append(ops, Unlink(from.Table, from.Column, key))
	}
	if wanted == nil {
		return ops, nil
	}
	changes, err := Change(d, table, key, have, wanted, o, without...)
	ops = append(ops, changes...)
	if have == nil || moves {
		ops = append(ops, Present(to.Table, to.Key), Link(to.Table, to.Key, to.Column, key))
	}
	return ops, err
}

// takePairs removes a map column from the columns of a row and returns its pairs.
func takePairs(row ovsdb.Row, column string) map[string]string {
	pairs, ok := row[column].(ovsdb.OvsMap)
	if !ok {
		return nil
	}
	delete(row, column)
	all := make(map[string]string, len(pairs.GoMap))
	for name, value := range pairs.GoMap {
		all[name.(string)] = value.(string)
	}
	return all
}
