package outside_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// pools has two pools: web has IPv4 addresses alone, and only namespace web may use it.
const pools = `,"addressPools":{
	"public":{"addresses":"192.0.2.16/29,2001:db8::100-2001:db8::107","namespaces":{"shop":2,"web":4}},
	"web":{"addresses":"192.0.2.64/28","namespaces":{"web":16}}}`

// world is a Northbound database with r1's gateway, network shop/blue on r1, and the rows of outside addresses.
type world struct {
	*nbtest.World
	*nbtest.Client
	outside *outside.Outside
	router  *netmodel.Router
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: nbtest.NewWorld(t)}
	w.configure(t, nbtest.GwFull+pools)
	nbtest.Ensure(t, w.Client, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	return w
}

// configure replaces the controller's configuration, and ensures the gateway.
func (w *world) configure(t *testing.T, keys string) {
	t.Helper()
	if w.Client == nil {
		w.Client = w.Routed(t, keys)
	}
	w.router = nbtest.GatewayConf(t, "shop/r1", keys)
	w.Gateways.Configure(map[string]*netmodel.Router{"shop/r1": w.router})
	w.outside = outside.New(nbrows.NewStore(w.DB))
	if _, err := w.Gateways.Ensure(nbtest.WithLimit(t), w.router, nbtest.OneNode); err != nil {
		t.Fatal(err)
	}
}

// pod inserts the port of a pod with the i-th addresses, and returns what the pod wants: by default a floating address
// of any pool.
func (w *world) pod(t *testing.T, namespace, name string, i int, fixed ...string) *outside.Wanted {
	t.Helper()
	want := &outside.Wanted{
		Router: w.router, User: outside.User{Namespace: namespace, Pod: name, Interface: "net1"}, Kind: outside.Floating,
		PortName: namespace + "/" + name + "/net1", Distributed: true,
		Inside: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd01::%x", i))},
	}
	want.PortKey = ovndb.AddressKey("shop/blue", want.Inside[0])
	for _, text := range fixed {
		want.Fixed = append(want.Fixed, netip.MustParseAddr(text))
	}
	w.PutPort(t, "Logical_Switch", nbtest.BlueKey, want.PortKey, ovndbtest.Op{
		"name": want.PortName, "up": true, "addresses": fmt.Sprintf("0a:58:0a:01:00:%02x %s %s", i, want.Inside[0], want.Inside[1]),
		"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/namespace": namespace,
			"ovn-multinet/pod": name, "ovn-multinet/interface": "net1", "ovn-multinet/sandbox": "s1"})})
	return want
}

// ensure ensures the addresses of a user in so many transactions, and returns them.
func (w *world) ensure(t *testing.T, want *outside.Wanted, committed int) string {
	t.Helper()
	w.Proxy.Reset()
	result, err := w.outside.Ensure(nbtest.WithLimit(t), want)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Proxy.Counts(); got.Committed != committed || got.Refused != 0 || result.Changed != (committed > 0) {
		t.Errorf("transactions %+v, changed: %t; want %d", got, result.Changed, committed)
	}
	return fmt.Sprint(result.Addresses)
}

func (w *world) remove(t *testing.T, want *outside.Wanted, committed int) {
	t.Helper()
	w.Proxy.Reset()
	changed, err := w.outside.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: want.User})
	if got := w.Proxy.Counts(); err != nil || got.Committed != committed || changed != (committed > 0) {
		t.Errorf("transactions %+v, changed: %t, error %v; want %d", got, changed, err, committed)
	}
}

// wantRefused fails unless the user is refused with that reason, and nothing is written.
func (w *world) wantRefused(t *testing.T, want *outside.Wanted, reason string) {
	t.Helper()
	before := w.Versions(t)
	_, err := w.outside.Ensure(nbtest.WithLimit(t), want)
	if refused, ok := errors.AsType[*nbrows.Refused](err); !ok || refused.Reason != reason {
		t.Errorf("error %v;\nwant it refused: %s", err, reason)
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// wantNotReady fails unless Ensure returns ErrNotReady with this text, and nothing is written.
func (w *world) wantNotReady(t *testing.T, want *outside.Wanted, text string) {
	t.Helper()
	before := w.Versions(t)
	if _, err := w.outside.Ensure(nbtest.WithLimit(t), want); !errors.Is(err, outside.ErrNotReady) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want it not ready: %s", err, text)
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// nats are the NAT rows of the gateway that are not a network's, in words, sorted.
func (w *world) nats(t *testing.T) string {
	t.Helper()
	var words []string
	rows := w.Rows(t)
	for _, key := range strings.Fields(rows["Logical_Router"][nbtest.GwRouter]["nat"]) {
		if row := rows["NAT"][key]; !strings.Contains(row["external_ids"], "ovn-multinet/network=") {
			words = append(words, strings.TrimSpace(fmt.Sprint(row["type"], " ", row["external_ip"], " ", row["logical_ip"], " ", row["external_mac"], " ", row["logical_port"])))
		}
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

// claims are the rows of Copp without the lists of ended connections, which stay as long as the nodes.
func (w *world) claims(t *testing.T) map[string]nbtest.Fields {
	t.Helper()
	rows := w.Rows(t)["Copp"]
	maps.DeleteFunc(rows, func(_ string, row nbtest.Fields) bool {
		return strings.Contains(row["external_ids"], "ovn-multinet/kind=ended-connections")
	})
	return rows
}

// ended are the entries of a node's list of ended connections, sorted; "none": there is no list.
func (w *world) ended(t *testing.T, node string) string {
	t.Helper()
	results, err := w.DB.Transact(nbtest.WithLimit(t), []ovsdb.Operation{ended.Select(node)})
	if err != nil {
		t.Fatal(err)
	}
	list, exists, err := ended.Read(w.DB, results[0])
	if err != nil {
		t.Fatal(err)
	}
	if !exists {
		return "none"
	}
	var words []string
	for _, e := range list {
		words = append(words, e.String())
	}
	return strings.Join(words, "; ")
}

// addEnded adds entries to a node's list.
func (w *world) addEnded(t *testing.T, node string, keys []string) {
	t.Helper()
	var ops []ovsdb.Operation
	for _, key := range keys {
		ops = append(ops, ovndb.SetPair("Copp", ovndb.EndedKey(node), "external_ids", key, "once"))
	}
	if _, err := w.DB.Transact(nbtest.WithLimit(t), ops); err != nil {
		t.Fatal(err)
	}
}

// ours are the names of the claims and lists of outside addresses.
func (w *world) ours(t *testing.T) string {
	t.Helper()
	var names []string
	for _, row := range w.Rows(t)["Copp"] {
		if strings.Contains(row["external_ids"], "ovn-multinet/outside-router=") {
			names = append(names, strings.TrimPrefix(row["name"], "ovn-multinet "))
		}
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

// claimsOn are the external_ids of the claim on an address, without those that all claims have.
func (w *world) claimsOn(t *testing.T, address string) string {
	t.Helper()
	var words []string
	ids := w.Rows(t)["Copp"][ovndb.AddressKey(book, netip.MustParseAddr(address))]["external_ids"]
	for _, word := range strings.Split(ids, " ovn-multinet/") {
		if word = strings.TrimPrefix(word, "ovn-multinet/"); !strings.HasPrefix(word, "address-book=") && !strings.HasPrefix(word, "outside-router=") {
			words = append(words, word)
		}
	}
	return strings.Join(words, "; ")
}

const book = "physical:provider:42"

// meanwhile has another controller do something once, before this one's first transaction that writes to the table.
func (w *world) meanwhile(t *testing.T, table string, do func(o *outside.Outside) error) {
	t.Helper()
	other := outside.New(nbrows.NewStore(w.Other(t).DB))
	w.Meanwhile(t, table, func() {
		if err := do(other); err != nil {
			t.Error(err)
		}
	})
}

// ensured returns what makes another controller ensure the addresses of a user.
func ensured(t *testing.T, want *outside.Wanted) func(o *outside.Outside) error {
	return func(o *outside.Outside) error {
		_, err := o.Ensure(nbtest.WithLimit(t), want)
		return err
	}
}
