package ovndb_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// A read that comes when a probe is nearly due reads the row of the owner too, in the same transaction. Its caller gets
// its own results alone. The next read is as the caller wrote it.
func TestReadsAreProbes(t *testing.T) {
	s := startWithPort(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	take(t, connectOf(t, "ours", s.Endpoint()), "")
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{p.Endpoint()}, Model: model, Log: slog.New(slog.DiscardHandler), Probe: time.Hour,
		Cluster: func(context.Context) (string, error) { return "ours", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	ctx := withTimeout(t, 2*time.Minute)
	replaced := 0
	db.OnReplaced(func() { replaced++ })
	if err := db.Owned(ctx); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sizes []int
	p.Before(func(tx ovndbtest.Transact) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(tx.Ops))
	})
	read := func() {
		t.Helper()
		results, err := db.Transact(ctx, []ovsdb.Operation{ovndb.Select("Logical_Switch_Port", portKey, "name")})
		if err != nil || len(results) != 1 || len(results[0].Rows) != 1 || fmt.Sprint(results[0].Rows[0]["name"]) != "port" {
			t.Errorf("results %v, %v; want the name of the port", results, err)
		}
	}
	read()
	db.ProbeDue()
	s.NBCtl("set", "Copp", ovndb.ClusterKey, `external_ids:"ovn-multinet/age"=-1`) // an older backup
	read()
	read()
	if want := []int{1, 2, 1}; !slices.Equal(sizes, want) {
		t.Errorf("transactions of %v operations, want %v", sizes, want)
	}
	if replaced != 1 {
		t.Errorf("told %d times that NB was replaced, want once", replaced)
	}
}

// The pauses between two attempts to connect grow, are random, and never end.
func TestConnectPauses(t *testing.T) {
	one, other := ovndb.ConnectPauses(), ovndb.ConnectPauses()
	equal := true
	for i := range 1000 {
		a, b := one(), other()
		equal = equal && a == b
		if a < 100*time.Millisecond || a > 7500*time.Millisecond || i > 20 && a < 2*time.Second {
			t.Fatalf("pause %d is %v", i, a)
		}
	}
	if equal {
		t.Error("two nodes pause equally")
	}
}
