package ended

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// prefix is the prefix of a key in a node's row. The rest of the key is what String returns, and the value differs each
// time that the connections end.
const prefix = "ovn-multinet/ended:"

// maxEntries bounds a node's row: its agent reads all of it. Beyond maxEntries, an outside address keeps its latest
// entry alone. So the number of entries has the bound that the operator gives to the outside addresses.
const maxEntries = 256

// Connections are those that a router's gateway translates between an outside and an inside address, in both
// directions.
type Connections struct {
	Router  string // the full name
	Outside netip.Addr
	Inside  netip.Addr
}

// String is "<router> <outside> <inside>".
func (c Connections) String() string {
	return c.Router + " " + c.Outside.String() + " " + c.Inside.String()
}

// parse parses what String returns.
func parse(text string) (c Connections, err error) {
	words := strings.Split(text, " ")
	if len(words) != 3 {
		return c, fmt.Errorf("%q is not of the form <router> <outside address> <inside address>", text)
	}
	c.Router = words[0]
	if c.Outside, err = netip.ParseAddr(words[1]); err != nil {
		return c, err
	}
	c.Inside, err = netip.ParseAddr(words[2])
	return c, err
}

// Entry is one entry of a node's row.
type Entry struct {
	Connections
	Turn string // differs each time that these connections end
}

// Add adds connections to the rows of nodes. A node whose row exists reads it every few seconds, so a node that may
// have such connections later gets a row without entries.
func Add(ctx context.Context, b *nbrows.Batch, nodes []string, list ...Connections) error {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return node == "" })
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	keys := make([]string, len(nodes))
	for i, node := range nodes {
		keys[i] = ovndb.EndedKey(node)
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, b.Db, nb.CoppTable, keys)
	if err != nil {
		return err
	}
	turn := uuid.NewString()
	for i, node := range nodes {
		at := slices.IndexFunc(rows, func(row *nb.Copp) bool { return row.UUID == keys[i] })
		if at < 0 {
			insert(b, keys[i], node, turn, list)
		} else {
			addTo(b, rows[at], turn, list)
		}
	}
	return nil
}

func insert(b *nbrows.Batch, key, node, turn string, list []Connections) {
	ids := map[string]string{nbrows.KeyKind: nbrows.KindEnded, nbrows.KeyNode: node}
	for _, c := range list {
		ids[prefix+c.String()] = turn
	}
	b.News = true
	nbrows.Put(b, nb.CoppTable, key, nil,
		&nb.Copp{UUID: key, Name: "ovn-multinet ended connections on " + node, ExternalIDs: ids})
}

// addTo adds entries to a row that exists. The agent of the node deletes entries meanwhile.
func addTo(b *nbrows.Batch, row *nb.Copp, turn string, list []Connections) {
	if len(list) == 0 {
		return
	}
	b.News = true
	b.Add(ovndb.Present(nb.CoppTable, row.UUID))
	have := entries(row)
	for _, c := range list {
		if len(have)+len(list) > maxEntries {
			gone := map[string]string{}
			for _, e := range have {
				if e.Router == c.Router && e.Outside == c.Outside {
					gone[prefix+e.String()] = e.Turn
				}
			}
			b.Add(ovndb.DeletePairs(nb.CoppTable, row.UUID, "external_ids", gone))
		}
		b.Add(ovndb.SetPair(nb.CoppTable, row.UUID, "external_ids", prefix+c.String(), turn))
	}
}

// Select is the operation that reads the row of a node.
func Select(node string) ovsdb.Operation { return ovndb.Select(nb.CoppTable, ovndb.EndedKey(node)) }

// Read returns the entries that Select has read. exists reports whether the node has a row.
func Read(db *ovndb.DB, result ovsdb.OperationResult) (list []Entry, exists bool, err error) {
	var row *nb.Copp
	if err := nbrows.One(db, result, &row); err != nil || row == nil {
		return nil, false, err
	}
	return entries(row), true, nil
}

// entries returns the entries of a row, in the order of their keys. Other keys are those of other versions.
func entries(row *nb.Copp) (list []Entry) {
	for _, key := range nbrows.SortedKeys(row.ExternalIDs) {
		if text, ok := strings.CutPrefix(key, prefix); ok {
			if c, err := parse(text); err == nil {
				list = append(list, Entry{c, row.ExternalIDs[key]})
			}
		}
	}
	return list
}

// Delete deletes entries from the row of a node. An entry whose connections have ended again since stays.
func Delete(ctx context.Context, s *nbrows.Store, node string, list []Entry) error {
	gone := map[string]string{}
	for _, e := range list {
		gone[prefix+e.String()] = e.Turn
	}
	return s.Write(ctx, []ovsdb.Operation{
		ovndb.DeletePairs(nb.CoppTable, ovndb.EndedKey(node), "external_ids", gone),
	})
}
