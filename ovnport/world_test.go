package ovnport_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// world is a Northbound database, a client whose transactions are counted, and what the tests read it with.
type world struct {
	*ovndbtest.Server
	proxy *ovndbtest.Proxy
	nb    *ovnport.NB // through the proxy
}

func newWorld(t testing.TB) *world {
	t.Helper()
	s := ovndbtest.StartNB(t)
	p := ovndbtest.StartProxy(t, s.Endpoint())
	w := &world{Server: s, proxy: p, nb: connect(t, p.Endpoint())}
	for _, node := range []string{"node-1", "node-2"} {
		if _, err := w.nb.PortsOn(node).Read(timeout(t)); err != nil { // the node's agent begins with that
			t.Fatal(err)
		}
	}
	p.Reset()
	return w
}

// other is a second client, past the proxy.
func (w *world) other(t testing.TB) *ovnport.NB {
	t.Helper()
	return connect(t, w.Endpoint())
}

func connect(t testing.TB, endpoints ...string) *ovnport.NB {
	t.Helper()
	db := openNB(t, endpoints...)
	if err := db.WaitConnected(timeout(t)); err != nil {
		t.Fatal(err)
	}
	return ovnport.NewNB(db)
}

func openNB(t testing.TB, endpoints ...string) *ovndb.DB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: endpoints, Model: model, LeaderOnly: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// timeout bounds a test's waits. A mutation is waited for in vain, so not for long.
func timeout(t testing.TB) context.Context {
	limit := 2 * time.Minute
	if os.Getenv("OVN_MULTINET_MUTATION") != "" {
		limit = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// net4 and the like are the networks of most tests.
const (
	net4    = `"subnets":"10.1.0.0/24"`
	net6    = `"subnets":"fd01::/64"`
	netDual = `"subnets":"10.1.0.0/24,fd01::/64"`
	netMAC  = `"topology":"layer2"`
)

func parseNetwork(t testing.TB, name, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork("shop", name, []byte(`{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet",`+keys+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// network is a network whose logical switch is there.
func (w *world) network(t testing.TB, name, keys string) *netmodel.Network {
	t.Helper()
	n := parseNetwork(t, name, keys)
	w.Transact(t, insertNetwork(n)...)
	return n
}

// insertNetwork makes the network's logical switch, and accepts its NAD.
func insertNetwork(n *netmodel.Network) []ovndbtest.Op {
	ids := map[string]string{"ovn-multinet/network": n.ID()}
	if _, wire := n.PhysicalVLAN(); wire {
		ids[ovndb.BookKey] = n.AddressBook()
	}
	return []ovndbtest.Op{
		{"op": "insert", "table": "Logical_Switch", "uuid": ovndb.SwitchKey(n.ID()), "row": ovndbtest.Op{
			"name": n.ID(), "external_ids": ovndbtest.Map(ids)}},
		{"op": "insert", "table": "Copp", "uuid": ovndb.AcceptedKey(n.ID()), "row": ovndbtest.Op{
			"name": n.ID() + " accepted", "external_ids": inForce(n, n.NAD())}},
	}
}

// inForce is what is accepted when the network is as n has it, for ports of those NADs.
func inForce(n *netmodel.Network, nads ...string) any {
	ids := map[string]string{"ovn-multinet/network": n.ID(), "ovn-multinet/config": n.Canonical()}
	for _, nad := range nads {
		ids["ovn-multinet/nad:"+nad] = n.Revision()
	}
	return ovndbtest.Map(ids)
}

// accept changes what is accepted of a network that is there: the network is as n has it now, for ports of those NADs alone.
func (w *world) accept(t testing.TB, n *netmodel.Network, nads ...string) {
	t.Helper()
	w.Transact(t, ovndbtest.Op{"op": "update", "table": "Copp",
		"where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.AcceptedKey(n.ID()))}},
		"row":   ovndbtest.Op{"external_ids": inForce(n, nads...)}})
}

func owner(pod, sandbox string) ovnport.Owner {
	return ovnport.Owner{Namespace: "shop", Pod: pod, UID: "uid-of-" + pod, Sandbox: sandbox, Node: "node-1", Chassis: "chassis-1"}
}

// want writes a Want: the words are fixed addresses or MACs.
func want(n *netmodel.Network, ifName string, words ...string) ovnport.Request {
	w := ovnport.Request{Interface: ifName, Network: n}
	for _, word := range words {
		if hw, err := net.ParseMAC(word); err == nil && strings.Count(word, ":") == 5 && len(word) == 17 {
			w.MAC = hw
			continue
		}
		a := netip.MustParseAddr(word)
		bits := a.BitLen()
		if i := n.SubnetOf(a); i >= 0 {
			bits = n.Subnets[i].Bits()
		}
		w.IPs = append(w.IPs, netip.PrefixFrom(a, bits))
	}
	return w
}

func anyone(context.Context, ovnport.Owner) error { return nil }

// nobody fails the test when it is asked.
func nobody(t testing.TB) ovnport.Supersedes {
	return func(_ context.Context, older ovnport.Owner) error {
		t.Errorf("asked whether %+v is superseded", older)
		return nil
	}
}

func mustEnsure(t testing.TB, n *ovnport.NB, o ovnport.Owner, wants ...ovnport.Request) []ovnport.Port {
	t.Helper()
	ports, err := n.Ensure(timeout(t), o, wants, anyone)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

func mustRelease(t testing.TB, n *ovnport.NB, sandbox string, ports ...ovnport.Port) {
	t.Helper()
	if err := n.Release(timeout(t), on1(sandbox), held(ports)); err != nil {
		t.Fatal(err)
	}
}

// on1 is a sandbox of node-1, as far as a release needs to know it.
func on1(sandbox string) ovnport.Owner { return ovnport.Owner{Node: "node-1", Sandbox: sandbox} }

func held(ports []ovnport.Port) []ovnport.Keys {
	out := make([]ovnport.Keys, len(ports))
	for i, p := range ports {
		out[i] = ovnport.Keys{UUID: p.UUID, Claims: p.Claims, Switch: p.Switch}
	}
	return out
}

func wantCode(t testing.TB, err error, code uint, words ...string) {
	t.Helper()
	if !conf.HasCode(err, code) {
		t.Errorf("error %v, want one with code %d", err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}

// once has do called before the first transaction that fits is forwarded. The returned function fails the test if
// there was none.
func (w *world) once(t testing.TB, fits func(ovndbtest.Transact) bool, do func()) (happened func()) {
	var first sync.Once
	done := false
	w.proxy.Before(func(tx ovndbtest.Transact) {
		if fits(tx) {
			first.Do(func() {
				done = true
				do()
			})
		}
	})
	return func() {
		t.Helper()
		w.proxy.Before(nil)
		if !done {
			t.Error("the transaction that was to be interrupted did not come")
		}
	}
}

func hasOp(op, table string) func(ovndbtest.Transact) bool {
	return func(tx ovndbtest.Transact) bool {
		return slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool { return o["op"] == op && o["table"] == table })
	}
}

// wantCounts compares what the proxy saw since its last Reset.
func (w *world) wantCounts(t testing.TB, committed, refused, readOnly int) {
	t.Helper()
	got := w.proxy.Counts()
	if got.Committed != committed || got.Refused != refused || got.ReadOnly != readOnly {
		t.Errorf("transactions: %d committed, %d refused, %d read-only; want %d, %d, %d",
			got.Committed, got.Refused, got.ReadOnly, committed, refused, readOnly)
	}
}

// snapshot is the tables that ports are in, at one moment.
type snapshot struct {
	switches, ports, claims, lists, accepted map[string]map[string]any // by row key
}

func read(t testing.TB, s *ovndbtest.Server) *snapshot {
	t.Helper()
	tables := s.DumpTables(t, "Logical_Switch", "Logical_Switch_Port", "Copp")
	index := func(rows []map[string]any) map[string]map[string]any {
		out := map[string]map[string]any{}
		for _, row := range rows {
			delete(row, "_version")
			out[row["_uuid"].(string)] = row
		}
		return out
	}
	now := &snapshot{
		index(tables["Logical_Switch"]), index(tables["Logical_Switch_Port"]), index(tables["Copp"]),
		map[string]map[string]any{}, map[string]map[string]any{},
	}
	for key, row := range now.claims {
		switch {
		case ids(row)["ovn-multinet/kind"] == "port-list":
			now.lists[key] = row
			delete(now.claims, key)
		case ids(row)["ovn-multinet/config"] != "":
			now.accepted[key] = row
			delete(now.claims, key)
		}
	}
	return now
}

func (s *snapshot) String() string {
	return fmt.Sprintf("switches %v\nports %v\nclaims %v", s.switches, s.ports, s.claims)
}

func ids(row map[string]any) map[string]string { return row["external_ids"].(map[string]string) }

// violations are what must never be, whoever did what: it is read from the rows' own words, not from keys.
func (s *snapshot) violations() []string {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	parents := map[string]int{}
	for _, sw := range s.switches {
		heldBy := map[string]string{}
		for _, key := range ovndbtest.Strings(sw["ports"]) {
			parents[key]++
			port := s.ports[key]
			if n := ids(port)["ovn-multinet/network"]; n != "" && n != sw["name"] {
				say("port %v of network %s is linked to switch %v", port["name"], n, sw["name"])
			}
			for _, text := range ovndbtest.Strings(port["addresses"]) {
				for _, word := range strings.Fields(text) {
					if other := heldBy[word]; other != "" && word != "unknown" {
						say("%s and %v of %v have both %s", other, port["name"], sw["name"], word)
					}
					heldBy[word] = port["name"].(string)
				}
			}
		}
	}
	for key, port := range s.ports {
		if parents[key] != 1 {
			say("port %v is linked to %d switches", port["name"], parents[key])
		}
		for _, claim := range strings.Fields(ids(port)["ovn-multinet/claims"]) {
			if row := s.claims[claim]; row == nil || ids(row)["ovn-multinet/port"] != key {
				say("port %v lists claim %s, which is %v", port["name"], claim, row)
			}
		}
	}
	for key, claim := range s.claims {
		if port := s.ports[key]; port != nil {
			say("claim %v stands beside the lease of %v", claim["name"], port["name"])
		}
		port := s.ports[ids(claim)["ovn-multinet/port"]]
		if port == nil {
			say("claim %v names a port that is not there", claim["name"])
			continue
		}
		words := strings.Fields(claim["name"].(string))
		if !slices.Contains(strings.Fields(ids(port)["ovn-multinet/claims"]), key) ||
			!slices.Contains(strings.Fields(ovndbtest.Strings(port["addresses"])[0]), words[len(words)-1]) ||
			ids(claim)["ovn-multinet/port-name"] != port["name"] {
			say("claim %v names port %v, which does not have it", claim["name"], port["name"])
		}
	}
	unlisted, _ := s.listErrors()
	return append(bad, unlisted...)
}

// listErrors compares the port lists of nodes with the ports. unlisted must never be; outdated is left when a port is
// taken over from another node, or lost, until the node's agent looks.
func (s *snapshot) listErrors() (unlisted, outdated []string) {
	listed := map[string]bool{}
	for _, list := range s.lists {
		node := ids(list)["ovn-multinet/node"]
		for key, sandbox := range ids(list) {
			if strings.HasPrefix(key, "ovn-multinet/") {
				continue
			}
			port := s.ports[key]
			if port == nil || ids(port)["ovn-multinet/sandbox"] != sandbox || ids(port)["ovn-multinet/node"] != node {
				outdated = append(outdated, fmt.Sprintf("the list of %s has port %s of sandbox %s, which is %v", node, key, sandbox, port))
				continue
			}
			listed[key] = true
		}
	}
	for key, port := range s.ports {
		if ids(port)["ovn-multinet/sandbox"] != "" && ids(port)["ovn-multinet/node"] != "" && !listed[key] {
			unlisted = append(unlisted, fmt.Sprintf("no list has port %v", port["name"]))
		}
	}
	return unlisted, outdated
}

func (s *snapshot) check(t testing.TB) {
	t.Helper()
	for _, bad := range s.violations() {
		t.Error(bad)
	}
}

// checkLists also wants no port list to have anything that is not there.
func (s *snapshot) checkLists(t testing.TB) {
	t.Helper()
	s.check(t)
	_, outdated := s.listErrors()
	for _, bad := range outdated {
		t.Error(bad)
	}
}

// differs says in what the rows of a port differ from what its owner was told; "" when in nothing.
func (s *snapshot) differs(o ovnport.Owner, p ovnport.Port, security bool) string {
	row := s.ports[p.UUID]
	if row == nil {
		return fmt.Sprintf("port %s: no row %s", p.Name, p.UUID)
	}
	words := []string{p.MAC.String()}
	for _, a := range p.Addresses {
		words = append(words, a.Addr().String())
	}
	text := strings.Join(words, " ")
	addresses, guarded := []string{text}, []string{text}
	if strings.Contains(text, "::") {
		guarded[0] += " " + conf.LinkLocal(p.MAC).String()
	}
	for _, sw := range s.switches { // the sender of ARP probes
		if sw["name"] == p.Network && ids(sw)[ovndb.BookKey] != "" && strings.Contains(text, ".") {
			guarded[0] += " 0.0.0.0"
		}
	}
	if !security {
		addresses, guarded = append(addresses, "unknown"), nil
	}
	external := map[string]string{
		"ovn-multinet/namespace": o.Namespace, "ovn-multinet/pod": o.Pod, "ovn-multinet/pod-uid": o.UID,
		"ovn-multinet/interface": p.Interface, "ovn-multinet/network": p.Network, "ovn-multinet/node": o.Node,
		"ovn-multinet/sandbox": o.Sandbox,
	}
	if len(p.Claims) > 0 {
		external["ovn-multinet/claims"] = strings.Join(p.Claims, " ")
	}
	options := map[string]string{"requested-chassis": o.Chassis, "iface-id-ver": o.UID}
	var bad []string
	compare := func(what string, got, want any, same bool) {
		if !same {
			bad = append(bad, fmt.Sprintf("port %s: %s %v, want %v", p.Name, what, got, want))
		}
	}
	name := o.Namespace + "/" + o.Pod + "/" + p.Interface
	compare("name", row["name"], name, row["name"] == name && p.Name == name)
	got := ovndbtest.Strings(row["addresses"])
	slices.Sort(got)
	compare("addresses", got, addresses, slices.Equal(got, addresses))
	got = ovndbtest.Strings(row["port_security"])
	compare("port_security", got, guarded, slices.Equal(got, guarded))
	compare("external_ids", ids(row), external, maps.Equal(ids(row), external))
	opts := row["options"].(map[string]string)
	compare("options", opts, options, maps.Equal(opts, options))
	compare("type", row["type"], "", row["type"] == "")
	linked := ""
	for _, sw := range s.switches {
		if slices.Contains(ovndbtest.Strings(sw["ports"]), p.UUID) {
			linked += sw["name"].(string)
		}
	}
	compare("switch", linked, p.Network, linked == p.Network)
	return strings.Join(bad, "; ")
}

// wantPorts demands that the ports are there, as told, with no violation, and that no other port or claim is.
func (w *world) wantPorts(t testing.TB, o ovnport.Owner, ports []ovnport.Port, wants ...ovnport.Request) {
	t.Helper()
	s := read(t, w.Server)
	s.check(t)
	claims := 0
	for i, p := range ports {
		security := len(wants) == 0 || wants[i].Network.PortSecurity
		if bad := s.differs(o, p, security); bad != "" {
			t.Error(bad)
		}
		claims += len(p.Claims)
	}
	if len(s.ports) != len(ports) || len(s.claims) != claims {
		t.Errorf("%d ports and %d claims are there, want %d and %d:\n%v", len(s.ports), len(s.claims), len(ports), claims, s)
	}
}

// wantUnchanged demands that the rows are what they were.
func (w *world) wantUnchanged(t testing.TB, before *snapshot) {
	t.Helper()
	if after := read(t, w.Server); after.String() != before.String() {
		t.Errorf("rows changed from\n%v\nto\n%v", before, after)
	}
}

// waits fits a transaction that waits for something to happen.
func waits(tx ovndbtest.Transact) bool {
	return slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool {
		ms, ok := o["timeout"].(float64)
		return o["op"] == "wait" && ok && ms > 0
	})
}
