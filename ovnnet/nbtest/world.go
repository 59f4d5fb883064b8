package nbtest

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
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Limit bounds all waiting of tests. It is short when a mutation is tested: such a test often waits for nothing.
var Limit = limit()

func limit() time.Duration {
	if os.Getenv("OVN_MULTINET_MUTATION") != "" {
		return 10 * time.Second
	}
	return 3 * time.Minute
}

// BlueKey is the row key of shop/blue's switch. It is the same in each database and never changes.
var BlueKey = ovndb.SwitchKey("shop/blue")

// World is a Northbound database, and a client whose transactions are counted.
type World struct {
	*ovndbtest.Server
	Proxy    *ovndbtest.Proxy
	Networks *Client // through the proxy
}

// NewWorld starts a Northbound database and a proxy, and connects a client through the proxy.
func NewWorld(t *testing.T) *World {
	t.Helper()
	s := ovndbtest.StartNB(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	p.Ignore(aboutNews)
	return &World{Server: s, Proxy: p, Networks: Connect(t, p.Endpoint())}
}

// aboutNews reports whether a transaction reads or announces news. A controller announces when it begins to lead, and
// at most once in ten seconds.
func aboutNews(tx ovndbtest.Transact) bool {
	return slices.ContainsFunc(tx.Ops, func(op ovndbtest.Op) bool {
		return op["uuid"] == ovndb.NewsKey || strings.Contains(fmt.Sprint(op["where"]), ovndb.NewsKey)
	})
}

// News returns external_ids of the row that announces news to agents; "": there is no row.
func (w *World) News(t *testing.T) string {
	t.Helper()
	for _, row := range w.Dump(t, "Address_Set") {
		if row["_uuid"] == ovndb.NewsKey {
			return line(row["external_ids"])
		}
	}
	return ""
}

// Other returns another controller's client, which does not use the proxy.
func (w *World) Other(t *testing.T) *Client {
	t.Helper()
	return Connect(t, w.Endpoint())
}

// Connect returns a client of the database at that endpoint, without configured routers.
func Connect(t *testing.T, endpoint string) *Client {
	t.Helper()
	return ConnectFor(t, endpoint, nil)
}

// Routed returns a controller's client through the proxy. The controller's configuration has router r1 with these keys.
func (w *World) Routed(t *testing.T, keys string) *Client {
	t.Helper()
	return ConnectFor(t, w.Proxy.Endpoint(), map[string]*netmodel.Router{"shop/r1": GatewayConf(t, "shop/r1", keys)})
}

// Anybody are the keys of a router's configuration that let every network join.
const Anybody = `"namespaces":{"*":{"subnets":"0.0.0.0/0,::/0","maySetSNAT":true,"mayDisablePortSecurity":true}}`

// GatewayConf parses one router of a controller's configuration. Every network may join the router.
func GatewayConf(t *testing.T, name, keys string) *netmodel.Router {
	t.Helper()
	return RouterConf(t, name, Anybody+","+keys)
}

// RouterConf parses one router of a controller's configuration.
func RouterConf(t *testing.T, name, keys string) *netmodel.Router {
	t.Helper()
	routers, err := netmodel.ParseRouters([]byte(Sprint(`{"routers":{%q:{%s}}}`, name, keys)))
	if err != nil {
		t.Fatal(err)
	}
	return routers[name]
}

// ConnectFor returns a client of the database at that endpoint, with these configured routers.
func ConnectFor(t *testing.T, endpoint string, routers map[string]*netmodel.Router) *Client {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{endpoint}, Model: model, LeaderOnly: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.WaitConnected(WithLimit(t)); err != nil {
		t.Fatal(err)
	}
	return NewClient(db, routers)
}

// WithLimit returns a context that ends after Limit, or with the test.
func WithLimit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Keys that most tests use.
const (
	Net4    = `"subnets":"10.1.0.0/24"`
	Net6    = `"subnets":"fd01::/64"`
	NetDual = `"subnets":"10.1.0.0/24,fd01::/64"`
	OnR1    = `,"router":"r1"`
)

// Spec returns a spec.config of our type with these keys.
func Spec(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return `{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet"` + keys + `}`
}

// Network parses a network of namespace shop.
func Network(t *testing.T, name, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork("shop", name, []byte(Spec(keys)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Ensure ensures a network for its only NAD and returns whether anything was written.
func Ensure(t *testing.T, n *Client, network *netmodel.Network) bool {
	t.Helper()
	changed, err := n.Ensure(WithLimit(t), network, []string{network.NAD()})
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// WantRefused fails unless Ensure refuses the network with that reason.
func (w *World) WantRefused(t *testing.T, network *netmodel.Network, reason string) {
	t.Helper()
	changed, err := w.Networks.Ensure(WithLimit(t), network, []string{network.NAD()})
	if refused, ok := errors.AsType[*nbrows.Refused](err); !ok || changed || refused.Reason != reason {
		t.Errorf("changed %t, error %v;\nwant it refused: %s", changed, err, reason)
	}
}

// tables are the tables in which networks and gateways have rows.
var tables = []string{
	"Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Logical_Router_Static_Route", "NAT",
	"HA_Chassis_Group", "HA_Chassis", "Copp", "Load_Balancer", "Load_Balancer_Group",
}

// RouterOptions are the options of each router of ours.
const RouterOptions = "always_learn_from_arp_request=false mac_binding_age_threshold=20"

// Fields are the columns of a row that are not empty, each as one text. Members of sets and pairs of maps are sorted.
type Fields map[string]string

// Rows reads all rows of the tables, by table and row key.
func (w *World) Rows(t *testing.T) map[string]map[string]Fields {
	t.Helper()
	out := map[string]map[string]Fields{}
	for table, list := range w.DumpTables(t, tables...) {
		for _, row := range list {
			f := Fields{}
			for column, v := range row {
				if table == "Logical_Switch" && column == "acls" { // TestGuards has them
					continue
				}
				if text := line(v); text != "" && column != "_uuid" && column != "_version" {
					f[column] = text
				}
			}
			if out[table] == nil {
				out[table] = map[string]Fields{}
			}
			out[table][row["_uuid"].(string)] = f
		}
	}
	return out
}

// line returns a value of a column as one text, as described for Fields.
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

// Versions returns the version of every row, by table and row key. The server changes a row's version with each change.
func (w *World) Versions(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for table, list := range w.DumpTables(t, tables...) {
		for _, row := range list {
			out[table+" "+row["_uuid"].(string)] = row["_version"]
		}
	}
	return out
}

// WantRows compares all rows.
func (w *World) WantRows(t *testing.T, want map[string]map[string]Fields) {
	t.Helper()
	got := w.Rows(t)
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

// Names returns the names of a table's rows, sorted.
func (w *World) Names(t *testing.T, table string) string {
	t.Helper()
	var out []string
	for _, row := range w.Rows(t)[table] {
		out = append(out, row["name"])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Switches returns the names of all logical switches, sorted.
func (w *World) Switches(t *testing.T) string {
	t.Helper()
	return w.Names(t, "Logical_Switch")
}

// Clear empties the database.
func (w *World) Clear(t *testing.T) {
	t.Helper()
	var ops []ovndbtest.Op
	for _, table := range []string{"Logical_Switch", "Logical_Router", "Logical_Router_Port", "HA_Chassis_Group", "Copp",
		"Load_Balancer", "Load_Balancer_Group"} {
		ops = append(ops, ovndbtest.Op{"op": "delete", "table": table, "where": []any{}})
	}
	w.Transact(t, ops...)
}

// ByKey returns the condition of an operation on the row with that key.
func ByKey(key string) []any { return []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}} }

// Change updates columns of a row, as an operator does by hand.
func (w *World) Change(t *testing.T, table, key string, columns ovndbtest.Op) {
	t.Helper()
	if w.Transact(t, ovndbtest.Op{"op": "update", "table": table, "where": ByKey(key), "row": columns})[0].Count != 1 {
		t.Fatalf("%s has no row %s", table, key)
	}
}

// Remove deletes a row of a root table.
func (w *World) Remove(t *testing.T, table, key string) {
	t.Helper()
	if w.Transact(t, ovndbtest.Op{"op": "delete", "table": table, "where": ByKey(key)})[0].Count != 1 {
		t.Fatalf("%s has no row %s", table, key)
	}
}

// Put inserts a row of a root table: the database keeps the row without a reference to it.
func (w *World) Put(t *testing.T, table, key, name string, ids map[string]string) {
	t.Helper()
	w.Transact(t, ovndbtest.Op{"op": "insert", "table": table, "uuid": key,
		"row": ovndbtest.Op{"name": name, "external_ids": ovndbtest.Map(ids)}})
}

// PutPort inserts a port of a switch or router.
func (w *World) PutPort(t *testing.T, table, parent, key string, row ovndbtest.Op) {
	t.Helper()
	results := w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": table + "_Port", "uuid": key, "row": row},
		ovndbtest.Op{"op": "mutate", "table": table, "where": ByKey(parent),
			"mutations": []any{[]any{"ports", "insert", ovndbtest.UUID(key)}}})
	if results[1].Count != 1 {
		t.Fatalf("%s has no row %s", table, parent)
	}
}

// Pod inserts a pod's port on a network of namespace shop. The address is the port's lease.
func (w *World) Pod(t *testing.T, name, address, pod, ifName string) {
	t.Helper()
	id := "shop/" + name
	w.PodAt(t, id, ovndb.AddressKey(id, netip.MustParseAddr(address)), pod, ifName)
}

// PodAt inserts a pod's port with that row key on a network.
func (w *World) PodAt(t *testing.T, id, key, pod, ifName string) {
	t.Helper()
	w.PutPort(t, "Logical_Switch", ovndb.SwitchKey(id), key, ovndbtest.Op{
		"name": "shop/" + pod + "/" + ifName, "external_ids": ovndbtest.Map(map[string]string{
			"ovn-multinet/network": id, "ovn-multinet/namespace": "shop",
			"ovn-multinet/pod": pod, "ovn-multinet/sandbox": "s1"})})
}

// Machine inserts a port that is not ours on a network's switch: the port of a machine outside Kubernetes.
func (w *World) Machine(t *testing.T, id, key, name string) {
	t.Helper()
	w.PutPort(t, "Logical_Switch", ovndb.SwitchKey(id), key, ovndbtest.Op{"name": name})
}

// DropPorts deletes all ports of a switch or router.
func (w *World) DropPorts(t *testing.T, table, key string) {
	t.Helper()
	w.Change(t, table, key, ovndbtest.Op{"ports": []any{"set", []any{}}})
}

// WantCommitted compares the number of transactions that were committed since the proxy's last Reset, and resets it.
func (w *World) WantCommitted(t *testing.T, want int) {
	t.Helper()
	if got := w.Proxy.Counts(); got.Committed != want || got.Refused != 0 {
		t.Errorf("transactions: %d committed, %d refused; want %d, 0", got.Committed, got.Refused, want)
	}
	w.Proxy.Reset()
}

// Meanwhile calls do once, before the proxy forwards the first transaction that writes to a row of the table; "" means
// any table.
func (w *World) Meanwhile(t *testing.T, table string, do func()) {
	t.Helper()
	var first sync.Once
	done := false
	w.Proxy.Before(func(tx ovndbtest.Transact) {
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
		w.Proxy.Before(nil)
		if !done {
			t.Error("no transaction came that writes to " + table)
		}
	})
}
