package ovndb_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// A database that was wiped, or restored from an older backup, is found out by the probe, once; a server that was
// restarted on the same database is no news.
func TestBoundaryReplacedDatabase(t *testing.T) {
	s := ovndbtest.StartNB(t)
	leader := connectOf(t, "ours", s.Endpoint())
	take(t, leader, "")
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{s.Endpoint()}, Model: model, Log: slog.New(slog.DiscardHandler), Probe: 5 * time.Millisecond,
		Cluster: func(context.Context) (string, error) { return "ours", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	replaced := make(chan struct{}, 100)
	db.OnReplaced(func() { replaced <- struct{}{} })
	look := func() {
		t.Helper()
		ctx := withTimeout(t, 2*time.Minute)
		// The leader asks too: the race detector reports a connection of libovsdb that ends before anything was asked.
		for _, db := range []*ovndb.DB{leader, db} {
			for err := db.Owned(ctx); err != nil; err = db.Owned(ctx) {
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		}
	}
	told := func(what string, times int) {
		t.Helper()
		for range times {
			select {
			case <-replaced:
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s: nobody is told", what)
			}
		}
		look() // what this look finds is told by now
		if more := len(replaced); more > 0 {
			t.Errorf("%s: told %d times more than once", what, more)
		}
	}
	age := func(n string) {
		t.Helper()
		s.NBCtl("set", "Copp", ovndb.ClusterKey, `external_ids:"ovn-multinet/age"=`+n)
	}
	look()
	s.Restart()
	told("restarted", 0)

	age("5")
	look()
	restore := s.Backup()
	age("6")
	look()
	told("the leader counted", 0)
	restore()
	told("an older backup", 1)

	s.NBCtl("destroy", "Copp", ovndb.ClusterKey)
	if err := db.Owned(withTimeout(t, 2*time.Minute)); err == nil {
		t.Error("a database without the row of its owner is owned")
	}
	take(t, leader, "")
	told("wiped", 1)
}
