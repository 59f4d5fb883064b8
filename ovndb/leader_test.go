package ovndb_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// raftWithSwitch is a raft of three, with a logical switch for insertPort.
func raftWithSwitch(t *testing.T) *ovndbtest.Cluster {
	c := ovndbtest.StartNBCluster(t, 3)
	c.Leader().Transact(t, ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": switchKey, "row": ovndbtest.Op{"name": "switch"}})
	return c
}

// writes repeats a write until an answer arrives: an attempt whose answer is missing may be committed.
func writes(t *testing.T, ctx context.Context, db *ovndb.DB, key, name string) {
	t.Helper()
	for {
		_, err := db.Transact(ctx, insertPort(t, db, key, name))
		if refused, ok := errors.AsType[*ovndb.Refused](err); err == nil || ok && refused.Reason == ovndb.ReasonDuplicate {
			return
		}
		if !errors.Is(err, ovndb.ErrUnknownOutcome) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// A member that accepts connections and never answers is listed before the leader: the connection comes up, and comes
// up again after a change of leaders.
func TestSilentMemberIsListedFirst(t *testing.T) {
	c := raftWithSwitch(t)
	leader := c.Leader()
	followers := slices.DeleteFunc(slices.Clone(c.Members), func(s *ovndbtest.Server) bool { return s == leader })
	silent, err := net.Listen("unix", ovndbtest.TempDir(t)+"/silent.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	db := connect(t, "unix:"+silent.Addr().String(), leader.Endpoint(), followers[0].Endpoint(), followers[1].Endpoint())
	ctx := withTimeout(t, 2*time.Minute)
	writes(t, ctx, db, nobody, "first")
	leader.Kill()
	writes(t, ctx, db, portKey, "second")
	if rows := c.Leader().Dump(t, "Logical_Switch_Port"); len(rows) != 2 {
		t.Errorf("ports at the new leader: %v, want 2", rows)
	}
}

// A member that refuses connections at first becomes the leader, while the attempt to connect waits at another member.
func TestRefusedMemberBecomesLeader(t *testing.T) {
	c := raftWithSwitch(t)
	leader := c.Leader()
	i := slices.IndexFunc(c.Members, func(s *ovndbtest.Server) bool { return s != leader })
	follower := ovndbtest.StartProxy(t, c.Members[i].Endpoint())
	late := ovndbtest.TempDir(t) + "/late.sock"
	db := openPatient(t, time.Hour, "unix:"+late, follower.Endpoint())
	ctx := withTimeout(t, 2*time.Minute)
	for follower.Asked() == 0 {
		select {
		case <-ctx.Done():
			t.Fatal("the follower was not asked whether it leads")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := os.Symlink(leader.Socket, late); err != nil {
		t.Fatal(err)
	}
	if err := db.WaitConnected(ctx); err != nil {
		t.Error(err)
	}
}

// A leader that hangs is left as soon as another member leads, while the old one still hangs.
func TestPausedLeaderIsLeft(t *testing.T) {
	c := raftWithSwitch(t)
	leader := c.Leader()
	db := connect(t, c.Endpoints()...)
	leader.Pause()
	writes(t, withTimeout(t, 2*time.Minute), db, nobody, "port")
	if got := db.Endpoint(); got == leader.Endpoint() {
		t.Errorf("still connected to %s, which is paused", got)
	}
	leader.Resume()
}

// A leader that is only slow is not left: the transaction gets its answer over the same connection.
func TestBusyLeaderIsKept(t *testing.T) {
	c := raftWithSwitch(t)
	leader := c.Leader()
	proxy := ovndbtest.StartProxy(t, leader.Endpoint())
	i := slices.IndexFunc(c.Members, func(s *ovndbtest.Server) bool { return s != leader })
	follower := ovndbtest.StartProxy(t, c.Members[i].Endpoint())
	db := connect(t, proxy.Endpoint(), follower.Endpoint())
	before := follower.Asked()
	release := proxy.HoldAnswer("transact")
	defer release()
	done := make(chan error, 1)
	ctx := withTimeout(t, 2*time.Minute)
	go func() {
		_, err := db.Transact(ctx, insertPort(t, db, nobody, "port"))
		done <- err
	}()
	for follower.Asked() < before+3 { // the other member was asked three times, and did not lead
		select {
		case err := <-done:
			t.Fatalf("the transaction ended before its answer: %v", err)
		case <-ctx.Done():
			t.Fatalf("the follower was asked %d times, want 3", follower.Asked()-before)
		case <-time.After(10 * time.Millisecond):
		}
	}
	release()
	if err := <-done; err != nil {
		t.Errorf("the answer came late: %v, want no error", err)
	}
}

// What others commit is not announced: with hundreds of nodes, each commit would cost NB hundreds of messages.
func TestCommitsAreNotAnnounced(t *testing.T) {
	c := raftWithSwitch(t)
	leader := c.Leader()
	proxy := ovndbtest.StartProxy(t, leader.Endpoint())
	db := connect(t, proxy.Endpoint())
	ctx := withTimeout(t, 2*time.Minute)
	received := func() int64 { // until the answer to a transaction, which comes after what was announced
		proxy.Reset()
		if _, err := db.Transact(ctx, []ovsdb.Operation{ovndb.Present("Logical_Switch", switchKey)}); err != nil {
			t.Fatal(err)
		}
		return proxy.Counts().Received
	}
	answer := received()
	proxy.Reset()
	for i := range 100 {
		leader.Transact(t, ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "row": ovndbtest.Op{"name": fmt.Sprint("other-", i)}})
	}
	before := proxy.Counts().Received
	if more := received(); before+more > 2*answer {
		t.Errorf("100 commits of others and one answer are %d bytes; an answer alone is %d", before+more, answer)
	}
}

// A connection ends when its server does not lead any more, and the next one is to the new leader.
func TestConnectionEndsWithTheLeadership(t *testing.T) {
	c := raftWithSwitch(t)
	old := c.Leader()
	db := connect(t, c.Endpoints()...)
	old.MoveLeadership()
	ctx := withTimeout(t, 2*time.Minute)
	for at := db.Endpoint(); at == "" || at == old.Endpoint(); at = db.Endpoint() {
		select {
		case <-ctx.Done():
			t.Fatalf("connected to %q; %s led before", at, old.Endpoint())
		case <-time.After(5 * time.Millisecond):
		}
	}
	if got, want := db.Endpoint(), c.Leader().Endpoint(); got != want {
		t.Errorf("connected to %s, the leader is %s", got, want)
	}
}

// With most members of a raft down, nobody leads. The error says so, for the member that still answers.
func TestNobodyLeads(t *testing.T) {
	c := raftWithSwitch(t)
	db := connect(t, c.Endpoints()...)
	for _, s := range c.Members[1:] {
		s.Kill()
	}
	want := c.Members[0].Endpoint() + ": it is not the raft's leader"
	limit := withTimeout(t, 2*time.Minute)
	var err error
	for err == nil || !strings.Contains(err.Error(), want) {
		if limit.Err() != nil {
			t.Fatalf("error %v, want one with %q", err, want)
		}
		ctx, cancel := context.WithTimeout(limit, 10*time.Second) // an ADD has more
		err = ask(ctx, db)
		cancel()
	}
	if away, ok := errors.AsType[*ovndb.Unreachable](err); !ok || len(away.Failures) != 3 {
		t.Errorf("error %v, want a failure of each endpoint", err)
	}
}
