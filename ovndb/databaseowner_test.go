package ovndb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// openOf opens NB for a process of a cluster.
func openOf(t testing.TB, cluster func(context.Context) (string, error), endpoint string) *ovndb.DB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{endpoint}, Model: model, LeaderOnly: true, Cluster: cluster, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func connectOf(t testing.TB, cluster, endpoint string) *ovndb.DB {
	t.Helper()
	db := openOf(t, func(context.Context) (string, error) { return cluster, nil }, endpoint)
	if err := db.WaitConnected(withTimeout(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	return db
}

func take(t testing.TB, db *ovndb.DB, adopt string) {
	t.Helper()
	if err := db.Take(withTimeout(t, 2*time.Minute), adopt); err != nil {
		t.Fatal(err)
	}
}

// owner is what the row says that names the owner of NB.
func owner(t testing.TB, s *ovndbtest.Server) string {
	t.Helper()
	for _, row := range s.Dump(t, "Copp") {
		if row["_uuid"] == ovndb.ClusterKey {
			ids := row["external_ids"].(map[string]string)
			delete(ids, "ovn-multinet/made")
			delete(ids, "ovn-multinet/age")
			return fmt.Sprint(row["name"], " ", ids)
		}
	}
	return "none"
}

func ownerIs(cluster string) string {
	return "ovn-multinet cluster map[ovn-multinet/cluster:" + cluster + "]"
}

// Every kind of write is refused where NB has no owner or another one, and leaves nothing behind; reads and guards
// alone are not.
func TestBoundaryEachWriteAssertsTheOwner(t *testing.T) {
	s := startWithPort(t)
	db := connectOf(t, "ours", s.Endpoint())
	insert, err := db.Insert(&nb.LogicalSwitch{UUID: nobody, Name: "new", ExternalIDs: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string][]ovsdb.Operation{
		"insert":              {insert},
		"update":              {ovndb.Update("Logical_Switch", switchKey, ovsdb.Row{"name": "other"})},
		"mutate":              {ovndb.Unlink("Logical_Switch", "ports", portKey)},
		"delete":              {ovndb.Delete("Logical_Switch", switchKey)},
		"a guard and a write": {ovndb.Present("Logical_Switch", switchKey), ovndb.Delete("Logical_Switch", switchKey)},
		"a read and a write":  {ovndb.Select("Logical_Switch", switchKey), ovndb.Delete("Logical_Switch", switchKey)},
	}
	before := s.Dump(t, "Logical_Switch")
	for _, tt := range []struct{ owner, says string }{
		{"", "no controller has taken this NB yet"},
		{"theirs", "NB belongs to cluster theirs, not to cluster ours"},
	} {
		if tt.owner != "" {
			take(t, connectOf(t, tt.owner, s.Endpoint()), "")
		}
		for name, ops := range writes {
			_, err := db.Transact(withTimeout(t, 2*time.Minute), ops)
			no, ok := errors.AsType[*ovndb.NotOwner](err)
			if !ok || no.Owner != tt.owner || no.Cluster != "ours" || no.Error() != tt.says {
				t.Errorf("%s, owner %q: error %v", name, tt.owner, err)
			}
			if after := s.Dump(t, "Logical_Switch"); !reflect.DeepEqual(before, after) {
				t.Fatalf("%s, owner %q: %v became %v", name, tt.owner, before, after)
			}
		}
		if err := db.Owned(withTimeout(t, 2*time.Minute)); err == nil || err.Error() != tt.says {
			t.Errorf("Owned: %v", err)
		}
		if err := db.Answers(withTimeout(t, 2*time.Minute)); err == nil || err.Error() != tt.says {
			t.Errorf("Answers: %v", err)
		}
		results, err := db.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{
			ovndb.Present("Logical_Switch", switchKey), ovndb.Select("Logical_Switch", switchKey)})
		if err != nil || len(results) != 2 || len(results[1].Rows) != 1 {
			t.Errorf("a read: %v, %v", results, err)
		}
	}
}

// In a database of its own a write costs the one transaction that it did, and what callers see has the indexes of
// their operations.
func TestBoundaryOwnersGuardIsNotSeen(t *testing.T) {
	s := startWithPort(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	db := connectOf(t, "ours", p.Endpoint())
	take(t, db, "")
	p.Reset()
	results, err := db.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{
		ovndb.Present("Logical_Switch", switchKey), ovndb.Select("Logical_Switch", switchKey, "name"),
		ovndb.Update("Logical_Switch", switchKey, ovsdb.Row{"name": "other"}),
	})
	if err != nil || len(results) != 3 || len(results[1].Rows) != 1 || results[2].Count != 1 {
		t.Errorf("results %v, %v", results, err)
	}
	if got := p.Counts(); got.Committed != 1 || got.ReadOnly != 0 || got.Refused != 0 {
		t.Errorf("transactions: %+v, want one", got)
	}
	t.Attr("boundary.transactions-per-write", fmt.Sprint(p.Counts().Committed+p.Counts().ReadOnly))
	tests := []struct {
		name   string
		ops    []ovsdb.Operation
		index  int
		reason string
	}{
		{"guard", []ovsdb.Operation{ovndb.Present("Logical_Switch", nobody), ovndb.Delete("Logical_Switch", nobody)}, 0, ovndb.ReasonTimedOut},
		{"duplicate key", insertPort(t, db, portKey, "another"), 0, ovndb.ReasonDuplicate},
		{"duplicate name", insertPort(t, db, nobody, "port"), 2, ovndb.ReasonConstraint},
		{"dangling reference", []ovsdb.Operation{ovndb.Link("Logical_Switch", switchKey, "ports", nobody)}, 1, "referential integrity violation"},
	}
	for _, tt := range tests {
		_, err := db.Transact(withTimeout(t, 2*time.Minute), tt.ops)
		refused, ok := errors.AsType[*ovndb.Refused](err)
		if !ok || refused.Index != tt.index || refused.Reason != tt.reason {
			t.Errorf("%s: error %v, want refused at operation %d: %s", tt.name, err, tt.index, tt.reason)
		}
	}
}

func TestBoundaryTake(t *testing.T) {
	tests := []struct {
		name, owner, adopt string
		want               string // owner afterwards
		says               string // error; "": none
		commits            int
	}{
		{"fresh", "", "", "ours", "", 1},
		{"fresh, with an adoption", "", "theirs", "ours", "", 1},
		{"ours", "ours", "", "ours", "", 0},
		{"ours, with an adoption that was", "ours", "theirs", "ours", "", 0},
		{"another's", "theirs", "", "theirs", "NB belongs to cluster theirs, not to cluster ours", 0},
		{"another's, adopted", "theirs", "theirs", "ours", "", 1},
		{"another's, and a third is adopted", "theirs", "third", "theirs", "NB belongs to cluster theirs, not to cluster ours", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := ovndbtest.StartNB(t)
			if tt.owner != "" {
				take(t, connectOf(t, tt.owner, s.Endpoint()), "")
			}
			p := ovndbtest.StartProxy(t, s.Endpoint())
			err := connectOf(t, "ours", p.Endpoint()).Take(withTimeout(t, 2*time.Minute), tt.adopt)
			if _, other := errors.AsType[*ovndb.NotOwner](err); other != (tt.says != "") || other && err.Error() != tt.says || !other && err != nil {
				t.Errorf("error %v, want %q", err, tt.says)
			}
			if got := owner(t, s); got != ownerIs(tt.want) {
				t.Errorf("the row is %s", got)
			}
			if got := p.Counts(); got.Committed != tt.commits || got.Refused != 0 {
				t.Errorf("transactions %+v, want %d committed", got, tt.commits)
			}
		})
	}
}

// Of clusters that come to a fresh database at once one gets it, and so does one of those that adopt the same owner.
func TestBoundaryTakeAtOnce(t *testing.T) {
	s := ovndbtest.StartNB(t)
	for _, adopt := range []string{"", "first"} {
		if adopt != "" {
			s.Transact(t, ovndbtest.Op{"op": "update", "table": "Copp", "where": []any{}, "row": ovndbtest.Op{
				"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/cluster": adopt})}})
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		var winners []string
		for i := range 8 {
			cluster := fmt.Sprint("cluster-", i)
			db := connectOf(t, cluster, s.Endpoint())
			all.Go(func() {
				err := db.Take(withTimeout(t, 2*time.Minute), adopt)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, cluster)
				} else if _, other := errors.AsType[*ovndb.NotOwner](err); !other {
					t.Errorf("%s: %v", cluster, err)
				}
			})
		}
		all.Wait()
		if len(winners) != 1 || owner(t, s) != ownerIs(winners[0]) {
			t.Errorf("adopting %q: %v have taken it, the row is %s", adopt, winners, owner(t, s))
		}
	}
}

// An adoption replaces the owner that was read, and no other that came since.
func TestBoundaryAdoptsWhatItHasRead(t *testing.T) {
	s := ovndbtest.StartNB(t)
	take(t, connectOf(t, "theirs", s.Endpoint()), "")
	p := ovndbtest.StartProxy(t, s.Endpoint())
	db, third := connectOf(t, "ours", p.Endpoint()), connectOf(t, "third", s.Endpoint())
	var once sync.Once
	p.Before(func(tx ovndbtest.Transact) {
		if tx.Writes {
			once.Do(func() { take(t, third, "theirs") })
		}
	})
	err := db.Take(withTimeout(t, 2*time.Minute), "theirs")
	if no, ok := errors.AsType[*ovndb.NotOwner](err); !ok || no.Owner != "third" || owner(t, s) != ownerIs("third") {
		t.Errorf("error %v, the row is %s", err, owner(t, s))
	}
}

// What another hand wrote into the row stays there, and no controller stumbles over it.
func TestBoundaryTakeKeepsWhatOthersWrote(t *testing.T) {
	for name, tt := range map[string]struct {
		hand map[string]string
		want string
	}{
		"another key":            {map[string]string{"note": "x"}, "map[note:x ovn-multinet/age:5 ovn-multinet/cluster:ours]"},
		"an age that is no age":  {map[string]string{"ovn-multinet/age": "old"}, "map[ovn-multinet/age:1 ovn-multinet/cluster:ours]"},
		"an age of another form": {map[string]string{"ovn-multinet/age": "04"}, "map[ovn-multinet/age:5 ovn-multinet/cluster:ours]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := ovndbtest.StartNB(t)
			take(t, connectOf(t, "theirs", s.Endpoint()), "")
			ids := map[string]string{"ovn-multinet/cluster": "theirs", "ovn-multinet/made": "m", "ovn-multinet/age": "4"}
			maps.Copy(ids, tt.hand)
			s.Transact(t, ovndbtest.Op{"op": "update", "table": "Copp", "where": []any{}, "row": ovndbtest.Op{"external_ids": ovndbtest.Map(ids)}})
			p := ovndbtest.StartProxy(t, s.Endpoint())
			take(t, connectOf(t, "ours", p.Endpoint()), "theirs")
			if got := p.Counts(); got.Committed != 1 || got.Refused != 0 {
				t.Errorf("transactions %+v, want one committed", got)
			}
			is := s.Dump(t, "Copp")[0]["external_ids"].(map[string]string)
			if is["ovn-multinet/made"] == "m" {
				t.Error("the row has its old identity")
			}
			delete(is, "ovn-multinet/made")
			if got := fmt.Sprint(is); got != tt.want {
				t.Errorf("the row has %s, want %s", got, tt.want)
			}
		})
	}
}

// A row at the key that somebody changed by hand names no owner; it is written anew.
func TestBoundaryTakeMendsTheRow(t *testing.T) {
	s := ovndbtest.StartNB(t)
	db := connectOf(t, "ours", s.Endpoint())
	take(t, db, "")
	s.Transact(t, ovndbtest.Op{"op": "update", "table": "Copp", "where": []any{}, "row": ovndbtest.Op{"external_ids": ovndbtest.Map(nil)}})
	if _, err := db.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{ovndb.Delete("Copp", nobody)}); err == nil {
		t.Error("a write goes by a row that names nobody")
	}
	take(t, db, "")
	if got := owner(t, s); got != ownerIs("ours") {
		t.Errorf("the row is %s", got)
	}
}

// A row of the owner with another UUID is named: ovsdb-client's restore writes such rows.
func TestTakeAfterARestoreWithNewUUIDs(t *testing.T) {
	s := ovndbtest.StartNB(t)
	s.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "row": ovndbtest.Op{"name": "ovn-multinet cluster"}})
	err := connectOf(t, "one", s.Endpoint()).Take(withTimeout(t, 2*time.Minute), "")
	if err == nil || !strings.Contains(err.Error(), "the row exists with another UUID") {
		t.Errorf("error %v", err)
	}
}

// Rows carry the identity of the cluster that wrote them. Readers of that cluster do not see it, so that rows compare
// as they did; others do.
func TestBoundaryRowsCarryTheCluster(t *testing.T) {
	s := ovndbtest.StartNB(t)
	db := connectOf(t, "ours", s.Endpoint())
	take(t, db, "")
	want := &nb.LogicalSwitch{UUID: switchKey, Name: "switch", ExternalIDs: map[string]string{"a": "b"}}
	insert, err := db.Insert(want)
	if err != nil {
		t.Fatal(err)
	}
	raw := func() string { return fmt.Sprint(s.Dump(t, "Logical_Switch")[0]["external_ids"]) }
	read := func(db *ovndb.DB) string {
		rows, err := ovndb.ReadByKey[nb.LogicalSwitch](withTimeout(t, 2*time.Minute), db, "Logical_Switch", []string{switchKey})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		is, _ := db.Columns(rows[0])
		ought, _ := db.Columns(want)
		return fmt.Sprint(rows[0].ExternalIDs, " ", ovndb.OtherCluster(rows[0].ExternalIDs), " ", reflect.DeepEqual(is, ought))
	}
	for _, ops := range [][]ovsdb.Operation{
		{insert},
		{ovndb.Update("Logical_Switch", switchKey, ovsdb.Row{"external_ids": ovndb.Map(map[string]string{"a": "b"})})},
	} {
		if _, err := db.Transact(withTimeout(t, 2*time.Minute), ops); err != nil {
			t.Fatal(err)
		}
		if got := raw(); got != "map[a:b ovn-multinet/cluster:ours]" {
			t.Errorf("after %s the row has %s", ops[0].Op, got)
		}
	}
	if got := read(db); got != "map[a:b]  true" {
		t.Errorf("its own cluster reads %s", got)
	}
	theirs := connectOf(t, "theirs", s.Endpoint())
	if got := read(theirs); got != "map[a:b ovn-multinet/cluster:ours] ours false" {
		t.Errorf("another cluster reads %s", got)
	}
	if got := read(connect(t, s.Endpoint())); got != "map[a:b ovn-multinet/cluster:ours] ours false" {
		t.Errorf("a reader of no cluster reads %s", got)
	}
	// What the other cluster writes of it is its own then.
	take(t, theirs, "ours")
	if _, err := theirs.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{
		ovndb.Update("Logical_Switch", switchKey, ovsdb.Row{"external_ids": ovndb.Map(map[string]string{"a": "b", ovndb.ClusterMark: "ours"})}),
	}); err != nil {
		t.Fatal(err)
	}
	if got := raw(); got != "map[a:b ovn-multinet/cluster:theirs]" {
		t.Errorf("the row has %s", got)
	}
}

// As long as the identity is not known nothing is sent, and who waits is told why.
func TestBoundaryNothingIsSentWithoutIdentity(t *testing.T) {
	s := ovndbtest.StartNB(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	var asked atomic.Int32
	asks, known := make(chan struct{}), make(chan struct{})
	db := openOf(t, func(context.Context) (string, error) {
		if asked.Add(1) == 2 { // the answer to the first is known by now
			close(asks)
		}
		select {
		case <-known:
			return "ours", nil
		default:
			return "", errors.New("the API is away")
		}
	}, p.Endpoint())
	<-asks
	err := db.Take(withTimeout(t, 20*time.Millisecond), "")
	if err == nil || !strings.Contains(err.Error(), "the identity of this cluster is not known: the API is away") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if got := p.Counts(); got != (ovndbtest.Counts{}) {
		t.Errorf("transactions %+v", got)
	}
	close(known)
	take(t, db, "")
	if got := owner(t, s); got != ownerIs("ours") {
		t.Errorf("the row is %s", got)
	}
}

// A controller that takes the database between the refusal of a write and the look at the owner has the write done.
func TestBoundaryWriteAfterTake(t *testing.T) {
	s := startWithPort(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	db, leader := connectOf(t, "ours", p.Endpoint()), connectOf(t, "ours", s.Endpoint())
	var once sync.Once
	p.Before(func(tx ovndbtest.Transact) {
		if !tx.Writes && slices.ContainsFunc(tx.Ops, func(op ovndbtest.Op) bool { return op["table"] == "Copp" }) {
			once.Do(func() { take(t, leader, "") })
		}
	})
	if _, err := db.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{ovndb.Delete("Logical_Switch", switchKey)}); err != nil {
		t.Error(err)
	}
	if rows := s.Dump(t, "Logical_Switch"); len(rows) != 0 {
		t.Errorf("switches %v", rows)
	}
}

// A guard that wants the external_ids of a row as they were read holds, although the identity of the cluster is hidden
// from whoever reads them.
func TestBoundaryGuardOfWholeExternalIDs(t *testing.T) {
	s := ovndbtest.StartNB(t)
	db := connectOf(t, "ours", s.Endpoint())
	take(t, db, "")
	row, err := db.Insert(&nb.Copp{UUID: nobody, Name: "claim", ExternalIDs: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := withTimeout(t, 2*time.Minute)
	if _, err := db.Transact(ctx, []ovsdb.Operation{row}); err != nil {
		t.Fatal(err)
	}
	for value, holds := range map[string]bool{"b": true, "c": false} {
		guard := ovndb.Present("Copp", nobody)
		guard.Columns, guard.Rows = []string{"external_ids"}, []ovsdb.Row{{"external_ids": ovndb.Map(map[string]string{"a": value})}}
		for _, more := range [][]ovsdb.Operation{{ovndb.Update("Copp", nobody, ovsdb.Row{"name": "claim"})}, nil} {
			_, err := db.Transact(ctx, append([]ovsdb.Operation{guard}, more...))
			if refused, ok := errors.AsType[*ovndb.Refused](err); (err == nil) != holds || ok && refused.Index != 0 {
				t.Errorf("the guard of %d operations wants a=%s: %v", len(more), value, err)
			}
		}
	}
}
