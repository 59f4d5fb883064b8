package ovndb_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// newsDB is a connection that is told news.
type newsDB struct {
	*ovndb.DB
	t    *testing.T
	news chan struct{}
}

func openNews(t *testing.T, endpoint string) *newsDB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{endpoint}, Model: model, Log: slog.New(slog.DiscardHandler), Probe: time.Hour,
		Cluster: func(context.Context) (string, error) { return "ours", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	n := &newsDB{DB: db, t: t, news: make(chan struct{}, 100)}
	db.OnNews(func() { n.news <- struct{}{} })
	return n
}

// want waits for news.
func (n *newsDB) want(what string) {
	n.t.Helper()
	select {
	case <-n.news:
	case <-time.After(2 * time.Minute):
		n.t.Fatalf("%s: nothing is announced", what)
	}
}

func (n *newsDB) wantHas(want bool) {
	n.t.Helper()
	if got := n.HasNews(); got != want {
		n.t.Errorf("the server announces news: %t, want %t", got, want)
	}
}

// TestNews: the server announces each change of the row, and nothing else. After a new connection there may be news. A
// database without the row has no controller that announces any.
func TestNews(t *testing.T) {
	s := startWithPort(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	take(t, connectOf(t, "ours", s.Endpoint()), "")
	n := openNews(t, p.Endpoint())
	n.want("the first connection")
	n.wantHas(false)
	row := func(value string) {
		t.Helper()
		s.NBCtl("set", "Address_Set", ovndb.NewsKey, `external_ids:"ovn-multinet/news"=`+value)
	}
	insert := func() {
		t.Helper()
		s.Transact(t, ovndbtest.Op{"op": "insert", "table": "Address_Set", "uuid": ovndb.NewsKey,
			"row": ovndbtest.Op{"name": "ovnmultinet_news"}})
	}
	insert()
	n.want("a new row")
	n.wantHas(true)
	p.Reset()
	s.NBCtl("create", "Address_Set", "name=another")
	s.NBCtl("set", "Logical_Switch_Port", "port", "external_ids:a=b")
	row("1")
	n.want("a change")
	if len(n.news) > 0 {
		t.Error("changes of other rows are announced")
	}
	if got := p.Counts(); got.ReadOnly+got.Committed != 0 || p.Asked() != 0 {
		t.Errorf("the changes cost %+v and %d other requests, want none", got, p.Asked())
	}
	s.NBCtl("destroy", "Address_Set", ovndb.NewsKey)
	n.want("the row is gone")
	n.wantHas(false)
	insert()
	n.want("the row is there again")
	p.Cut()
	n.want("another connection")
	n.wantHas(true)
	row("2")
	n.want("a change on the other connection")
}

// TestNewsAskForTheOwner: news may come from a database that was restored, so the next read asks for its owner too.
func TestNewsAskForTheOwner(t *testing.T) {
	s := startWithPort(t)
	take(t, connectOf(t, "ours", s.Endpoint()), "")
	n := openNews(t, s.Endpoint())
	n.want("the first connection")
	ctx := withTimeout(t, 2*time.Minute)
	if err := n.Owned(ctx); err != nil {
		t.Fatal(err)
	}
	replaced := 0
	n.OnReplaced(func() { replaced++ })
	s.NBCtl("set", "Copp", ovndb.ClusterKey, `external_ids:"ovn-multinet/age"=-1`) // an older backup
	s.Transact(t, ovndbtest.Op{"op": "insert", "table": "Address_Set", "uuid": ovndb.NewsKey,
		"row": ovndbtest.Op{"name": "ovnmultinet_news"}})
	n.want("a new row")
	if _, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.DB, nb.LogicalSwitchPortTable, []string{portKey}, "name"); err != nil {
		t.Fatal(err)
	}
	if replaced != 1 {
		t.Errorf("told %d times that NB was replaced, want once", replaced)
	}
}

// TestReadTogether: reads of one moment are one message, and each caller gets its own results. A caller that gives up
// does not wait, and what fails fails for all of the message.
func TestReadTogether(t *testing.T) {
	s := startWithPort(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	db := connect(t, p.Endpoint())
	if err := db.WaitConnected(withTimeout(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	type answer struct {
		results []ovsdb.OperationResult
		err     error
	}
	read := func(ctx context.Context, tables ...string) <-chan answer {
		done := make(chan answer, 1)
		var ops []ovsdb.Operation
		for _, table := range tables {
			ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: []string{"name"}})
		}
		go func() {
			results, err := db.ReadTogether(ctx, ops)
			done <- answer{results, err}
		}()
		return done
	}
	ctx := withTimeout(t, 2*time.Minute)
	for range 20 { // a machine that stands still for longer than a read waits sends two messages
		p.Reset()
		ports, both := read(ctx, "Logical_Switch_Port"), read(ctx, "Logical_Switch", "Logical_Switch_Port")
		one, two := <-ports, <-both
		if one.err != nil || two.err != nil || len(one.results) != 1 || len(two.results) != 2 {
			t.Fatalf("%+v and %+v, want one and two results", one, two)
		}
		for _, r := range []ovsdb.OperationResult{one.results[0], two.results[1]} {
			if len(r.Rows) != 1 || r.Rows[0]["name"] != "port" {
				t.Errorf("rows %v, want the port", r.Rows)
			}
		}
		if got := p.Counts(); got.ReadOnly == 1 && got.Operations == 3 {
			break
		}
	}
	if got := p.Counts(); got.ReadOnly != 1 {
		t.Errorf("%d messages, want one", got.ReadOnly)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if gone := <-read(ended, "Logical_Switch"); gone.err == nil {
		t.Error("a caller that has given up gets an answer")
	}
	if got := <-read(ctx, "No_Such_Table"); got.err == nil {
		t.Error("a table that does not exist is read")
	}
	if got := <-read(ctx, "Logical_Switch"); got.err != nil {
		t.Errorf("a later read fails: %v", got.err)
	}
}
