package ovndb

import (
	"context"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// readPage is how many rows one transaction reads. The server serves no other client during a transaction.
const readPage = 500

// ReadByKey reads the rows that have the keys, page by page. Keys without a row are ignored.
func ReadByKey[T any](ctx context.Context, d *DB, table string, keys []string, columns ...string) ([]*T, error) {
	var all []*T
	for page := range slices.Chunk(keys, readPage) {
		ops := make([]ovsdb.Operation, 0, len(page))
		for _, key := range page {
			ops = append(ops, Select(table, key, columns...))
		}
		results, err := d.Transact(ctx, ops)
		if err != nil {
			return nil, err
		}
		for _, result := range results {
			rows, err := Rows[T](d, result)
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
		}
	}
	return all, nil
}

// Versions reads the versions of the rows that have the keys, by key. A version is unique, and a row gets a new one
// with each change (RFC 7047, section 3.2, _version). Versions are not stored, so a server that has started since, or
// another member of a raft, has other versions of the same rows.
func Versions(ctx context.Context, d *DB, table string, keys []string) (map[string]string, error) {
	versions := map[string]string{}
	for page := range slices.Chunk(keys, readPage) {
		ops := make([]ovsdb.Operation, 0, len(page))
		for _, key := range page {
			ops = append(ops, Select(table, key, "_version"))
		}
		results, err := d.Transact(ctx, ops)
		if err != nil {
			return nil, err
		}
		for i, key := range page {
			for _, row := range results[i].Rows {
				if version, ok := row["_version"].(ovsdb.UUID); ok {
					versions[key] = version.GoUUID
				}
			}
		}
	}
	return versions, nil
}
