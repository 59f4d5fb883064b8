package ovnrun

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Backup writes the database as text, as ovsdb-client(1) does. Any member of the raft can do it.
func (d *Database) Backup(ctx context.Context, to io.Writer) error {
	err := copied(ctx, to, "ovsdb-client", "--no-leader-only", "backup", "unix:"+d.Socket(), d.Kind.Database)
	if err != nil {
		return fmt.Errorf("backup of %s: %w", d.Kind.Database, err)
	}
	return nil
}

// Restore replaces all rows of the database by those of a backup, in one transaction. Any member of the raft can do it.
// Each row keeps its UUID: ovsdb-client's restore gives new ones, and agent and controller find rows by their UUIDs. A
// row that another client inserts at the same moment may stay.
func (d *Database) Restore(ctx context.Context, from io.Reader) error {
	b, err := readBackup(from)
	if err == nil && b.name != d.Kind.Database {
		err = fmt.Errorf("it is a backup of %q", b.name)
	}
	if err != nil {
		return fmt.Errorf("the backup cannot be read: %w", err)
	}
	present, err := d.transact(ctx, b.selects()...)
	if err != nil {
		return err
	}
	ops, err := b.replacing(present)
	if err != nil {
		return err
	}
	_, err = d.transact(ctx, ops...)
	return err
}

// backup is a database in a file: its tables, and their rows by UUID.
type backup struct {
	name   string
	tables []string
	rows   map[string]map[string]json.RawMessage
}

// readBackup reads the two records of a backup: schema and rows (ovsdb(5), "Standalone Database Format").
func readBackup(from io.Reader) (b backup, err error) {
	in := bufio.NewReader(from)
	var schema struct {
		Name   string
		Tables map[string]json.RawMessage
	}
	if err := readRecord(in, &schema); err != nil {
		return b, err
	}
	b.name, b.tables = schema.Name, slices.Sorted(maps.Keys(schema.Tables))
	var rows map[string]json.RawMessage           // beside tables, a record has a date and a comment
	if err := readRecord(in, &rows); err != nil { // also of an empty database, a backup has two records
		return b, err
	}
	b.rows = map[string]map[string]json.RawMessage{}
	for _, table := range b.tables {
		if len(rows[table]) == 0 {
			continue
		}
		var some map[string]json.RawMessage
		if err := json.Unmarshal(rows[table], &some); err != nil {
			return b, err
		}
		b.rows[table] = some
	}
	if _, err := in.Peek(1); !errors.Is(err, io.EOF) {
		return b, errors.New("it has more than one transaction: it is a database, not a backup")
	}
	return b, nil
}

// readRecord reads a record: its length, its SHA-1, and a JSON object.
func readRecord(in *bufio.Reader, to any) error {
	head, err := in.ReadString('\n')
	if errors.Is(err, io.EOF) && head == "" {
		return errors.New("it is not whole: it ends before a record")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var size int
	var sum string
	if _, err := fmt.Sscanf(head, "OVSDB JSON %d %s\n", &size, &sum); err != nil || size < 0 {
		return fmt.Errorf("it does not begin with the size of a record: %.40q", head)
	}
	var text []byte
	if text, err = io.ReadAll(io.LimitReader(in, int64(size))); err != nil {
		return err
	}
	if have := sha1.Sum(text); hex.EncodeToString(have[:]) != sum {
		return errors.New("it is damaged or not whole")
	}
	return json.Unmarshal(text, to)
}

// selects reads the UUIDs of all rows, table by table.
func (b *backup) selects() (ops []any) {
	for _, table := range b.tables {
		ops = append(ops, op{"op": "select", "table": table, "where": []any{}, "columns": []string{"_uuid"}})
	}
	return ops
}

// replacing makes the present rows those of the backup. A row that exists is updated: OVSDB inserts no row whose UUID
// the same transaction has deleted.
func (b *backup) replacing(present []result) (ops []any, err error) {
	for i, table := range b.tables {
		exists := map[string]bool{}
		for _, text := range present[i].Rows {
			var row struct {
				ID [2]string `json:"_uuid"`
			}
			if err := json.Unmarshal(text, &row); err != nil {
				return nil, err
			}
			id := row.ID[1]
			exists[id] = true
			if _, stays := b.rows[table][id]; !stays {
				ops = append(ops, op{"op": "delete", "table": table, "where": where("_uuid", row.ID)})
			}
		}
		for id, row := range b.rows[table] {
			if exists[id] {
				ops = append(ops, op{"op": "update", "table": table, "where": where("_uuid", [2]string{"uuid", id}), "row": row})
			} else {
				ops = append(ops, op{"op": "insert", "table": table, "uuid": id, "row": row})
			}
		}
	}
	return ops, nil
}
