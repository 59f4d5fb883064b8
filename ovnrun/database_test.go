package ovnrun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A raft grows from one member to three, a member loses its disk, a node is replaced by another one, and the raft
// shrinks to one member, from which its leader had to go. A node that becomes a member again has an old database.
// Nothing that was written is lost.
func TestMembers(t *testing.T) {
	w := newWorld(t)
	a, b, c, d := w.node("a"), w.node("b"), w.node("c"), w.node("d")
	for _, n := range []*node{a, b, c} {
		w.start(n)
	}
	w.members(false, "a=1")
	w.wantRaft(a)
	w.insert(a, "one")
	w.members(true, "a=1", "b=1", "c=1")
	w.wantRaft(a, b, c)
	w.insert(c, "three")
	w.wantRows(b, "one", "three")
	w.wantTimer(testTimer, a, b, c)

	w.end(c) // its disk is lost
	w.must(os.RemoveAll(c.Dir))
	w.must(os.Mkdir(c.Dir, 0o755))
	w.insert(a, "without-c")
	w.start(c)
	w.wantRaft(a, b, c)
	w.wantRows(c, "one", "three", "without-c")

	w.end(b) // the node of b dies; node d takes its place
	w.members(true, "a=1", "d=1", "c=1")
	w.start(d)
	leader := w.wantRaft(a, c, d)
	w.wantRows(d, "one", "three", "without-c")

	stays := a // the raft shrinks to a member that does not lead
	if leader == a {
		stays = c
	}
	w.members(true, stays.Node+"=1")
	w.wantRaft(stays)
	w.insert(stays, "alone")

	again := c // it left, and its disk has the database of that time
	if stays == c {
		again = a
	}
	w.members(true, stays.Node+"=1", again.Node+"=2")
	w.wantRaft(stays, again)
	w.wantRows(again, "one", "three", "without-c", "alone")
}

// TestTunnelKeys: one node cannot take OVN's large range of tunnel keys from the cluster. A value that the operator has set
// stays.
func TestTunnelKeys(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.start(a)
	w.members(false, "a=1")
	w.wantRaft(a)
	options := func() string {
		found, err := a.transact(t.Context(), op{"op": "select", "table": "NB_Global", "where": []any{}, "columns": []string{"options"}})
		if err != nil || len(found[0].Rows) != 1 {
			return fmt.Sprint(err)
		}
		return string(found[0].Rows[0])
	}
	want := func(value string) {
		t.Helper()
		w.eventually("options", func() error {
			if got := options(); got != `{"options":["map",[["vxlan_mode","`+value+`"]]]}` {
				return fmt.Errorf("%s, want %s", got, value)
			}
			return nil
		})
	}
	want("false")
	_, err := a.transact(t.Context(), op{"op": "update", "table": "NB_Global", "where": []any{}, "row": map[string]any{
		"options": []any{"map", [][]string{{"vxlan_mode", "true"}}}}})
	w.must(err)
	w.must(a.keepTunnelKeys(t.Context()))
	want("true")
}

// A database that was formed is never made again by a member that has none.
func TestLostDatabaseIsNotMadeAgain(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.members(true, "a=1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := a.Run(ctx)
	if err == nil || !strings.Contains(err.Error(), "restore the disk, or delete the key \"formed\"") {
		t.Errorf("error %v", err)
	}
	if files, _ := os.ReadDir(a.Dir); len(files) != 0 {
		t.Errorf("files %v", files)
	}
}

// A node whose address changed is told what to do.
func TestNodeWithAnotherAddress(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	w.members(false, "a=1")
	w.start(a)
	w.wantRaft(a)
	w.end(a)
	a.ip = a.ip.Next()
	w.members(true, "a=1")
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "give the node its address back") {
		t.Errorf("error %v", err)
	}
}

// The members listen for clients, and the database gets the schema of the image.
func TestSchemaIsUpgraded(t *testing.T) {
	w := newWorld(t)
	a := w.node("a")
	image := a.Schema
	a.Schema = olderSchema(t, image)
	w.members(false, "a=1")
	w.start(a)
	w.wantRaft(a)
	w.insert(a, "before")
	w.end(a)
	a.Schema = image
	w.members(true, "a=1")
	w.start(a)
	w.eventually("conversion", func() error {
		_, err := a.transact(context.Background(), op{"op": "select", "table": "Copp", "where": []any{}, "columns": []string{"_uuid"}})
		return err
	})
	w.wantRows(a, "before")
	w.eventually("connection", func() error {
		found, err := a.transact(context.Background(), op{"op": "select", "table": "Connection",
			"where": where("target", "pssl:6641"), "columns": []string{"inactivity_probe"}})
		if err == nil && (len(found[0].Rows) != 1 || string(found[0].Rows[0]) != `{"inactivity_probe":90000}`) {
			return fmt.Errorf("connections %s", found[0].Rows)
		}
		return err
	})
}

// olderSchema is the schema without a table, in an older version.
func olderSchema(t *testing.T, of string) string {
	t.Helper()
	text, err := os.ReadFile(of)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	tables := schema["tables"].(map[string]any)
	delete(tables, "Copp")
	for _, name := range []string{"Logical_Switch", "Logical_Router"} {
		delete(tables[name].(map[string]any)["columns"].(map[string]any), "copp")
	}
	schema["version"] = "1.0.0"
	delete(schema, "cksum")
	if text, err = json.Marshal(schema); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "old.ovsschema")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOlder(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"7.0.4\n", "7.1.0", true}, {"7.1.0", "7.0.4", false}, {"7.0.4", "7.0.4", false}, {"6.9.9", "7.0.0", true}, {"7.10.0", "7.9.0", false}} {
		if older(tt.a, tt.b) != tt.want {
			t.Errorf("older(%q, %q) is not %t", tt.a, tt.b, tt.want)
		}
	}
}

// TestRestartWithoutOneMember: a member is gone for good, and the two others start at once. They serve with their quorum,
// and when another node takes the place of the dead one, it joins.
func TestRestartWithoutOneMember(t *testing.T) {
	w := newWorld(t)
	a, b, c, d := w.node("a"), w.node("b"), w.node("c"), w.node("d")
	for _, n := range []*node{a, b, c} {
		w.start(n)
	}
	w.members(false, "a=1")
	w.wantRaft(a)
	w.members(true, "a=1", "b=1", "c=1")
	w.wantRaft(a, b, c)
	w.insert(a, "one")
	for _, n := range []*node{a, b, c} {
		w.end(n)
	}
	w.start(b)
	w.start(c)
	w.insert(b, "two")
	w.wantRows(c, "one", "two")
	w.start(d)
	w.members(true, "d=1", "b=1", "c=1")
	w.wantRaft(b, c, d)
	w.wantRows(d, "one", "two")
}
