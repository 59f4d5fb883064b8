// Package uplinks owns how NB tells each node which bridges to physical networks it should have, and how each node
// tells what it has made of that. It knows no selectors, and it changes nothing on a node.
package uplinks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

const (
	kindUplinks = "uplinks" // value of nbrows.KeyKind
	// keyUplink and the name of a physical network are the key in external_ids of the row of a node's wanted uplinks, and
	// of the row that the node's agent writes.
	keyUplink = "ovn-multinet/uplink:"
)

// Wanted are the uplinks that a node should have, by physical network.
type Wanted map[string]netmodel.NodeUplink

// Report is what a node says of its uplinks, by physical network. An uplink that is gone from Wanted is in it until the
// node has removed its bridge.
type Report map[string]Said

// Said is what a node says of one uplink.
type Said struct {
	Of      netmodel.NodeUplink `json:"of"`                // as the node has read it
	Problem string              `json:"problem,omitempty"` // what is missing; "": nothing
	Pending bool                `json:"pending,omitempty"` // it may be there in a moment
}

// Mark writes a report into external_ids of the node's row.
func (r Report) Mark(ids map[string]string) {
	for name, said := range r {
		text, _ := json.Marshal(said) // impossible to fail: it has texts alone
		ids[keyUplink+name] = string(text)
	}
}

// ReportOf reads a report from external_ids of the node's row. What is no report is missing.
func ReportOf(ids map[string]string) Report {
	r := Report{}
	for key, text := range ids {
		var said Said
		if name, ok := strings.CutPrefix(key, keyUplink); ok && json.Unmarshal([]byte(text), &said) == nil {
			r[name] = said
		}
	}
	return r
}

func keyOf(node string) string { return ovndb.PartKey("uplinks", node) }

func rowOf(node string, wanted Wanted) (*nb.Copp, error) {
	row := &nb.Copp{UUID: keyOf(node), Name: "ovn-multinet uplinks of " + node, ExternalIDs: map[string]string{
		nbrows.KeyKind: kindUplinks, nbrows.KeyNode: node,
	}}
	for name, uplink := range wanted {
		text, err := json.Marshal(uplink)
		if err != nil {
			return nil, err
		}
		row.ExternalIDs[keyUplink+name] = string(text)
	}
	return row, nil
}

func wantedOf(row *nb.Copp) (Wanted, error) {
	w := Wanted{}
	for key, text := range row.ExternalIDs {
		name, ok := strings.CutPrefix(key, keyUplink)
		if !ok {
			continue
		}
		var uplink netmodel.NodeUplink
		if err := json.Unmarshal([]byte(text), &uplink); err != nil {
			return nil, fmt.Errorf("uplink of %.64q: %w", name, err)
		}
		if err := uplink.Check(name); err != nil {
			return nil, fmt.Errorf("uplink of %.64q: %w", name, err)
		}
		w[name] = uplink
	}
	return w, nil
}

// Select is the operation that reads the wanted uplinks of a node.
func Select(node string) ovsdb.Operation { return ovndb.Select(nb.CoppTable, keyOf(node)) }

// Read takes the result of Select. nil: the controller has never said anything about the node's uplinks, or the row is
// of another cluster. A node then leaves everything as it is: NB may have been wiped.
func Read(db *ovndb.DB, result ovsdb.OperationResult) (Wanted, error) {
	var row *nb.Copp
	if err := nbrows.One(db, result, &row); err != nil || row == nil || ovndb.OtherCluster(row.ExternalIDs) != "" {
		return nil, err
	}
	return wantedOf(row)
}

// All reads the wanted uplinks of all nodes that have a row. The server scans a table for it.
func All(ctx context.Context, db *ovndb.DB) (map[string]Wanted, error) {
	results, err := db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, kindUplinks),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](db, results[0])
	if err != nil {
		return nil, err
	}
	all := map[string]Wanted{}
	for _, row := range rows {
		if ovndb.OtherCluster(row.ExternalIDs) != "" {
			continue
		}
		wanted, err := wantedOf(row)
		if err != nil {
			wanted = Wanted{} // another program has changed it: it is written again
		}
		all[row.ExternalIDs[nbrows.KeyNode]] = wanted
	}
	return all, nil
}

// Write makes the wanted uplinks of nodes those in set, in one transaction, and deletes the rows of the nodes in gone.
func Write(ctx context.Context, store *nbrows.Store, set map[string]Wanted, gone []string) error {
	keys := make([]string, 0, len(set)+len(gone))
	for _, node := range append(nbrows.SortedKeys(set), gone...) {
		keys = append(keys, keyOf(node))
	}
	_, err := store.Change(ctx, "the wanted uplinks of nodes", func(b *nbrows.Batch) error {
		rows, err := ovndb.ReadByKey[nb.Copp](ctx, store.Db, nb.CoppTable, keys)
		if err != nil {
			return err
		}
		have := map[string]*nb.Copp{}
		for _, row := range rows {
			have[row.UUID] = row
		}
		b.News = true
		for _, node := range nbrows.SortedKeys(set) {
			row, err := rowOf(node, set[node])
			if err != nil {
				return err
			}
			nbrows.Put(b, nb.CoppTable, row.UUID, have[row.UUID], row)
		}
		for _, node := range gone {
			if have[keyOf(node)] != nil {
				b.Add(ovndb.Delete(nb.CoppTable, keyOf(node)))
			}
		}
		return nil
	})
	return err
}

// Reports reads what nodes say of their uplinks. A node without a row has said nothing.
func Reports(ctx context.Context, db *ovndb.DB, nodes []string) (map[string]Report, error) {
	rows, err := nbrows.ReadNodes(ctx, db, nodes)
	reports := map[string]Report{}
	for node, ids := range rows {
		reports[node] = ReportOf(ids)
	}
	return reports, err
}
