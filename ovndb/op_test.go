package ovndb_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

const (
	switchKey = "11111111-0000-8000-8000-000000000001"
	portKey   = "22222222-0000-8000-8000-000000000002"
	nobody    = "33333333-0000-8000-8000-000000000003"
)

func open(t testing.TB, endpoints ...string) *ovndb.DB {
	t.Helper()
	return openPatient(t, 0, endpoints...)
}

// openPatient gives a server, and an attempt to connect, so much time; 0: the default.
func openPatient(t testing.TB, patience time.Duration, endpoints ...string) *ovndb.DB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: endpoints, Model: model, LeaderOnly: true, Patience: patience,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// HasMap holds for the very pairs, neither more nor less.
func TestHasMap(t *testing.T) {
	s := ovndbtest.StartNB(t)
	db := open(t, s.Endpoint())
	if err := db.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Transact(t, ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": switchKey,
		"row": ovndbtest.Op{"name": "a", "external_ids": ovndbtest.Map(map[string]string{"a": "1", "b": "2"})}})
	for _, tt := range []struct {
		pairs map[string]string
		key   string
		want  bool
	}{
		{map[string]string{"a": "1", "b": "2"}, switchKey, true}, {map[string]string{"a": "1"}, switchKey, false},
		{map[string]string{"a": "1", "b": "2", "c": "3"}, switchKey, false}, {map[string]string{"a": "1", "b": "3"}, switchKey, false},
		{map[string]string{"a": "1", "b": "2"}, nobody, false},
	} {
		_, err := db.Transact(t.Context(), []ovsdb.Operation{ovndb.HasMap(nb.LogicalSwitchTable, tt.key, "external_ids", tt.pairs)})
		if _, refused := errors.AsType[*ovndb.Refused](err); refused == tt.want || err != nil && !refused {
			t.Errorf("%v of %s: %v", tt.pairs, tt.key, err)
		}
	}
}

// connect is open that waits until it is.
func connect(t testing.TB, endpoints ...string) *ovndb.DB {
	t.Helper()
	db := open(t, endpoints...)
	if err := db.WaitConnected(withTimeout(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	return db
}

// withTimeout bounds a wait. A mutation is waited for in vain, so not for long.
func withTimeout(t testing.TB, d time.Duration) context.Context {
	if os.Getenv("OVN_MULTINET_MUTATION") != "" {
		d = min(d, 20*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// startWithPort starts a server with a switch and a port in it.
func startWithPort(t testing.TB) *ovndbtest.Server {
	t.Helper()
	s := ovndbtest.StartNB(t)
	s.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": portKey, "row": ovndbtest.Op{
			"name": "port", "external_ids": ovndbtest.Map(map[string]string{"owner": "me", "other": "x"})}},
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": switchKey, "row": ovndbtest.Op{
			"name": "switch", "ports": ovndbtest.UUID(portKey)}})
	return s
}

// A guard lets the transaction through when what it asserts holds, and else refuses it as a whole at its index.
func TestGuards(t *testing.T) {
	tests := []struct {
		name  string
		guard ovsdb.Operation
		holds bool
	}{
		{"present, is there", ovndb.Present("Logical_Switch", switchKey), true},
		{"present, is not", ovndb.Present("Logical_Switch", nobody), false},
		{"present, in another table", ovndb.Present("Logical_Switch", portKey), false},
		{"absent, is not there", ovndb.Absent("Copp", nobody), true},
		{"absent, is there", ovndb.Absent("Logical_Switch_Port", portKey), false},
		{"absent, in another table", ovndb.Absent("Copp", portKey), true},
		{"holds", ovndb.Holds("Logical_Switch_Port", portKey, "external_ids", "owner", "me"), true},
		{"holds another value", ovndb.Holds("Logical_Switch_Port", portKey, "external_ids", "owner", "you"), false},
		{"holds under another key", ovndb.Holds("Logical_Switch_Port", portKey, "external_ids", "other", "me"), false},
		{"holds, row is not there", ovndb.Holds("Logical_Switch_Port", nobody, "external_ids", "owner", "me"), false},
	}
	s := startWithPort(t)
	db := connect(t, s.Endpoint())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			row, err := db.Insert(&nb.LogicalSwitch{UUID: nobody[:35] + "9", Name: "made by " + tt.name})
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{ovndb.Select("Copp", nobody), tt.guard, row})
			made := len(s.Dump(t, "Logical_Switch")) == 2
			if made != tt.holds {
				t.Errorf("row made: %t, want %t", made, tt.holds)
			}
			if made {
				s.Transact(t, ovndbtest.Op{"op": "delete", "table": "Logical_Switch", "where": []any{[]any{"name", "!=", "switch"}}})
			}
			if tt.holds {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused, ok := errors.AsType[*ovndb.Refused](err)
			if !ok || refused.Index != 1 || refused.Reason != ovndb.ReasonTimedOut {
				t.Errorf("error %v, want refused at operation 1: timed out", err)
			}
			if errors.Is(err, ovndb.ErrUnknownOutcome) {
				t.Error("a refusal has an unknown outcome")
			}
		})
	}
}

func TestOperationsChangeRows(t *testing.T) {
	s := startWithPort(t)
	db := connect(t, s.Endpoint())
	ctx := withTimeout(t, 2*time.Minute)
	second, err := db.Insert(&nb.LogicalSwitchPort{UUID: nobody, Name: "second"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Transact(ctx, []ovsdb.Operation{
		second, ovndb.Link("Logical_Switch", switchKey, "ports", nobody),
		ovndb.Update("Logical_Switch", switchKey, ovsdb.Row{"name": "renamed"}),
	}); err != nil {
		t.Fatal(err)
	}
	sw := s.Dump(t, "Logical_Switch")[0]
	ports := ovndbtest.Strings(sw["ports"])
	slices.Sort(ports)
	if sw["name"] != "renamed" || !slices.Equal(ports, []string{portKey, nobody}) {
		t.Fatalf("switch %v", sw)
	}

	// The port goes with its last reference.
	if _, err := db.Transact(ctx, []ovsdb.Operation{ovndb.Unlink("Logical_Switch", "ports", portKey)}); err != nil {
		t.Fatal(err)
	}
	rows := s.Dump(t, "Logical_Switch_Port")
	if len(rows) != 1 || rows[0]["_uuid"] != nobody {
		t.Fatalf("ports after unlinking the first: %v", rows)
	}

	if _, err := db.Transact(ctx, []ovsdb.Operation{ovndb.Delete("Logical_Switch", switchKey)}); err != nil {
		t.Fatal(err)
	}
	if rows := s.Dump(t, "Logical_Switch"); len(rows) != 0 {
		t.Fatalf("switches after the delete: %v", rows)
	}
}

func TestRowsDecode(t *testing.T) {
	s := startWithPort(t)
	db := connect(t, s.Endpoint())
	results, err := db.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{
		ovndb.Select("Logical_Switch_Port", portKey),
		ovndb.Select("Logical_Switch_Port", nobody),
		ovndb.SelectWith("Logical_Switch_Port", "external_ids", "owner", "me", "_uuid", "name"),
		ovndb.SelectWith("Logical_Switch_Port", "external_ids", "owner", "x"),
		ovndb.Select("Logical_Switch", switchKey, "ports"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 0, 1, 0} {
		rows, err := ovndb.Rows[nb.LogicalSwitchPort](db, results[i])
		if err != nil || len(rows) != want {
			t.Fatalf("select %d: %d rows, %v; want %d", i, len(rows), err, want)
		}
		if want == 1 && (rows[0].UUID != portKey || rows[0].Name != "port") {
			t.Errorf("select %d: %+v", i, rows[0])
		}
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](db, results[4])
	if err != nil || len(switches) != 1 || !slices.Equal(switches[0].Ports, []string{portKey}) {
		t.Errorf("switch %+v, %v", switches, err)
	}
}

// UUIDs sets a column of row keys as a whole: what is not in it is not referred to any more.
func TestUUIDsAreAWholeColumn(t *testing.T) {
	s := startWithPort(t)
	db := connect(t, s.Endpoint())
	tests := []struct {
		name string
		set  []string
	}{
		{"one", []string{nobody}},
		{"two others", []string{nobody[:35] + "5", nobody[:35] + "4"}},
		{"none", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var ops []ovsdb.Operation
			for _, key := range tt.set {
				row, err := db.Insert(&nb.LogicalSwitchPort{UUID: key, Name: tt.name + key})
				if err != nil {
					t.Fatal(err)
				}
				ops = append(ops, row)
			}
			ops = append(ops, ovndb.Update("Logical_Switch", switchKey, ovsdb.Row{"ports": ovndb.UUIDs(tt.set)}))
			if _, err := db.Transact(withTimeout(t, 2*time.Minute), ops); err != nil {
				t.Fatal(err)
			}
			ports := ovndbtest.Strings(s.Dump(t, "Logical_Switch")[0]["ports"])
			slices.Sort(ports)
			want := slices.Sorted(slices.Values(tt.set))
			if !slices.Equal(ports, want) || len(s.Dump(t, "Logical_Switch_Port")) != len(want) {
				t.Errorf("ports %v, want %v", ports, want)
			}
		})
	}
}
