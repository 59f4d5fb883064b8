package ovnnet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// limit bounds everything that is waited for here.
var limit = 3 * time.Minute

// A mutation is waited for in vain, so not for long.
func init() {
	if os.Getenv("OVN_MULTINET_MUTATION") != "" {
		limit = 10 * time.Second
	}
}

// blueKey is the row key of shop/blue's switch: it is the same everywhere and for ever.
var blueKey = ovndb.SwitchKey("shop/blue")

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

// other is another controller's client, past the proxy.
func (w *world) other(t *testing.T) *ovnnet.Networks {
	t.Helper()
	return connect(t, w.Endpoint())
}

func connect(t *testing.T, endpoint string) *ovnnet.Networks {
	t.Helper()
	return connectFor(t, endpoint, nil)
}

// routed is a controller's client, through the proxy, whose configuration has router r1 with those keys.
func (w *world) routed(t *testing.T, keys string) *ovnnet.Networks {
	t.Helper()
	return connectFor(t, w.proxy.Endpoint(), map[string]*netmodel.Router{"shop/r1": gatewayConf(t, "shop/r1", keys)})
}

// anybody is what a router's configuration says that lets every network join.
const anybody = `"namespaces":{"*":{"subnets":"0.0.0.0/0,::/0","maySetSNAT":true,"mayDisablePortSecurity":true}}`

// gatewayConf reads one router of a controller's configuration, which lets every network join.
func gatewayConf(t *testing.T, name, keys string) *netmodel.Router {
	t.Helper()
	return routerConf(t, name, anybody+","+keys)
}

// routerConf reads one router of a controller's configuration.
func routerConf(t *testing.T, name, keys string) *netmodel.Router {
	t.Helper()
	routers, err := netmodel.ParseRouters([]byte(sprint(`{"routers":{%q:{%s}}}`, name, keys)))
	if err != nil {
		t.Fatal(err)
	}
	return routers[name]
}

func connectFor(t *testing.T, endpoint string, routers map[string]*netmodel.Router) *ovnnet.Networks {
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
	return ovnnet.New(db, routers)
}

func withLimit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// Subnets of most tests; on a router, names of networks that have them do not overlap.
const (
	net4    = `"subnets":"10.1.0.0/24"`
	net6    = `"subnets":"fd01::/64"`
	netDual = `"subnets":"10.1.0.0/24,fd01::/64"`
	onR1    = `,"router":"r1"`
)

// spec writes a spec.config of ours.
func spec(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return `{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet"` + keys + `}`
}

func network(t *testing.T, name, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork("shop", name, []byte(spec(keys)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ensure brings a network of its one NAD in step and returns whether anything was written.
func ensure(t *testing.T, n *ovnnet.Networks, network *netmodel.Network) bool {
	t.Helper()
	changed, err := n.Ensure(withLimit(t), network, []string{network.NAD()})
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// wantRefused has Ensure refuse, for that reason.
func (w *world) wantRefused(t *testing.T, network *netmodel.Network, reason string) {
	t.Helper()
	changed, err := w.networks.Ensure(withLimit(t), network, []string{network.NAD()})
	if refused, ok := errors.AsType[*ovnnet.Refused](err); !ok || changed || refused.Reason != reason {
		t.Errorf("changed %t, error %v;\nwant it refused: %s", changed, err, reason)
	}
}

// tables are those that networks and gateways have rows in.
var tables = []string{
	"Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Logical_Router_Static_Route", "NAT",
	"HA_Chassis_Group", "HA_Chassis", "Copp",
}

// fields are the columns of a row that are not empty, each as one text: a set's members sorted, a map's pairs too.
type fields map[string]string

// rows reads the tables: by table and row key.
func (w *world) rows(t *testing.T) map[string]map[string]fields {
	t.Helper()
	out := map[string]map[string]fields{}
	for table, list := range w.DumpTables(t, tables...) {
		for _, row := range list {
			f := fields{}
			for column, v := range row {
				if text := line(v); text != "" && column != "_uuid" && column != "_version" {
					f[column] = text
				}
			}
			if out[table] == nil {
				out[table] = map[string]fields{}
			}
			out[table][row["_uuid"].(string)] = f
		}
	}
	return out
}

func line(v any) string {
	var words []string
	switch v := v.(type) {
	case []any:
		words = ovndbtest.Strings(v)
	case map[string]string:
		for key, value := range v {
			words = append(words, key+"="+value)
		}
	default:
		return fmt.Sprint(v)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// versions lists every row with what the server numbers its changes by.
func (w *world) versions(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for table, list := range w.DumpTables(t, tables...) {
		for _, row := range list {
			out[table+" "+row["_uuid"].(string)] = row["_version"]
		}
	}
	return out
}

// wantRows compares all rows.
func (w *world) wantRows(t *testing.T, want map[string]map[string]fields) {
	t.Helper()
	got := w.rows(t)
	if reflect.DeepEqual(got, want) {
		return
	}
	for _, table := range tables {
		for _, key := range slices.Sorted(maps.Keys(got[table])) {
			if !maps.Equal(got[table][key], want[table][key]) {
				t.Errorf("%s %s\nis   %v\nwant %v", table, key, got[table][key], want[table][key])
			}
		}
		for _, key := range slices.Sorted(maps.Keys(want[table])) {
			if got[table][key] == nil {
				t.Errorf("%s %s is not there, want %v", table, key, want[table][key])
			}
		}
	}
}

// names lists the names of a table's rows, sorted.
func (w *world) names(t *testing.T, table string) string {
	t.Helper()
	var out []string
	for _, row := range w.rows(t)[table] {
		out = append(out, row["name"])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *world) switches(t *testing.T) string {
	t.Helper()
	return w.names(t, "Logical_Switch")
}

// clear empties the database.
func (w *world) clear(t *testing.T) {
	t.Helper()
	var ops []ovndbtest.Op
	for _, table := range []string{"Logical_Switch", "Logical_Router", "Logical_Router_Port", "HA_Chassis_Group", "Copp"} {
		ops = append(ops, ovndbtest.Op{"op": "delete", "table": table, "where": []any{}})
	}
	w.Transact(t, ops...)
}

func byKey(key string) []any { return []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}} }

// change sets columns of a row as an operator does by hand.
func (w *world) change(t *testing.T, table, key string, columns ovndbtest.Op) {
	t.Helper()
	if w.Transact(t, ovndbtest.Op{"op": "update", "table": table, "where": byKey(key), "row": columns})[0].Count != 1 {
		t.Fatalf("%s has no row %s", table, key)
	}
}

func (w *world) remove(t *testing.T, table, key string) {
	t.Helper()
	if w.Transact(t, ovndbtest.Op{"op": "delete", "table": table, "where": byKey(key)})[0].Count != 1 {
		t.Fatalf("%s has no row %s", table, key)
	}
}

// put inserts a row of a table that is not collected.
func (w *world) put(t *testing.T, table, key, name string, ids map[string]string) {
	t.Helper()
	w.Transact(t, ovndbtest.Op{"op": "insert", "table": table, "uuid": key,
		"row": ovndbtest.Op{"name": name, "external_ids": ovndbtest.Map(ids)}})
}

// putPort inserts a port and gives it to a switch or router.
func (w *world) putPort(t *testing.T, table, parent, key string, row ovndbtest.Op) {
	t.Helper()
	results := w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": table + "_Port", "uuid": key, "row": row},
		ovndbtest.Op{"op": "mutate", "table": table, "where": byKey(parent),
			"mutations": []any{[]any{"ports", "insert", ovndbtest.UUID(key)}}})
	if results[1].Count != 1 {
		t.Fatalf("%s has no row %s", table, parent)
	}
}

// pod puts a pod's port on a network of shop's; the address is its lease.
func (w *world) pod(t *testing.T, name, address, pod, ifName string) {
	t.Helper()
	id := "shop/" + name
	w.podAt(t, id, ovndb.AddressKey(id, netip.MustParseAddr(address)), pod, ifName)
}

func (w *world) podAt(t *testing.T, id, key, pod, ifName string) {
	t.Helper()
	w.putPort(t, "Logical_Switch", ovndb.SwitchKey(id), key, ovndbtest.Op{
		"name": "shop/" + pod + "/" + ifName, "external_ids": ovndbtest.Map(map[string]string{
			"ovn-multinet/network": id, "ovn-multinet/namespace": "shop", "ovn-multinet/pod": pod, "ovn-multinet/sandbox": "s1"})})
}

// machine puts a port on a switch that is not ours: of a machine outside Kubernetes.
func (w *world) machine(t *testing.T, id, key, name string) {
	t.Helper()
	w.putPort(t, "Logical_Switch", ovndb.SwitchKey(id), key, ovndbtest.Op{"name": name})
}

// dropPorts takes all ports of a switch or router away.
func (w *world) dropPorts(t *testing.T, table, key string) {
	t.Helper()
	w.change(t, table, key, ovndbtest.Op{"ports": []any{"set", []any{}}})
}

// wantCommitted compares what the proxy saw committed since its last Reset, and begins anew.
func (w *world) wantCommitted(t *testing.T, want int) {
	t.Helper()
	if got := w.proxy.Counts(); got.Committed != want || got.Refused != 0 {
		t.Errorf("transactions: %d committed, %d refused; want %d, 0", got.Committed, got.Refused, want)
	}
	w.proxy.Reset()
}

// meanwhile has do called once, before the first transaction that writes to a row of the table is forwarded; "": of any.
func (w *world) meanwhile(t *testing.T, table string, do func()) {
	t.Helper()
	var first sync.Once
	done := false
	w.proxy.Before(func(tx ovndbtest.Transact) {
		if tx.Writes && slices.ContainsFunc(tx.Ops, func(op ovndbtest.Op) bool {
			return (table == "" || op["table"] == table) && op["op"] != "wait"
		}) {
			first.Do(func() {
				done = true
				do()
			})
		}
	})
	t.Cleanup(func() {
		w.proxy.Before(nil)
		if !done {
			t.Error("no transaction came that writes to " + table)
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
