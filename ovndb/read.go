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
