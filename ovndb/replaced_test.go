package ovndb_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

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

// A write asserts which database it is: the first write after a replacement is refused, also when no read has noticed
// the replacement, and OnReplaced's function has ended by then. A leader that counts refuses nothing.
func TestReplacedDatabaseRefusesTheFirstWrite(t *testing.T) {
	s := startWithPort(t)
	leader := connectOf(t, "ours", s.Endpoint())
	take(t, leader, "")
	p := ovndbtest.StartProxy(t, s.Endpoint())
	db := connectOf(t, "ours", p.Endpoint()) // its probes come rarely
	replaced := 0
	db.OnReplaced(func() { replaced++ })
	write := func(name string) error {
		t.Helper()
		_, err := db.Transact(withTimeout(t, 2*time.Minute),
			[]ovsdb.Operation{ovndb.Update("Logical_Switch", switchKey, ovsdb.Row{"name": name})})
		return err
	}
	age := func(n string) {
		t.Helper()
		s.NBCtl("set", "Copp", ovndb.ClusterKey, `external_ids:"ovn-multinet/age"=`+n)
	}
	age("5")
	for _, tt := range []struct {
		name              string
		before            func()
		reads             int // transactions that write nothing
		refused           int
		replaced, written bool
	}{
		{"the first write of a process", func() {}, 1, 0, false, true},
		{"the same database", func() {}, 0, 0, false, true},
		{"the leader has counted", func() { age("6") }, 1, 1, false, true},
		{"a backup", func() { age("5") }, 1, 1, true, false},
		{"after it", func() {}, 0, 0, false, true},
		{"wiped and taken again", func() {
			s.NBCtl("destroy", "Copp", ovndb.ClusterKey)
			take(t, leader, "")
			age("7")
		}, 1, 1, true, false},
		{"after that", func() {}, 0, 0, false, true},
	} {
		tt.before()
		p.Reset()
		replaced = 0
		err := write(tt.name)
		_, is := errors.AsType[*ovndb.Replaced](err)
		if is != tt.replaced || is != (err != nil) || (replaced == 1) != tt.replaced {
			t.Errorf("%s: error %v, told %d times", tt.name, err, replaced)
		}
		if got := p.Counts(); got.ReadOnly != tt.reads || got.Refused != tt.refused {
			t.Errorf("%s: %d reads and %d refused transactions, want %d and %d", tt.name, got.ReadOnly, got.Refused, tt.reads, tt.refused)
		}
		if name := s.Dump(t, "Logical_Switch")[0]["name"]; (name == tt.name) != tt.written {
			t.Errorf("%s: the row has the name %q", tt.name, name)
		}
	}
}
