package ovndb

import (
	"context"
	"slices"
	"sync"
	"time"

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

// togetherFor is how long a read waits for others that can go with it.
const togetherFor = 20 * time.Millisecond

// together is what goes with the next read of ReadTogether.
type together struct {
	mu   sync.Mutex
	next *joined
}

type joined struct {
	ops     []ovsdb.Operation
	done    chan struct{}
	results []ovsdb.OperationResult
	err     error
}

// ReadTogether runs a transaction that writes nothing, in one message with what other callers read at this moment. It
// is for reads that nobody waits for: each message of each node costs the server.
func (d *DB) ReadTogether(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	d.together.mu.Lock()
	j := d.together.next
	first := j == nil
	if first {
		j = &joined{done: make(chan struct{})}
		d.together.next = j
	}
	from := len(j.ops)
	j.ops = append(j.ops, ops...)
	d.together.mu.Unlock()
	if first {
		select {
		case <-ctx.Done():
		case <-time.After(togetherFor):
		}
		d.together.mu.Lock()
		d.together.next = nil
		d.together.mu.Unlock()
		j.results, j.err = d.Transact(ctx, j.ops)
		close(j.done)
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if j.err != nil {
		return nil, j.err
	}
	return j.results[from : from+len(ops)], nil
}
