package ovndb

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// A guard is an operation that asserts a condition. If the condition is false, the database refuses the transaction
// at the index of the guard. Absence is asserted with until "!=", because libovsdb omits an empty "rows", and the
// server refuses a wait without "rows".

// Present asserts that the row exists.
func Present(table, uuid string) ovsdb.Operation { return wait(table, uuid, ovsdb.WaitConditionEqual) }

// Absent asserts that no row has the key.
func Absent(table, uuid string) ovsdb.Operation {
	return wait(table, uuid, ovsdb.WaitConditionNotEqual)
}

// Holds asserts that the row exists and that a map column of it has the pair.
func Holds(table, uuid, column, key, value string) ovsdb.Operation {
	return HoldsAll(table, uuid, column, map[string]string{key: value})
}

// HoldsAll asserts that the row exists and that a map column of it has these pairs, and maybe others.
func HoldsAll(table, uuid, column string, pairs map[string]string) ovsdb.Operation {
	op := wait(table, uuid, ovsdb.WaitConditionEqual)
	op.Where = append(op.Where, ovsdb.NewCondition(column, ovsdb.ConditionIncludes, Map(pairs)))
	return op
}

// NotOtherwise asserts that a map column of the row has the pair, or that no row has the key.
func NotOtherwise(table, uuid, column, key, value string) ovsdb.Operation {
	op := Absent(table, uuid)
	op.Where = append(op.Where, ovsdb.NewCondition(column, ovsdb.ConditionExcludes, Map(map[string]string{key: value})))
	return op
}

// HasMap asserts that the row exists and that a map column of it has these pairs and no others.
func HasMap(table, uuid, column string, pairs map[string]string) ovsdb.Operation {
	op := wait(table, uuid, ovsdb.WaitConditionEqual)
	op.Columns, op.Rows = []string{column}, []ovsdb.Row{{column: Map(pairs)}}
	return op
}

// AllWith asserts that these rows, and no others, have the pair in a map column.
func AllWith(table, column, key, value string, uuids []string) ovsdb.Operation {
	op := wait(table, "", ovsdb.WaitConditionEqual)
	op.Where = []ovsdb.Condition{
		ovsdb.NewCondition(column, ovsdb.ConditionIncludes, Map(map[string]string{key: value})),
	}
	op.Rows = make([]ovsdb.Row, len(uuids))
	for i, uuid := range uuids {
		op.Rows[i] = ovsdb.Row{"_uuid": ovsdb.UUID{GoUUID: uuid}}
	}
	return op
}

// AtLeast waits until a column of the row has at least the value, but no longer than atMost.
func AtLeast(table, uuid, column string, value int, atMost time.Duration) ovsdb.Operation {
	op, ms := wait(table, uuid, ovsdb.WaitConditionEqual), int(atMost.Milliseconds())
	op.Timeout = &ms
	op.Where = append(op.Where, ovsdb.NewCondition(column, ovsdb.ConditionGreaterThanOrEqual, value))
	return op
}

func wait(table, uuid string, until ovsdb.WaitCondition) ovsdb.Operation {
	now := 0
	return ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: table, Timeout: &now, Where: byUUID(uuid), Columns: []string{"_uuid"},
		Until: string(until), Rows: []ovsdb.Row{{"_uuid": ovsdb.UUID{GoUUID: uuid}}},
	}
}

// Select reads the row with the key. Only this query has a cost that does not grow with the table.
func Select(table, uuid string, columns ...string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Where: byUUID(uuid), Columns: columns}
}

// SelectWith reads the rows whose map column has the pair. The server scans the table.
func SelectWith(table, column, key, value string, columns ...string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: columns, Where: []ovsdb.Condition{
		ovsdb.NewCondition(column, ovsdb.ConditionIncludes, Map(map[string]string{key: value}))}}
}

// Update sets columns of the row with the key.
func Update(table, uuid string, row ovsdb.Row) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: table, Where: byUUID(uuid), Row: row}
}

// Delete deletes the row with the key.
func Delete(table, uuid string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationDelete, Table: table, Where: byUUID(uuid)}
}

// Link adds row keys to a set column of the row with the key.
func Link(table, uuid, column string, members ...string) ovsdb.Operation {
	return mutate(table, byUUID(uuid), column, ovsdb.MutateOperationInsert, members)
}

// Unlink removes a row key from the set column of the row that has it. The caller need not know that row.
func Unlink(table, column, member string) ovsdb.Operation {
	where := []ovsdb.Condition{ovsdb.NewCondition(column, ovsdb.ConditionIncludes, UUIDs([]string{member}))}
	return mutate(table, where, column, ovsdb.MutateOperationDelete, []string{member})
}

// UnlinkOne removes row keys from a set column of the row with the key. Other rows may have them too.
func UnlinkOne(table, uuid, column string, members ...string) ovsdb.Operation {
	return mutate(table, byUUID(uuid), column, ovsdb.MutateOperationDelete, members)
}

// UnlinkFrom removes a row key from the set column of the row with the key uuid. Its guard asserts that this row has
// the member.
func UnlinkFrom(table, uuid, column, member string) []ovsdb.Operation {
	has := wait(table, uuid, ovsdb.WaitConditionEqual)
	has.Where = append(has.Where, ovsdb.NewCondition(column, ovsdb.ConditionIncludes, UUIDs([]string{member})))
	return []ovsdb.Operation{has, mutate(table, byUUID(uuid), column, ovsdb.MutateOperationDelete, []string{member})}
}

// SetPair gives a map column of the row with the key one pair. The other pairs stay.
func SetPair(table, uuid, column, key, value string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: byUUID(uuid), Mutations: []ovsdb.Mutation{
		*ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, Set([]string{key})),
		*ovsdb.NewMutation(column, ovsdb.MutateOperationInsert, Map(map[string]string{key: value})),
	}}
}

// SetPairs removes keys from a map column of the row with the key, and then inserts pairs. An insert never replaces a
// value, so a key that gets another value is in both. The other pairs stay.
func SetPairs(table, uuid, column string, remove []string, set map[string]string) ovsdb.Operation {
	op := ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: byUUID(uuid)}
	if len(remove) > 0 {
		op.Mutations = append(op.Mutations, *ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, Set(remove)))
	}
	if len(set) > 0 {
		op.Mutations = append(op.Mutations, *ovsdb.NewMutation(column, ovsdb.MutateOperationInsert, Map(set)))
	}
	return op
}

// DeletePairs removes these pairs from a map column of the row with the key. A key with another value stays.
func DeletePairs(table, uuid, column string, pairs map[string]string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: byUUID(uuid), Mutations: []ovsdb.Mutation{
		*ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, Map(pairs)),
	}}
}

func mutate(
	table string, where []ovsdb.Condition, column string, how ovsdb.Mutator, members []string,
) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: where,
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(column, how, UUIDs(members))}}
}

// UUIDs is the wire form of a set column of row keys.
func UUIDs(members []string) ovsdb.OvsSet {
	set := make([]any, len(members))
	for i, m := range members {
		set[i] = ovsdb.UUID{GoUUID: m}
	}
	return ovsdb.OvsSet{GoSet: set}
}

// Map is the wire form of a map column.
func Map(m map[string]string) ovsdb.OvsMap {
	out := ovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range m {
		out.GoMap[k] = v
	}
	return out
}

// Set is the wire form of a set column of strings.
func Set(list []string) ovsdb.OvsSet {
	out := ovsdb.OvsSet{GoSet: []any{}}
	for _, v := range list {
		out.GoSet = append(out.GoSet, v)
	}
	return out
}

func byUUID(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}

// Insert makes the insert operation of a generated model. The model's UUID is the key of the row, or its name within
// the transaction. Insert needs the server's schema: use it only after WaitConnected.
func (d *DB) Insert(row model.Model) (ovsdb.Operation, error) {
	select {
	case <-d.connected:
	default:
		return ovsdb.Operation{}, fmt.Errorf("%s database was not reachable yet", d.name)
	}
	info, err := d.model.NewModelInfo(row)
	if err != nil {
		return ovsdb.Operation{}, err
	}
	key, err := info.FieldByColumn("_uuid")
	if err != nil {
		return ovsdb.Operation{}, err
	}
	columns, err := d.mapper.NewRow(info)
	if err != nil {
		return ovsdb.Operation{}, err
	}
	delete(columns, "_uuid") // the operation has the key
	op := ovsdb.Operation{Op: ovsdb.OperationInsert, Table: info.Metadata.TableName, Row: columns}
	if name := key.(string); ovsdb.IsNamedUUID(name) {
		op.UUIDName = name
	} else {
		op.UUID = name
	}
	return op, nil
}

// HasColumn reports whether the server's schema has a column. Use it only after WaitConnected.
func (d *DB) HasColumn(table, column string) bool {
	t := d.mapper.Schema.Table(table)
	return t != nil && t.Column(column) != nil
}

// Columns is the wire form of all columns of a generated model except its key and those in without. Sets are sorted,
// so equal rows are deeply equal. Like Insert, it needs the server's schema.
func (d *DB) Columns(row model.Model, without ...string) (ovsdb.Row, error) {
	info, err := d.model.NewModelInfo(row)
	if err != nil {
		return nil, err
	}
	columns := ovsdb.Row{}
	for name, column := range info.Metadata.TableSchema.Columns {
		value, err := info.FieldByColumn(name)
		if err != nil || slices.Contains(without, name) {
			continue // the model has no such field, or the column is in without
		}
		wire, err := ovsdb.NativeToOvs(column, value)
		if err != nil {
			return nil, fmt.Errorf("table %s, column %s: %w", info.Metadata.TableName, name, err)
		}
		if set, ok := wire.(ovsdb.OvsSet); ok {
			slices.SortFunc(set.GoSet, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		columns[name] = wire
	}
	return columns, nil
}

// Rows decodes the rows in the result of a select into generated models.
func Rows[T any](d *DB, result ovsdb.OperationResult) ([]*T, error) {
	rows := make([]*T, 0, len(result.Rows))
	for i := range result.Rows {
		row := new(T)
		info, err := d.model.NewModelInfo(row)
		if err != nil {
			return nil, err
		}
		d.hideOwn(result.Rows[i])
		if err := d.mapper.GetRowData(&result.Rows[i], info); err != nil {
			return nil, err
		}
		if key, ok := result.Rows[i]["_uuid"].(ovsdb.UUID); ok {
			if err := info.SetField("_uuid", key.GoUUID); err != nil {
				return nil, fmt.Errorf("row key: %w", err)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
