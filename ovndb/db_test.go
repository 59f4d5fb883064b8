package ovndb_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

func insertPort(t *testing.T, db *ovndb.DB, key, name string) []ovsdb.Operation {
	t.Helper()
	row, err := db.Insert(&nb.LogicalSwitchPort{UUID: key, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return []ovsdb.Operation{row, ovndb.Link("Logical_Switch", switchKey, "ports", key)}
}

// What callers tell apart by the index and the reason.
func TestRefusals(t *testing.T) {
	s := startWithPort(t)
	db := connect(t, s.Endpoint())
	tests := []struct {
		name   string
		ops    []ovsdb.Operation
		index  int
		reason string
	}{
		{"duplicate key", insertPort(t, db, portKey, "another"), 0, ovndb.ReasonDuplicate},
		{"duplicate name", insertPort(t, db, nobody, "port"), 2, ovndb.ReasonConstraint},
		{"dangling reference", []ovsdb.Operation{ovndb.Link("Logical_Switch", switchKey, "ports", nobody)}, 1, "referential integrity violation"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := db.Transact(withTimeout(t, 2*time.Minute), tt.ops)
			refused, ok := errors.AsType[*ovndb.Refused](err)
			if !ok || refused.Index != tt.index || refused.Reason != tt.reason {
				t.Errorf("error %v, want refused at operation %d: %s", err, tt.index, tt.reason)
			}
			if rows := s.Dump(t, "Logical_Switch_Port"); len(rows) != 1 {
				t.Errorf("%d ports, want the one that was there", len(rows))
			}
		})
	}
}

func TestUnknownOutcome(t *testing.T) {
	tests := []struct {
		name string
		arm  func(*ovndbtest.Proxy)
		want int // ports afterwards
	}{
		{"cut before the server had it", (*ovndbtest.Proxy).CutBeforeNext, 1},
		{"cut after the server did it", (*ovndbtest.Proxy).DropNextReply, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startWithPort(t)
			p := ovndbtest.StartProxy(t, s.Endpoint())
			db := connect(t, p.Endpoint())
			ctx := withTimeout(t, 2*time.Minute)
			tt.arm(p)
			_, err := db.Transact(ctx, insertPort(t, db, nobody, "second"))
			if !errors.Is(err, ovndb.ErrUnknownOutcome) {
				t.Errorf("error %v, want an unknown outcome", err)
			}
			if got := len(s.Dump(t, "Logical_Switch_Port")); got != tt.want {
				t.Errorf("%d ports, want %d", got, tt.want)
			}
			// It reconnects by itself, and until then says nothing else.
			for err = ovndb.ErrUnknownOutcome; errors.Is(err, ovndb.ErrUnknownOutcome) && ctx.Err() == nil; {
				_, err = db.Transact(ctx, []ovsdb.Operation{ovndb.Present("Logical_Switch", switchKey)})
			}
			if err != nil {
				t.Errorf("the next transaction: %v", err)
			}
		})
	}
}

// A server that takes the request and never answers leaves the outcome open: it may do it yet.
func TestPausedServerIsAnUnknownOutcome(t *testing.T) {
	s := startWithPort(t)
	db := connect(t, s.Endpoint())
	s.Pause()
	_, err := db.Transact(withTimeout(t, 100*time.Millisecond), insertPort(t, db, nobody, "second"))
	s.Resume()
	if !errors.Is(err, ovndb.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want an unknown outcome and the deadline", err)
	}
}

// A server that hangs is found out, though a transaction waits for its answer: that one ends, and the connection is
// made anew.
func TestProbeFindsAHangingServer(t *testing.T) {
	s := startWithPort(t)
	ctx := withTimeout(t, 2*time.Minute)
	db := probing(t, ctx, ovndbtest.StartProxy(t, s.Endpoint()).Endpoint(), 50*time.Millisecond)
	s.Pause()
	begin := time.Now()
	_, err := db.Transact(ctx, insertPort(t, db, nobody, "second"))
	if !errors.Is(err, ovndb.ErrUnknownOutcome) || ctx.Err() != nil {
		t.Errorf("error %v after %v, want an unknown outcome", err, time.Since(begin))
	}
	s.Resume()
	for err = ovndb.ErrUnknownOutcome; errors.Is(err, ovndb.ErrUnknownOutcome) && ctx.Err() == nil; {
		_, err = db.Transact(ctx, []ovsdb.Operation{ovndb.Present("Logical_Switch", switchKey)})
	}
	if err != nil {
		t.Errorf("after it went on: %v", err)
	}
}

// probing is a connection that is up, with a time between two probes.
func probing(t *testing.T, ctx context.Context, endpoint string, period time.Duration) *ovndb.DB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{endpoint}, Model: model, Probe: period, Patience: 3 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return db
}

// TestHungServerWhileATransactionWaits: a server that hangs is noticed long before the next probe is due if a
// transaction waits for its answer.
func TestHungServerWhileATransactionWaits(t *testing.T) {
	s := startWithPort(t)
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{s.Endpoint()}, Model: model, Probe: time.Hour, Patience: time.Second,
		Log: slog.New(slog.DiscardHandler),
	}.WithWaitingProbe(10 * time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	ctx := withTimeout(t, 2*time.Minute)
	if err := db.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	defer s.Resume()
	_, err = db.Transact(ctx, []ovsdb.Operation{ovndb.Select("Logical_Switch_Port", portKey, "name")})
	if ctx.Err() != nil || !errors.Is(err, ovndb.ErrUnknownOutcome) {
		t.Errorf("the transaction ends with %v, want an unknown outcome before its own time is over", err)
	}
}

// The end of the server ends the connection at once: no probe is needed to notice it.
func TestConnectedUntilTheServerEnds(t *testing.T) {
	s := startWithPort(t)
	ctx := withTimeout(t, 2*time.Minute)
	db := probing(t, ctx, s.Endpoint(), time.Hour)
	if err := db.Answers(ctx); err != nil || !db.Connected() {
		t.Errorf("after WaitConnected: connected is %v, and the server's answer %v", db.Connected(), err)
	}
	s.Kill()
	for db.Connected() && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // polls: nothing announces the end of the connection
	}
	if db.Connected() {
		t.Error("still connected to a server that has ended")
	}
}

// TestMonitorAnsweredLate: a server that is slow to answer the request for a copy gets another request on another
// connection. On the same connection both copies would be kept up to date, and libovsdb panics at an update of the first.
func TestMonitorAnsweredLate(t *testing.T) {
	s := ovndbtest.StartOVS(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	release := p.HoldAnswer("monitor_cond_since")
	defer release()
	model, err := vswitch.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	tried := make(chan struct{}, 1)
	db, err := ovndb.Open(ovndb.Config{
		Name: "OVS", Endpoints: []string{p.Endpoint()}, Model: model, Patience: 5 * time.Second,
		Monitor: []client.MonitorOption{client.WithTable(&vswitch.Bridge{})},
		Log:     slog.New(noting{tried, "trying again"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := withTimeout(t, 2*time.Minute)
	select {
	case <-tried:
	case <-ctx.Done():
		t.Fatal("the late answer is not noticed")
	}
	release()
	if err := db.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"br-one", "br-two"} {
		s.VSCtl("add-br", name)
		for !hasBridge(db, name) && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // polls the copy
		}
		if !hasBridge(db, name) {
			t.Errorf("the copy does not get bridge %s", name)
		}
	}
}

func hasBridge(db *ovndb.DB, name string) bool {
	var list []*vswitch.Bridge
	if rows, err := db.Copy(context.Background()); err == nil {
		_ = rows.List(context.Background(), &list)
	}
	return slices.ContainsFunc(list, func(b *vswitch.Bridge) bool { return b.Name == name })
}

// noting is a log that notes a message.
type noting struct {
	seen chan struct{}
	text string
}

func (n noting) Enabled(context.Context, slog.Level) bool { return true }
func (n noting) WithAttrs([]slog.Attr) slog.Handler       { return n }
func (n noting) WithGroup(string) slog.Handler            { return n }
func (n noting) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, n.text) {
		select {
		case n.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

func TestOpenBeforeTheServerIsUp(t *testing.T) {
	s := startWithPort(t)
	s.Kill()
	db := open(t, s.Endpoint())
	if db.Connected() {
		t.Error("connected to a dead server")
	}
	if _, err := db.Insert(&nb.LogicalSwitch{UUID: nobody}); err == nil {
		t.Error("an insert without the server's schema gives no error")
	}
	_, err := db.Transact(withTimeout(t, 50*time.Millisecond), []ovsdb.Operation{ovndb.Present("Logical_Switch", switchKey)})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ovndb.ErrUnknownOutcome) {
		t.Errorf("error %v, want the deadline and no unknown outcome: nothing was sent", err)
	}
	s.Restart()
	if err := db.WaitConnected(withTimeout(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !db.Connected() {
		t.Error("not connected after WaitConnected")
	}
}

func TestFollowsTheLeader(t *testing.T) {
	c := ovndbtest.StartNBCluster(t, 3)
	leader := c.Leader()
	leader.Transact(t, ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": switchKey, "row": ovndbtest.Op{"name": "switch"}})
	endpoints := slices.DeleteFunc(c.Endpoints(), func(e string) bool { return e == leader.Endpoint() })
	db := connect(t, append(endpoints, leader.Endpoint())...)
	ctx := withTimeout(t, 60*time.Second)
	if got := db.Endpoint(); got != leader.Endpoint() {
		t.Errorf("connected to %s, the leader is %s", got, leader.Endpoint())
	}
	leader.Kill()
	writes(t, ctx, db, nobody, "port")
	if rows := c.Leader().Dump(t, "Logical_Switch_Port"); len(rows) != 1 || rows[0]["_uuid"] != nobody {
		t.Errorf("ports at the new leader: %v", rows)
	}
}
