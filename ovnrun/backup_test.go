package ovnrun

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A backup and a restore work on a member that does not lead. The restore replaces all rows and keeps their UUIDs, and
// what is no backup changes nothing.
func TestBackup(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.node("a"), w.node("b"), w.node("c")
	for _, n := range []*node{a, b, c} {
		w.start(n)
	}
	w.members(false, "a=1", "b=1", "c=1")
	leader := w.wantRaft(a, b, c)
	follower := a
	if leader == a {
		follower = b
	}
	w.insert(a, "stays")
	w.insert(a, "goes")
	_, err := a.transact(t.Context(),
		op{"op": "insert", "table": "Logical_Switch_Port", "uuid-name": "p", "row": map[string]any{"name": "port"}},
		op{"op": "mutate", "table": "Logical_Switch", "where": where("name", "goes"),
			"mutations": []any{[]any{"ports", "insert", []any{"named-uuid", "p"}}}})
	w.must(err)
	w.wantRows(follower, "stays", "goes")
	w.eventually("the row of the servers' port", func() error { // the leader inserts it when it can
		if !strings.HasPrefix(strings.Join(w.everything(follower), "\n"), "Connection ") {
			return errors.New("it is not there")
		}
		return nil
	})
	var text bytes.Buffer
	w.must(follower.Backup(t.Context(), &text))
	before := w.everything(follower)

	_, err = a.transact(t.Context(), op{"op": "delete", "table": "Logical_Switch", "where": where("name", "goes")},
		op{"op": "update", "table": "Logical_Switch", "where": where("name", "stays"),
			"row": map[string]any{"external_ids": ovsMap(map[string]string{"later": "yes"})}})
	w.must(err)
	w.insert(a, "later")
	w.wantRows(follower, "stays", "later")

	for bad, want := range map[string]string{
		text.String()[:text.Len()/2]:  "the backup cannot be read: it is damaged or not whole",
		text.String()[:text.Len()-1]:  "the backup cannot be read: it is damaged or not whole",
		"":                            "the backup cannot be read: it is not whole: it ends before a record",
		firstRecord(t, text.String()): "the backup cannot be read: it is not whole: it ends before a record",
		"switch blue\n":               `the backup cannot be read: it does not begin with the size of a record: "switch blue\n"`,
		text.String() + text.String(): "the backup cannot be read: it has more than one transaction: it is a database, not a backup",
		strings.Replace(text.String(), "stays", "x", 1): "the backup cannot be read: it is damaged or not whole",
	} {
		if err := follower.Restore(t.Context(), strings.NewReader(bad)); err == nil || err.Error() != want {
			t.Fatalf("error %v, want %s", err, want)
		}
	}
	other := Database{Kind: follower.Kind, RunDir: follower.RunDir, Log: follower.Log} // the running one is not to be copied
	other.Kind.Database = "OVN_Southbound"
	err = other.Restore(t.Context(), bytes.NewReader(text.Bytes()))
	if err == nil || !strings.HasSuffix(err.Error(), `it is a backup of "OVN_Northbound"`) {
		t.Errorf("another database: error %v", err)
	}
	w.wantRows(follower, "stays", "later")

	w.must(follower.Restore(t.Context(), &text))
	if now := w.everything(follower); !slices.Equal(now, before) {
		t.Fatalf("rows %q, want %q", now, before)
	}
	for _, n := range []*node{a, b, c} {
		w.wantRows(n, "stays", "goes")
		w.eventually("rows of "+n.Node, func() error {
			if now := w.everything(n); !slices.Equal(now, before) {
				return fmt.Errorf("rows %q, want %q", now, before)
			}
			return nil
		})
	}
}

// firstRecord is the first record of a backup: the schema, without the rows.
func firstRecord(t *testing.T, text string) string {
	t.Helper()
	second := strings.Index(text[1:], "OVSDB JSON ")
	if second < 0 {
		t.Fatal("the backup has one record")
	}
	return text[:second+1]
}

// everything is all rows of switches and ports in a node's own copy, but for their versions.
func (w *world) everything(n *node) (rows []string) {
	w.t.Helper()
	for _, table := range []string{"Logical_Switch", "Logical_Switch_Port", "NB_Global", "Connection"} {
		found, err := n.transact(w.t.Context(), op{"op": "select", "table": table, "where": []any{}, "columns": []string{
			"_uuid", "external_ids"}})
		w.must(err)
		for _, row := range found[0].Rows {
			rows = append(rows, table+" "+string(row))
		}
	}
	slices.Sort(rows)
	return rows
}
