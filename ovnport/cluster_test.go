package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// of is a connection, through the proxy, of a process of a cluster.
func (w *world) of(t testing.TB, cluster string) (*ovndb.DB, *ovnport.NB) {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{w.proxy.Endpoint()}, Model: model, LeaderOnly: true, Log: slog.New(slog.DiscardHandler),
		Cluster: func(context.Context) (string, error) { return cluster, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.WaitConnected(timeout(t)); err != nil {
		t.Fatal(err)
	}
	return db, ovnport.NewNB(db)
}

// takenBy is a connection of a cluster that NB belongs to from now on.
func (w *world) takenBy(t testing.TB, cluster, adopt string) *ovnport.NB {
	t.Helper()
	db, n := w.of(t, cluster)
	if err := db.Take(timeout(t), adopt); err != nil {
		t.Fatal(err)
	}
	return n
}

// An agent writes nothing into an NB that is not its cluster's, and says so with a code; in its own, a pod's ports are
// one transaction and no more.
func TestBoundaryPortsInAnNBOfAnotherCluster(t *testing.T) {
	w := newWorld(t)
	n, m := w.network(t, "blue", netDual), w.network(t, "red", net4)
	_, b := w.of(t, "b")
	refused := func(says string) {
		t.Helper()
		before := w.Dump(t, "Logical_Switch_Port")
		_, err := b.Ensure(timeout(t), owner("web-0", "sandbox-0"), []ovnport.Request{want(n, "net1")}, nil)
		if err == nil || err.Error() != says || !conf.HasCode(err, conf.CodeTryAgain) {
			t.Errorf("error %v, want code 11, %s", err, says)
		}
		if after := w.Dump(t, "Logical_Switch_Port"); !reflect.DeepEqual(before, after) {
			t.Errorf("ports %v became %v", before, after)
		}
		if err := b.Answers(timeout(t)); err == nil || err.Error() != says || !conf.HasCode(err, conf.CodeTryAgain) {
			t.Errorf("Answers: %v, want code 11, %s", err, says)
		}
	}
	refused("no controller has taken this NB yet")
	a := w.takenBy(t, "a", "")
	portsOf(t, a.PortsOn("node-1")) // the agent begins with that
	w.proxy.Reset()
	ports := mustEnsure(t, a, owner("web-1", "sandbox-1"), want(n, "net1"), want(m, "net2", "10.1.0.7", "02:00:00:00:00:2a"))
	got := w.proxy.Counts()
	if got.Committed != 1 || got.ReadOnly != 0 || got.Refused != 0 {
		t.Errorf("transactions %+v, want one", got)
	}
	t.Attr("boundary.nb-round-trips-per-add", fmt.Sprint(got.Committed+got.ReadOnly+got.Refused))
	refused("NB belongs to cluster a, this agent is of cluster b")

	// Nor does it release anything, and it does not insist.
	w.proxy.Reset()
	held := []ovnport.Keys{{UUID: ports[0].UUID, Claims: ports[0].Claims}}
	for name, release := range map[string]func() error{
		"by key":     func() error { return b.Release(timeout(t), on1("sandbox-1"), held) },
		"by sandbox": func() error { return b.ReleaseSandbox(timeout(t), on1("sandbox-1")) },
	} {
		if no, ok := errors.AsType[*ovndb.NotOwner](release()); !ok || no.Owner != "a" {
			t.Errorf("release %s is not refused", name)
		}
	}
	if got := w.proxy.Counts(); got.Committed != 0 || got.Refused+got.ReadOnly > 4 {
		t.Errorf("transactions %+v, want none that commits, and no repetitions", got)
	}
	if got := len(w.Dump(t, "Logical_Switch_Port")); got != 2 {
		t.Errorf("%d ports", got)
	}
}

// A cluster that has adopted an NB releases no port of the one before by a list: neither the controller's look for
// orphans nor an agent's for what its node has. A DEL, which names a sandbox, does.
func TestBoundaryOrphansOfAnotherCluster(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	a := w.takenBy(t, "a", "")
	theirs := mustEnsure(t, a, owner("web-1", "sandbox-1"), want(n, "net1"))
	b := w.takenBy(t, "b", "a")
	mustEnsure(t, b, owner("web-2", "sandbox-2"), want(n, "net1"))
	older := connect(t, w.Endpoint()) // of a version that does not mark its rows
	mustEnsure(t, older, owner("web-3", "sandbox-3"), want(n, "net1"))
	leases, err := b.PortsOn("node-1").Read(timeout(t))
	var names []string
	for _, l := range leases {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); err != nil || got != "shop/web-2/net1 shop/web-3/net1" {
		t.Errorf("its node has %s, %v", got, err)
	}
	orphans := (&cluster{gone: func(ovnport.Owner) bool { return true }}).orphans(b)
	for range 3 {
		if err := orphans.Pass(timeout(t)); err != nil {
			t.Fatal(err)
		}
	}
	rows := w.Dump(t, "Logical_Switch_Port")
	if len(rows) != 1 || rows[0]["name"] != "shop/web-1/net1" || len(w.Dump(t, "Copp")) != 5 { // a claim, the owner, two port lists, the network
		t.Errorf("ports %v, claims %v", rows, w.Dump(t, "Copp"))
	}
	if err := b.Release(timeout(t), on1("sandbox-1"), []ovnport.Keys{{UUID: theirs[0].UUID, Claims: theirs[0].Claims}}); err != nil {
		t.Error(err)
	}
	if rows := w.Dump(t, "Logical_Switch_Port"); len(rows) != 0 || len(w.Dump(t, "Copp")) != 4 {
		t.Errorf("ports %v", rows)
	}
}
