package ovnnet_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// limit bounds everything that is waited for here.
const limit = 30 * time.Second

// world is a Northbound database, and a client whose transactions are counted.
type world struct {
	*ovndbtest.Server
	proxy    *ovndbtest.Proxy
	networks *ovnnet.Networks // through the proxy
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := ovndbtest.StartNB(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	return &world{Server: s, proxy: p, networks: connect(t, p.Endpoint())}
}

// connect makes a client of its own.
func connect(t *testing.T, endpoint string) *ovnnet.Networks {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{Name: "NB", Endpoints: []string{endpoint}, Model: model, LeaderOnly: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.WaitConnected(withLimit(t)); err != nil {
		t.Fatal(err)
	}
	return ovnnet.New(db)
}

func withLimit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// spec writes a spec.config of ours.
func spec(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return `{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet"` + keys + `}`
}

func network(t *testing.T, name, keys string) *conf.Network {
	t.Helper()
	n, err := conf.ParseNetwork("shop", name, []byte(spec(keys)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ensure brings a network in step and returns whether anything was written.
func ensure(t *testing.T, n *ovnnet.Networks, network *conf.Network) bool {
	t.Helper()
	changed, err := n.Ensure(withLimit(t), network)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// switches reads the logical switches by row key, without what the server adds.
func (w *world) switches(t *testing.T) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, row := range w.Dump(t, "Logical_Switch") {
		delete(row, "_version")
		out[row["_uuid"].(string)] = row
	}
	return out
}

// names lists the names of the switches, sorted.
func (w *world) names(t *testing.T) string {
	t.Helper()
	var out []string
	for _, row := range w.switches(t) {
		out = append(out, row["name"].(string))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// put inserts a switch with a row key, past the client.
func (w *world) put(t *testing.T, key, name string, ids map[string]string) {
	t.Helper()
	w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": key,
		"row": ovndbtest.Op{"name": name, "external_ids": ovndbtest.Map(ids)}})
}

// addPort gives a switch a port.
func (w *world) addPort(t *testing.T, key, name string) {
	t.Helper()
	w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid-name": "p", "row": ovndbtest.Op{"name": name}},
		ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}},
			"mutations": []any{[]any{"ports", "insert", []any{"named-uuid", "p"}}}})
}

// dropPorts takes all ports of a switch away.
func (w *world) dropPorts(t *testing.T, key string) {
	t.Helper()
	w.Transact(t, ovndbtest.Op{"op": "update", "table": "Logical_Switch", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}},
		"row": ovndbtest.Op{"ports": []any{"set", []any{}}}})
}

// wantCounts compares what the proxy saw since its last Reset.
func (w *world) wantCounts(t *testing.T, committed, refused, readOnly int) {
	t.Helper()
	got := w.proxy.Counts()
	if got.Committed != committed || got.Refused != refused || got.ReadOnly != readOnly {
		t.Errorf("transactions: %d committed, %d refused, %d read-only; want %d, %d, %d",
			got.Committed, got.Refused, got.ReadOnly, committed, refused, readOnly)
	}
}

// beforeFirst has do called before the first transaction that writes is forwarded.
func (w *world) beforeFirst(t *testing.T, do func()) {
	t.Helper()
	var first sync.Once
	done := false
	w.proxy.Before(func(tx ovndbtest.Transact) {
		if tx.Writes {
			first.Do(func() {
				done = true
				do()
			})
		}
	})
	t.Cleanup(func() {
		w.proxy.Before(nil)
		if !done {
			t.Error("no transaction came that writes")
		}
	})
}

// eventually polls the database, which tells a test nothing by itself, until what it has is what is wanted.
func eventually(t *testing.T, want string, got func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); ; <-tick.C {
		now := got()
		if now == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is %q after %v, want %q", now, limit, want)
		}
	}
}

// nads is a source of networks that tests change.
type nads struct {
	mu     sync.Mutex
	byID   map[string]string
	failed map[string]error
}

func (n *nads) NetworkConfig(_ context.Context, namespace, name string) (string, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := namespace + "/" + name
	config, found := n.byID[id]
	return config, found, n.failed[id]
}

// set changes, "" removes a NAD.
func (n *nads) set(id, config string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byID = maps.Clone(n.byID)
	if n.byID == nil {
		n.byID = map[string]string{}
	}
	n.byID[id] = config
	if config == "" {
		delete(n.byID, id)
	}
}

func (n *nads) fail(id string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = map[string]error{id: err}
}
