package ovndb_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// relayed has a relay beside the client, and returns what a client of it dials. told gets its endpoint.
func relayed(t *testing.T, told *string, ended chan<- error, servers ...string) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	rows, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	cfg := ovndb.Config{Name: "NB", Endpoints: servers, Model: rows, LeaderOnly: true, Log: slog.New(slog.DiscardHandler)}
	return func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			ended <- ovndb.Relay(t.Context(), cfg, theirs, theirs)
			theirs.Close()
		}()
		line, err := bufio.NewReaderSize(io.LimitReader(ours, 200), 16).ReadString('\n')
		*told = strings.TrimSpace(line)
		return ours, err
	}
}

// TestRelay: a client without a way to NB reads from the raft's leader, by a relay that has one. The relay ends with the
// client.
func TestRelay(t *testing.T) {
	c := raftWithSwitch(t)
	leader := c.Leader()
	order := c.Endpoints()
	slices.SortFunc(order, func(a, b string) int { // the leader comes last
		if a == leader.Endpoint() {
			return 1
		}
		return -1
	})
	rows, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	var told string
	ended := make(chan error, 1)
	db, err := ovndb.Open(ovndb.Config{Name: "NB", Endpoints: []string{"relay"}, Model: rows,
		Dial: relayed(t, &told, ended, order...), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	results, err := db.Transact(withTimeout(t, 2*time.Minute), []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, switchKey, "name")})
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 || results[0].Rows[0]["name"] != "switch" {
		t.Errorf("read %v, %v", results, err)
	}
	if told != leader.Endpoint() {
		t.Errorf("it reads from %s, and %s leads", told, leader.Endpoint())
	}
	db.Close()
	if err := <-ended; err != nil {
		t.Errorf("the relay ended with %v", err)
	}
}

// TestBoundaryRelayOnlyReads: what may change a row does not reach the server, and nothing reaches it that two programs
// could read in two ways.
func TestBoundaryRelayOnlyReads(t *testing.T) {
	const selects = `{"id":1,"method":"transact","params":["OVN_Northbound",{"op":"select","table":"Logical_Switch","where":[]}]}`
	for _, tt := range []struct{ request, passes, refused string }{
		{selects, selects, ""},
		{`{"id":1,"method":"list_dbs","params":[]}`, `{"id":1,"method":"list_dbs","params":[]}`, ""},
		{`{"id":"echo","result":[],"error":null}`, `{"error":null,"id":"echo","result":[]}`, ""}, // an answer to the server
		{`{"id":1,"method":"transact","params":["OVN_Northbound",{"op":"select","table":"Logical_Switch","where":[]},{"op":"delete","table":"Logical_Switch","where":[]}]}`,
			"", `only transactions that read pass, not the operation "delete"`},
		{`{"id":1,"method":"transact","params":["OVN_Northbound",{"op":"select","op":"delete","table":"Logical_Switch","where":[]}]}`,
			"", `only transactions that read pass, not the operation "delete"`},
		{`{"id":1,"method":"transact","params":["OVN_Northbound",{"Op":"select","op":"delete","table":"Logical_Switch","where":[]}]}`,
			"", `only transactions that read pass, not the operation "delete"`},
		{`{"id":1,"method":"transact","params":["OVN_Northbound",{"op":"delete","op":"select","table":"Logical_Switch","where":[]}]}`, selects, ""},
		{`{"id":1,"method":"echo","method":"transact","params":["OVN_Northbound",{"op":"delete","table":"Logical_Switch","where":[]}]}`,
			"", `only transactions that read pass, not the operation "delete"`},
		{`{"id":1,"method":"transact","params":[]}`, "", "a transaction without a database"},
		{`{"id":1,"method":"lock","params":["ovn_northd"]}`, "", `only requests that read pass, not "lock"`},
		{`{"id":1,"method":"convert","params":["OVN_Northbound",{}]}`, "", `only requests that read pass, not "convert"`},
		{`{"id":1,"method":["echo"],"params":[]}`, "", "json: cannot unmarshal array"},
		{`[]`, "", "json: cannot unmarshal array"},
	} {
		var passed bytes.Buffer
		err := ovndb.PassReads(&passed, strings.NewReader(tt.request))
		if passed.String() != tt.passes {
			t.Errorf("%s: %s reaches the server, want %s", tt.request, &passed, tt.passes)
		}
		if (err == nil) != (tt.refused == "") || err != nil && !strings.HasPrefix(err.Error(), tt.refused) {
			t.Errorf("%s: %v, want %s", tt.request, err, tt.refused)
		}
	}
}
