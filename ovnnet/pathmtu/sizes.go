package pathmtu

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Overlay is the key of the overlay in Sizes and Smallest: the field Physical of an overlay network is empty too.
const Overlay = ""

// keyMTU is the key of an MTU of the overlay in external_ids. The key of a physical network has a colon and its name
// behind it.
const keyMTU = "ovn-multinet/mtu"

func keyOf(name string) string {
	if name == Overlay {
		return keyMTU
	}
	return keyMTU + ":" + name
}

// nameOf returns the Overlay or the physical network of a key of external_ids.
func nameOf(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, keyMTU)
	if !ok || rest == "" {
		return Overlay, ok
	}
	return strings.CutPrefix(rest, ":")
}

// Sizes are the MTUs of a node, in bytes: that of pods on overlay networks, and those of the bridges of physical
// networks, by name. What the node does not know is missing.
type Sizes map[string]int

// Mark writes the MTUs into external_ids of the node's row.
func (s Sizes) Mark(ids map[string]string) {
	for name, mtu := range s {
		ids[keyOf(name)] = strconv.Itoa(mtu)
	}
}

// SizesOf reads the MTUs of a node from external_ids of its row.
func SizesOf(ids map[string]string) Sizes {
	s := Sizes{}
	for key, text := range ids {
		if name, ok := nameOf(key); ok {
			if mtu, err := strconv.Atoi(text); err == nil && mtu >= leastMTU {
				s[name] = mtu
			}
		}
	}
	return s
}

// leastMTU is what every host of IPv4 takes (RFC 791). A node that publishes less does not count: with a stolen key it
// could stop all networks.
const leastMTU = 576

// Limit is the smallest MTU among all nodes, and the name of one node that has it.
type Limit struct {
	MTU  int
	Node string
}

// Smallest are the limits of the overlay and of the physical networks, by name. What no node knows is missing.
type Smallest map[string]Limit

// Add takes a node into account. Of two nodes with the same MTU, the first by name is in the Limit.
func (s Smallest) Add(node string, sizes Sizes) {
	for name, mtu := range sizes {
		if is, ok := s[name]; !ok || mtu < is.MTU || mtu == is.MTU && node < is.Node {
			s[name] = Limit{mtu, node}
		}
	}
}

// Lower takes other limits into account: the smaller ones count.
func (s Smallest) Lower(other Smallest) {
	for name, limit := range other {
		if is, ok := s[name]; !ok || limit.MTU < is.MTU {
			s[name] = limit
		}
	}
}

// Of returns the smaller one of an MTU and the limit.
func (s Smallest) Of(name string, mtu int) int {
	if limit, ok := s[name]; ok {
		return min(mtu, limit.MTU)
	}
	return mtu
}

// rowKey is the key of the row with the smallest MTUs.
var rowKey = ovndb.PartKey("smallest mtu", "")

// Select is the operation that reads the smallest MTUs.
func Select() ovsdb.Operation { return ovndb.Select(nb.CoppTable, rowKey, "_uuid", "external_ids") }

// Read takes the result of Select.
func Read(db *ovndb.DB, result ovsdb.OperationResult) (Smallest, error) {
	s, _, err := read(db, result)
	return s, err
}

func read(db *ovndb.DB, result ovsdb.OperationResult) (Smallest, *nb.Copp, error) {
	var row *nb.Copp
	if err := nbrows.One(db, result, &row); err != nil {
		return nil, nil, err
	}
	s := Smallest{}
	if row == nil {
		return s, nil, nil
	}
	for key, text := range row.ExternalIDs {
		name, ok := nameOf(key)
		size, node, is := strings.Cut(text, " ")
		if mtu, err := strconv.Atoi(size); ok && is && err == nil && mtu > 0 {
			s[name] = Limit{mtu, node}
		}
	}
	return s, row, nil
}

// SizesOfNodes reads the MTUs of nodes from their rows. A node without a row has none.
func SizesOfNodes(ctx context.Context, db *ovndb.DB, nodes []string) (map[string]Sizes, error) {
	rows, err := nbrows.ReadNodes(ctx, db, nodes)
	if err != nil {
		return nil, err
	}
	sizes := map[string]Sizes{}
	for _, node := range nodes {
		sizes[node] = SizesOf(rows[node])
	}
	return sizes, nil
}

// SizesOfAll reads the MTUs of all nodes that have a row. The server scans a table for it.
func SizesOfAll(ctx context.Context, db *ovndb.DB) (map[string]Sizes, error) {
	results, err := db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, nbrows.KindNode),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](db, results[0])
	sizes := map[string]Sizes{}
	for _, row := range rows {
		if ovndb.OtherCluster(row.ExternalIDs) == "" {
			sizes[row.ExternalIDs[nbrows.KeyNode]] = SizesOf(row.ExternalIDs)
		}
	}
	return sizes, err
}

// Ensure makes limits the smallest MTUs in NB, and returns what NB has then. If mayRise is false, some nodes are still
// unknown, and NB keeps what is smaller there.
func Ensure(ctx context.Context, store *nbrows.Store, limits Smallest, mayRise bool) (Smallest, error) {
	var wanted Smallest
	_, err := store.Change(ctx, "the smallest MTUs", func(b *nbrows.Batch) error {
		results, err := store.Db.Transact(ctx, []ovsdb.Operation{Select()})
		if err != nil {
			return err
		}
		is, have, err := read(store.Db, results[0])
		if err != nil {
			return err
		}
		wanted = maps.Clone(limits)
		if !mayRise {
			wanted.Lower(is)
		}
		if have == nil && len(wanted) == 0 {
			return nil
		}
		row := &nb.Copp{UUID: rowKey, Name: "ovn-multinet smallest mtu", ExternalIDs: map[string]string{
			nbrows.KeyKind: nbrows.KindMTU,
		}}
		for name, limit := range wanted {
			row.ExternalIDs[keyOf(name)] = fmt.Sprintf("%d %s", limit.MTU, limit.Node)
		}
		if have != nil {
			have.Name = row.Name // it was not read
		}
		b.News = true
		nbrows.Put(b, nb.CoppTable, rowKey, have, row)
		if have != nil {
			b.First(ovndb.HasMap(nb.CoppTable, rowKey, "external_ids", have.ExternalIDs))
		}
		return nil
	})
	return wanted, err
}
