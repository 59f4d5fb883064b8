package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const packaged = "/usr/share/ovn/ovn-nb.ovsschema"

// world is a Northbound database with the roles: the controller is on its socket, agents by TLS and with the role.
type world struct {
	*ovndbtest.Server
	t          *testing.T
	ctx        context.Context
	ca         *ovndbtest.Authority
	target     string // of the agents' listener
	endpoint   string
	controller *ovndb.DB
	network    *netmodel.Network
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	ovndbtest.NeedFile(t, packaged)
	w := &world{t: t, ctx: ctx, ca: ovndbtest.NewAuthority(t)}
	dir := t.TempDir()
	server := w.certificate("nb", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	text, err := os.ReadFile(packaged)
	w.must(err)
	var schema bytes.Buffer
	w.must(run([]string{"schema"}, bytes.NewReader(text), &schema))
	w.must(os.WriteFile(filepath.Join(dir, "schema"), schema.Bytes(), 0o600))
	w.Server, w.target, w.endpoint = ovndbtest.StartNBConnections(t, server, filepath.Join(dir, "schema"))
	w.Transact(t, w.printed(w.target)...)
	w.controller = w.open(ovndb.Config{Endpoints: []string{w.Endpoint()}})
	w.network, err = netmodel.ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/16,fd01::/64"}`))
	w.must(err)
	_, err = nbtest.NewClient(w.controller, nil).Ensure(ctx, w.network, []string{w.network.NAD()})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// printed is the transaction that an operator gives to ovsdb-client.
func (w *world) printed(target string) []ovndbtest.Op {
	w.t.Helper()
	var out bytes.Buffer
	w.must(run([]string{"transact", target}, nil, &out))
	var params []any
	w.must(json.Unmarshal(out.Bytes(), &params))
	if params[0] != "OVN_Northbound" {
		w.t.Fatalf("the transaction is one of %v", params[0])
	}
	var ops []ovndbtest.Op
	for _, op := range params[1:] {
		ops = append(ops, op.(ovndbtest.Op))
	}
	return ops
}

func (w *world) certificate(name string, change func(*x509.Certificate)) (dir string) {
	w.t.Helper()
	dir = w.t.TempDir()
	w.ca.Sign(dir, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: name} }, change)
	return dir
}

func (w *world) open(c ovndb.Config) *ovndb.DB {
	w.t.Helper()
	model, err := nb.FullDatabaseModel()
	w.must(err)
	c.Name, c.Model, c.Log = "NB", model, slog.New(slog.DiscardHandler)
	db, err := ovndb.Open(c)
	w.must(err)
	w.t.Cleanup(db.Close)
	w.must(db.WaitConnected(w.ctx))
	return db
}

// agent connects as a node's agent: the role's rows are those that name the certificate's common name.
func (w *world) agent(node string) *ovndb.DB {
	w.t.Helper()
	return w.client(node, w.endpoint)
}

func (w *world) client(name, endpoint string) *ovndb.DB {
	w.t.Helper()
	dir := w.certificate(name, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	cfg, err := ovndb.TLS(ovndb.TLSConfig{
		Certificate: filepath.Join(dir, "cert.pem"), PrivateKey: filepath.Join(dir, "key.pem"), CACert: filepath.Join(dir, "ca.pem"),
		ServerNames: []string{"127.0.0.1"}, Log: slog.New(slog.DiscardHandler),
	})
	w.must(err)
	return w.open(ovndb.Config{Endpoints: []string{endpoint}, TLS: cfg, LeaderOnly: true})
}

func owner(node, pod, sandbox string) ovnport.Owner {
	return ovnport.Owner{Namespace: "shop", Pod: pod, UID: pod, Sandbox: sandbox, Node: node, Chassis: "chassis-" + node}
}

func (w *world) add(db *ovndb.DB, o ovnport.Owner) ovnport.Port {
	w.t.Helper()
	ports, err := ovnport.NewNB(db).Ensure(w.ctx, o, []ovnport.Request{{Interface: "net1", Network: w.network}},
		func(context.Context, ovnport.Owner) error { return nil })
	w.must(err)
	return ports[0]
}

// stand makes what the attacks are after, and two nodes' agents.
func (w *world) stand() (a, b *ovndb.DB, own, victim ovnport.Port) {
	w.t.Helper()
	a, b = w.agent("node-a"), w.agent("node-b")
	own, victim = w.add(a, owner("node-a", "own", "s1")), w.add(b, owner("node-b", "victim", "s2"))
	w.must(nbtest.NewClient(a, nil).Node.Announce(w.ctx, gateway.Announcement{Node: "node-a", Chassis: "chassis-a"}))
	w.must(nbtest.NewClient(b, nil).Node.Announce(w.ctx, gateway.Announcement{Node: "node-b", Chassis: "chassis-b"}))
	routers, err := netmodel.ParseRouters([]byte(`{"routers":{"/core":{"namespaces":{"shop":{"subnets":"0.0.0.0/0"}},"gatewayNodes":"g=","physicalNetworkName":"provider",
		"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10","nextHop":"192.0.2.1"}}}`))
	w.must(err)
	_, err = nbtest.NewClient(w.controller, routers).Gateways.Ensure(w.ctx, routers["/core"], []gateway.Chassis{
		{Node: "node-a", Name: "chassis-a"}, {Node: "node-b", Name: "chassis-b"}})
	w.must(err)
	w.NBCtl("ls-add", "operators", "--", "acl-add", "operators", "to-lport", "1", "ip", "drop", "--", "pg-add", "group",
		"--", "lb-add", "lb", "192.0.2.9:80", "10.1.0.9:80")
	return a, b, own, victim
}

// TestBoundaryNodeRole: with a node's certificate, 1,000 transactions that are not for that node are all refused and
// change nothing, while the node's pods get and lose their ports.
func TestBoundaryNodeRole(t *testing.T) {
	w := newWorld(t)
	a, b, own, victim := w.stand()
	attacks := w.attacks(own, victim)
	before := w.all()
	seed := time.Now().UnixNano()
	random := mathrand.New(mathrand.NewPCG(uint64(seed), 1))
	const tries = 1000
	accepted, counts := 0, map[string]int{}
	for range tries {
		name := attacks.names[random.IntN(len(attacks.names))]
		ops := attacks.ops[name](random)
		_, err := a.Transact(w.ctx, ops)
		var refused *ovndb.Refused
		if !errors.As(err, &refused) || refused.Reason != "permission error" {
			accepted++
			t.Errorf("seed %d: %s: %v", seed, name, err)
			break
		}
		counts[name]++
	}
	if after := w.all(); !reflect.DeepEqual(after, before) {
		t.Errorf("the database has changed:\n%v\nbefore:\n%v", after, before)
	}
	for _, name := range attacks.names {
		if counts[name] == 0 && accepted == 0 {
			t.Errorf("%s: not tried in %d", name, tries)
		}
	}
	t.Attr("boundary.nb-transactions-refused", fmt.Sprint(tries-accepted))
	w.works(a, b, own, victim)
}

type attacks struct {
	names []string
	ops   map[string]func(*mathrand.Rand) []ovsdb.Operation
}

// all reads every table that an attack could change.
func (w *world) all() map[string][]map[string]any {
	w.t.Helper()
	rows := w.DumpTables(w.t, "NB_Global", "Copp", "Logical_Switch", "Logical_Switch_Port", "Address_Set", "Port_Group", "Load_Balancer", "ACL",
		"Logical_Router", "Logical_Router_Port", "Logical_Router_Static_Route", "NAT", "Connection", "SSL", "HA_Chassis", "HA_Chassis_Group",
		"Static_MAC_Binding", "RBAC_Role", "RBAC_Permission")
	for _, table := range rows {
		for _, row := range table {
			if _, connection := row["inactivity_probe"]; connection { // the server itself writes these columns
				delete(row, "status")
				delete(row, "is_connected")
				delete(row, "_version")
			}
		}
		slices.SortFunc(table, func(a, b map[string]any) int { return strings.Compare(fmt.Sprint(a["_uuid"]), fmt.Sprint(b["_uuid"])) })
	}
	return rows
}

func insert(table string, row ovsdb.Row) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationInsert, Table: table, Row: row}
}

// every changes or deletes all rows of a table.
func every(op, table string, row ovsdb.Row) ovsdb.Operation {
	no := ovsdb.UUID{GoUUID: "00000000-0000-4000-8000-000000000000"} // libovsdb omits a condition that is empty
	return ovsdb.Operation{Op: op, Table: table, Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionNotEqual, no)}, Row: row}
}

func of(node string, more ...string) ovsdb.OvsMap {
	ids := map[string]string{"ovn-multinet/node": node, "ovn-multinet/sandbox": "s"}
	for i := 0; i < len(more); i += 2 {
		ids[more[i]] = more[i+1]
	}
	return ovndb.Map(ids)
}

func (w *world) attacks(own, victim ovnport.Port) attacks {
	const lsp, ls, copp = nb.LogicalSwitchPortTable, nb.LogicalSwitchTable, nb.CoppTable
	port, sw := victim.UUID, ovndb.SwitchKey(w.network.SwitchName())
	allowed := ovndb.Update(lsp, own.UUID, ovsdb.Row{"external_ids": of("node-a", "forged", "yes")})
	one := func(op ovsdb.Operation) func(*mathrand.Rand) []ovsdb.Operation {
		return func(r *mathrand.Rand) []ovsdb.Operation {
			return [][]ovsdb.Operation{{op}, {allowed, op}, {op, allowed}}[r.IntN(3)]
		}
	}
	ops := map[string]func(*mathrand.Rand) []ovsdb.Operation{
		"delete another node's port":        one(ovndb.Delete(lsp, port)),
		"delete all ports":                  one(every("delete", lsp, nil)),
		"change another node's addresses":   one(ovndb.Update(lsp, port, ovsdb.Row{"addresses": ovndb.Set([]string{"unknown"})})),
		"lift another node's port security": one(ovndb.Update(lsp, port, ovsdb.Row{"port_security": ovndb.Set([]string{})})),
		"bind another node's port here":     one(ovndb.Update(lsp, port, ovsdb.Row{"options": ovndb.Map(map[string]string{"requested-chassis": "chassis-a"})})),
		"take another node's port":          one(ovndb.Update(lsp, port, ovsdb.Row{"external_ids": of("node-a")})),
		"rename another node's port":        one(ovndb.Update(lsp, port, ovsdb.Row{"name": "x"})),
		"make its own port a router's":      one(ovndb.Update(lsp, own.UUID, ovsdb.Row{"type": "router"})),
		"insert a port for another node":    one(insert(lsp, ovsdb.Row{"name": "x", "external_ids": of("node-b")})),
		"insert a port for no node":         one(insert(lsp, ovsdb.Row{"name": "x"})),
		"delete another node's claim":       one(ovndb.Delete(copp, victim.Claims[0])),
		"insert a claim for another node":   one(insert(copp, ovsdb.Row{"name": "x", "external_ids": of("node-b")})),
		"say another node's chassis":        one(ovndb.Update(copp, ovndb.NodeKey("node-b"), ovsdb.Row{"external_ids": of("node-b", "ovn-multinet/chassis", "chassis-a")})),
		"delete a switch":                   one(ovndb.Delete(ls, sw)),
		"make a switch":                     one(insert(ls, ovsdb.Row{"name": "x", "external_ids": of("node-a")})),
		"accept a network":                  one(ovndb.Update(ls, sw, ovsdb.Row{"external_ids": of("node-a")})),
		"take a switch's ACLs":              one(every("update", ls, ovsdb.Row{"acls": ovndb.Set([]string{})})),
		"insert an ACL":                     one(insert("ACL", ovsdb.Row{"priority": 1, "direction": "to-lport", "match": "1", "action": "allow"})),
		"change an ACL":                     one(every("update", "ACL", ovsdb.Row{"action": "allow"})),
		"insert a NAT":                      one(insert(nb.NATTable, ovsdb.Row{"type": "snat", "logical_ip": "10.1.0.0/16", "external_ip": "192.0.2.1"})),
		"delete routers":                    one(every("delete", nb.LogicalRouterTable, nil)),
		"make a router":                     one(insert(nb.LogicalRouterTable, ovsdb.Row{"name": "x"})),
		"insert a route":                    one(insert(nb.LogicalRouterStaticRouteTable, ovsdb.Row{"ip_prefix": "0.0.0.0/0", "nexthop": "10.1.0.9"})),
		"change the gateway's nodes":        one(every("update", nb.HAChassisTable, ovsdb.Row{"priority": 1})),
		"take a gateway's chassis":          one(every("delete", nb.HAChassisTable, nil)),
		"change a port group":               one(every("update", "Port_Group", ovsdb.Row{"ports": ovndb.Set([]string{})})),
		"change a load balancer":            one(every("update", "Load_Balancer", ovsdb.Row{"vips": ovndb.Map(map[string]string{})})),
		"bind a MAC":                        one(insert("Static_MAC_Binding", ovsdb.Row{"logical_port": "x", "ip": "10.1.0.9", "mac": "02:00:00:00:00:01"})),
		"give itself no role":               one(every("update", "Connection", ovsdb.Row{"role": ""})),
		"open another listener":             one(insert("Connection", ovsdb.Row{"target": "ptcp:1"})),
		"delete the roles":                  one(every("delete", "RBAC_Role", nil)),
		"widen the permissions":             one(every("update", "RBAC_Permission", ovsdb.Row{"authorization": ""})),
		"change the whole":                  one(every("update", "NB_Global", ovsdb.Row{"options": ovndb.Map(map[string]string{"a": "b"})})),
	}
	return attacks{slices.Sorted(maps.Keys(ops)), ops}
}

// works: what an agent writes for its own node's pods passes.
func (w *world) works(a, b *ovndb.DB, own, victim ovnport.Port) {
	w.t.Helper()
	// A newer sandbox of a pod takes its port over, and ends with it.
	if taken := w.add(a, owner("node-a", "own", "s3")); taken.UUID != own.UUID {
		w.t.Errorf("the newer sandbox has port %s, want %s", taken.UUID, own.UUID)
	}
	port := ovnport.NewNB(a)
	w.must(port.Release(w.ctx, owner("node-a", "own", "s3"), []ovnport.Keys{{UUID: own.UUID, Claims: own.Claims}}))
	for i := range 20 {
		sandbox := fmt.Sprint("round-", i)
		p := w.add(a, owner("node-a", "web-"+fmt.Sprint(i), sandbox))
		if len(p.Claims) == 0 {
			w.t.Fatal("the port has no claim: the claims' role was not tried")
		}
		w.must(port.Release(w.ctx, owner("node-a", "web", sandbox), []ovnport.Keys{{UUID: p.UUID, Claims: p.Claims}}))
	}
	w.must(nbtest.NewClient(a, nil).Node.Announce(w.ctx, gateway.Announcement{Node: "node-a", Chassis: "chassis-new"}))
	moved := 0
	for chassis, db := range map[string]*ovndb.DB{"chassis-a": a, "chassis-b": b} {
		turns, err := nbtest.NewClient(db, nil).Node.FailoversOf(w.ctx, chassis)
		w.must(err)
		if len(turns) != 1 {
			w.t.Fatalf("%s has the turns %+v, want one: of the router's gateway", chassis, turns)
		}
		made, err := nbtest.NewClient(db, nil).Node.MakeFirst(w.ctx, &turns[0], chassis)
		w.must(err)
		if made {
			moved++
		}
	}
	if moved == 0 {
		w.t.Error("no node could make itself the first of the gateway")
	}
	w.must(ovnport.NewNB(b).Release(w.ctx, owner("node-b", "", "s2"), []ovnport.Keys{{UUID: victim.UUID, Claims: victim.Claims}}))
	rows := w.DumpTables(w.t, "Logical_Switch_Port", "Copp")
	for _, row := range append(rows["Logical_Switch_Port"], rows["Copp"]...) {
		ids := row["external_ids"].(map[string]string)
		if ids["ovn-multinet/sandbox"] != "" || ids["ovn-multinet/port"] != "" && ids["ovn-multinet/node"] != "" {
			w.t.Errorf("left: %v", row)
		}
	}
}

// TestBoundaryNodeRoleLeavesOpen holds docs/operations.md to what it says of roles: what ovsdb-server's cannot express is
// accepted. When one of these is refused, the page promises too little.
func TestBoundaryNodeRoleLeavesOpen(t *testing.T) {
	w := newWorld(t)
	a, _, own, victim := w.stand()
	sw := ovndb.SwitchKey(w.network.SwitchName())
	const lsp = nb.LogicalSwitchPortTable
	open := []struct {
		what string
		ops  []ovsdb.Operation
	}{
		{"insert a port of any type that names its node", []ovsdb.Operation{
			{Op: "insert", Table: lsp, UUID: ovndb.PartKey("x", "y"), Row: ovsdb.Row{"name": "x", "type": "localnet", "external_ids": of("node-a"),
				"options": ovndb.Map(map[string]string{"network_name": "provider"})}},
			ovndb.Link(nb.LogicalSwitchTable, sw, "ports", ovndb.PartKey("x", "y"))}},
		{"lift its own port's security", []ovsdb.Operation{ovndb.Update(lsp, own.UUID, ovsdb.Row{"port_security": ovndb.Set([]string{})})}},
		{"give its own port to another node", []ovsdb.Operation{ovndb.Update(lsp, own.UUID, ovsdb.Row{"external_ids": of("node-b")})}},
		{"unlink another node's port, which deletes it", []ovsdb.Operation{ovndb.Unlink(nb.LogicalSwitchTable, "ports", victim.UUID)}},
	}
	w.doesNotWork(a)
	for _, o := range open {
		if _, err := a.Transact(w.ctx, o.ops); err != nil {
			t.Errorf("%s: %v; docs/operations.md says that this is open", o.what, err)
		}
	}
	t.Attr("boundary.nb-role-leaves-open", fmt.Sprint(len(open)))
}

// doesNotWork: what agents do without roles, and not with them.
func (w *world) doesNotWork(a *ovndb.DB) {
	w.t.Helper()
	wide, err := netmodel.ParseNetwork("shop", "wide", []byte(`{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/22/24"}`))
	w.must(err)
	_, err = nbtest.NewClient(w.controller, nil).Ensure(w.ctx, wide, []string{wide.NAD()})
	w.must(err)
	_, err = nbtest.NewClient(a, nil).Subnets.Ensure(w.ctx, wide, "node-a")
	w.permissionError("a node's first pod on a layer3 network", err)
	_, err = ovnport.NewNB(a).Ensure(w.ctx, owner("node-a", "victim", "s9"), []ovnport.Request{{Interface: "net1", Network: w.network}},
		func(context.Context, ovnport.Owner) error { return nil })
	w.permissionError("taking a port over from another node", err)
}

func (w *world) permissionError(what string, err error) {
	w.t.Helper()
	if err == nil || !strings.Contains(err.Error(), "permission error") {
		w.t.Errorf("%s: %v; docs/operations.md says that it fails with a permission error", what, err)
	}
}

// TestBoundaryListeners follows docs/operations.md: ovn-nbctl makes the controllers' listener and deletes that of the
// agents, and the transaction makes the agents' one anew. The role belongs to the listener, whoever the client is.
func TestBoundaryListeners(t *testing.T) {
	w := newWorld(t)
	other := strings.Replace(w.target, ":127.0.0.1", ":127.0.0.2", 1)
	w.NBCtl("set-connection", other)
	w.Transact(t, w.printed(w.target)...)
	var targets []string
	for _, row := range w.DumpTables(t, "Connection")["Connection"] {
		targets = append(targets, fmt.Sprintf("%v role=%v", row["target"], row["role"]))
	}
	slices.Sort(targets)
	want := []string{w.target + " role=" + Role, other + " role="}
	if slices.Sort(want); !slices.Equal(targets, want) {
		t.Errorf("listeners %q, want %q", targets, want)
	}
	network := insert(nb.LogicalSwitchTable, ovsdb.Row{"name": "x"})
	_, err := w.client("controller", w.endpoint).Transact(w.ctx, []ovsdb.Operation{network})
	w.permissionError("a network by the agents' listener", err)
	without := strings.Replace(w.endpoint, "127.0.0.1", "127.0.0.2", 1)
	_, err = w.client("controller", without).Transact(w.ctx, []ovsdb.Operation{network})
	w.must(err)
}

func TestRunRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		in   string
		want string
	}{
		"nothing":           {nil, "", "usage: nbroles schema < SCHEMA"},
		"no target":         {[]string{"transact"}, "", "usage: nbroles schema < SCHEMA"},
		"no JSON":           {[]string{"schema"}, "x", "standard input is not a schema: "},
		"another database":  {[]string{"schema"}, `{"name":"OVN_Southbound","tables":{"Connection":{"columns":{}}}}`, "the schema is not that of OVN_Northbound"},
		"without a listing": {[]string{"schema"}, `{"name":"OVN_Northbound","tables":{}}`, "the schema is not that of OVN_Northbound"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(tt.args, strings.NewReader(tt.in), &out)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || out.Len() > 0 {
				t.Errorf("got %v and %q, want %q", err, out.String(), tt.want)
			}
		})
	}
}
