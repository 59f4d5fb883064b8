package ovnnet_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// Parts of the configuration of r1's gateway, and one that has everything.
const (
	gwJoin     = `"joinSubnet":"100.88.0.0/24,fd88::/64"`
	gwExternal = `"externalSubnet":"192.0.2.0/24,2001:db8::/64","externalAddress":"192.0.2.10,2001:db8::10"`
	gwHops     = `"nextHop":"192.0.2.1,2001:db8::1"`
	gwPhysical = `"physicalNetworkName":"provider"`
	gwVLAN     = `"vlanID":42`
	gwNodes    = `"gatewayNodes":"gw=yes"`
	gwFull     = gwJoin + "," + gwExternal + "," + gwHops + "," + gwPhysical + "," + gwVLAN + "," + gwNodes
	gw4        = `"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10","nextHop":"192.0.2.1",` + gwPhysical + "," + gwNodes
)

// oneNode is a gateway's only node, twoNodes are two.
var (
	oneNode  = []ovnnet.Chassis{{Node: "n1", Name: "c1"}}
	twoNodes = []ovnnet.Chassis{{Node: "n1", Name: "c1"}, {Node: "n2", Name: "d1"}}
)

// Row keys of r1's gateway. A controller of the next version finds the rows by them.
func gwPort(part string) string   { return ovndb.PartKey("gateway port "+part, "shop/r1") }
func gwEnd(part string) string    { return ovndb.PartKey("gateway end "+part, "shop/r1") }
func gwSwitch(part string) string { return ovndb.PartKey("gateway switch "+part, "shop/r1") }
func gwRoute(kind string) string  { return ovndb.PartKey("gateway route "+kind, "shop/r1") }
func gwMember(chassis string) string {
	return ovndb.PartKey("ha-chassis "+chassis, "shop/r1")
}

var gwGroup, gwRouter = ovndb.PartKey("ha-chassis-group", "shop/r1"), ovndb.GatewayKey("shop/r1")

// ensureGateway brings r1's gateway in step and returns whether anything was written.
func ensureGateway(t *testing.T, n *ovnnet.Networks, keys string, nodes []ovnnet.Chassis) bool {
	t.Helper()
	changed, err := n.EnsureGateway(withLimit(t), gatewayConf(t, "shop/r1", keys), nodes)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func keysInOrder(keys ...string) string {
	list := make([]any, len(keys))
	for i, key := range keys {
		list[i] = key
	}
	return line(list)
}

// fullGateway is all that gwFull on one node makes.
func fullGateway() map[string]map[string]fields {
	const ids = "ovn-multinet/router=shop/r1"
	end := func(part string) fields {
		return fields{"name": "shop/r1:" + part + ":switch", "type": "router", "addresses": "router", "options": "router-port=shop/r1:" + part, "external_ids": ids}
	}
	route := func(to, via string) fields { return fields{"ip_prefix": to, "nexthop": via, "external_ids": ids} }
	claims := wireClaims("physical:provider:42", "router shop/r1", "192.0.2.1", "192.0.2.10", "2001:db8::1", "2001:db8::10")
	return map[string]map[string]fields{
		"Logical_Router": {
			ovndb.RouterKey("shop/r1"): {"name": "shop/r1", "external_ids": ids, "ports": gwPort("join"), "static_routes": keysInOrder(gwRoute("default4"), gwRoute("default6"))},
			gwRouter: {"name": "shop/r1:gateway", "external_ids": "ovn-multinet/claims=" + keysInOrder(slices.Collect(maps.Keys(claims))...) +
				" ovn-multinet/gateway-nodes=gw=yes " + ids,
				"ports": keysInOrder(gwPort("gateway"), gwPort("external")), "static_routes": keysInOrder(gwRoute("nexthop4"), gwRoute("nexthop6"))},
		},
		"Logical_Router_Port": {
			gwPort("join"):    {"name": "shop/r1:join", "mac": "0a:58:64:58:00:01", "networks": "100.88.0.1/24 fd88::1/64", "external_ids": ids},
			gwPort("gateway"): {"name": "shop/r1:gateway", "mac": "0a:58:64:58:00:02", "networks": "100.88.0.2/24 fd88::2/64", "external_ids": ids},
			gwPort("external"): {"name": "shop/r1:external", "mac": "0a:58:c0:00:02:0a", "networks": "192.0.2.10/24 2001:db8::10/64",
				"ha_chassis_group": gwGroup, "external_ids": ids},
		},
		"Logical_Switch": {
			gwSwitch("join"):     {"name": "shop/r1:join", "external_ids": ids, "ports": keysInOrder(gwEnd("join"), gwEnd("gateway"))},
			gwSwitch("external"): {"name": "shop/r1:external", "external_ids": ids, "ports": keysInOrder(gwEnd("external"), gwEnd("provider"))},
		},
		"Logical_Switch_Port": {
			gwEnd("join"): end("join"), gwEnd("gateway"): end("gateway"), gwEnd("external"): end("external"),
			gwEnd("provider"): {"name": "shop/r1:provider", "type": "localnet", "addresses": "unknown", "options": "network_name=provider",
				"tag": "42", "tag_request": "42", "external_ids": ids},
		},
		"Logical_Router_Static_Route": {
			gwRoute("default4"): route("0.0.0.0/0", "100.88.0.2"), gwRoute("default6"): route("::/0", "fd88::2"),
			gwRoute("nexthop4"): route("0.0.0.0/0", "192.0.2.1"), gwRoute("nexthop6"): route("::/0", "2001:db8::1"),
		},
		"Copp":             claims,
		"HA_Chassis_Group": {gwGroup: {"name": "shop/r1:gateway", "ha_chassis": gwMember("c1"), "external_ids": ids}},
		"HA_Chassis":       {gwMember("c1"): {"chassis_name": "c1", "priority": "16384", "external_ids": "ovn-multinet/node=n1 " + ids}},
	}
}

func TestGatewayIsMade(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	w.proxy.Reset()
	if !ensureGateway(t, n, gwFull, oneNode) {
		t.Error("changed is false")
	}
	w.wantCommitted(t, 2) // the router's own, and all the rest
	w.wantRows(t, fullGateway())

	// Any number of times it changes nothing, whoever asks: the controller, or a network.
	before := w.versions(t)
	for _, nodes := range [][]ovnnet.Chassis{oneNode, oneNode, nil} {
		if ensureGateway(t, n, gwFull, nodes) {
			t.Error("changed is true")
		}
	}
	w.wantCommitted(t, 0)
	if after := w.versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// What the configuration leaves out.
func TestGatewayWithDefaults(t *testing.T) {
	w := newWorld(t)
	ensureGateway(t, w.networks, `"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10",`+gwPhysical+","+gwNodes, []ovnnet.Chassis{})
	rows := w.rows(t)
	if got := rows["Logical_Switch_Port"][gwEnd("provider")]; got["tag"]+got["tag_request"] != "" {
		t.Errorf("the untagged port %v", got)
	}
	if got := rows["Logical_Router_Port"][gwPort("join")]["networks"]; got != "100.64.0.1/24" {
		t.Errorf("the router's address is %s", got)
	}
	if got := w.routes(t, gwRouter) + w.routes(t, ovndb.RouterKey("shop/r1")); got != "0.0.0.0/0 via 100.64.0.2" {
		t.Errorf("routes %q, want the router's alone", got)
	}
	if got := rows["HA_Chassis_Group"][gwGroup]; got["name"] != "shop/r1:gateway" || got["ha_chassis"] != "" {
		t.Errorf("without nodes the group is %v", got)
	}
}

// routes lists what a router has: "<destination> via <next hop>", sorted.
func (w *world) routes(t *testing.T, router string) string {
	t.Helper()
	var list []any
	rows := w.rows(t)
	for _, key := range strings.Fields(rows["Logical_Router"][router]["static_routes"]) {
		r := rows["Logical_Router_Static_Route"][key]
		list = append(list, r["ip_prefix"]+" via "+r["nexthop"])
	}
	return line(list)
}

// nats lists what a router hides: "<subnet> as <address>", sorted.
func (w *world) nats(t *testing.T, router string) string {
	t.Helper()
	var list []any
	rows := w.rows(t)
	for _, key := range strings.Fields(rows["Logical_Router"][router]["nat"]) {
		r := rows["NAT"][key]
		if r["type"] != "snat" {
			t.Errorf("NAT %v", r)
		}
		list = append(list, r["logical_ip"]+" as "+r["external_ip"])
	}
	return line(list)
}

// gatewayChanges are configurations that differ from gwFull in one key each.
func gatewayChanges() map[string]string {
	return map[string]string{
		"external addresses": gwJoin + `,"externalSubnet":"192.0.2.0/24,2001:db8::/64","externalAddress":"192.0.2.77,2001:db8::77",` + gwHops + "," + gwPhysical + "," + gwVLAN + "," + gwNodes,
		"external subnets": gwJoin + `,"externalSubnet":"198.51.100.0/25,2001:db8:9::/64","externalAddress":"198.51.100.10,2001:db8:9::10","nextHop":"198.51.100.1,2001:db8:9::1",` +
			gwPhysical + "," + gwVLAN + "," + gwNodes,
		"IPv4 alone":             gw4 + "," + gwVLAN,
		"IPv6 alone":             `"externalSubnet":"2001:db8::/64","externalAddress":"2001:db8::10",` + gwPhysical + "," + gwNodes,
		"another VLAN":           gwJoin + "," + gwExternal + "," + gwHops + "," + gwPhysical + `,"vlanID":43,` + gwNodes,
		"no VLAN":                gwJoin + "," + gwExternal + "," + gwHops + "," + gwPhysical + "," + gwNodes,
		"another next hop":       gwJoin + "," + gwExternal + `,"nextHop":"192.0.2.2,2001:db8::2",` + gwPhysical + "," + gwVLAN + "," + gwNodes,
		"a next hop less":        gwJoin + "," + gwExternal + `,"nextHop":"2001:db8::1",` + gwPhysical + "," + gwVLAN + "," + gwNodes,
		"join subnets":           `"joinSubnet":"100.99.0.0/28,fd99::/64",` + gwExternal + "," + gwHops + "," + gwPhysical + "," + gwVLAN + "," + gwNodes,
		"the provider's network": gwJoin + "," + gwExternal + "," + gwHops + `,"physicalNetworkName":"other",` + gwVLAN + "," + gwNodes,
		"the selector":           gwJoin + "," + gwExternal + "," + gwHops + "," + gwPhysical + "," + gwVLAN + `,"gatewayNodes":"!gw"`,
		"snat":                   gwFull + `,"snat":false`,
	}
}

// However a gateway became what it is, the rows are those of one that was never anything else, the networks' among them.
func TestGatewayChanges(t *testing.T) {
	w := newWorld(t)
	make := func(t *testing.T, keys string) {
		t.Helper()
		n := w.routed(t, keys)
		ensureGateway(t, n, keys, oneNode)
		ensure(t, n, network(t, "blue", netDual+onR1))
	}
	for name, keys := range gatewayChanges() {
		for _, way := range [][2]string{{gwFull, keys}, {keys, gwFull}} {
			t.Run(name, func(t *testing.T) {
				w.clear(t)
				make(t, way[1])
				want := w.rows(t)
				w.clear(t)
				make(t, way[0])
				make(t, way[1])
				w.wantRows(t, want)
			})
		}
	}
}

// What others change or take away of a gateway is put right.
func TestGatewayIsMended(t *testing.T) {
	w := newWorld(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, oneNode)
	want := w.rows(t)
	none := ovndbtest.Set[any]()
	tests := []struct {
		name, table, key string
		columns          ovndbtest.Op // nil: the row is deleted
	}{
		{"gateway, name", "Logical_Router", gwRouter, ovndbtest.Op{"name": "x"}},
		{"gateway, options", "Logical_Router", gwRouter, ovndbtest.Op{"options": ovndbtest.Map(map[string]string{"chassis": "c1"})}},
		{"gateway, ports", "Logical_Router", gwRouter, ovndbtest.Op{"ports": none}},
		{"gateway, routes", "Logical_Router", gwRouter, ovndbtest.Op{"static_routes": none}},
		{"gateway, its nodes", "Logical_Router", gwRouter, ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/router": "shop/r1"})}},
		{"gateway", "Logical_Router", gwRouter, nil},
		{"router, name", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"name": "x"}},
		{"router, ports", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"ports": none}},
		{"router, routes", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"static_routes": none}},
		{"router", "Logical_Router", ovndb.RouterKey("shop/r1"), nil},
		{"join switch, name", "Logical_Switch", gwSwitch("join"), ovndbtest.Op{"name": "x"}},
		{"join switch, ports", "Logical_Switch", gwSwitch("join"), ovndbtest.Op{"ports": none}},
		{"join switch", "Logical_Switch", gwSwitch("join"), nil},
		{"external switch, other_config", "Logical_Switch", gwSwitch("external"), ovndbtest.Op{"other_config": ovndbtest.Map(map[string]string{"subnet": "192.0.2.0/24"})}},
		{"external switch, ports", "Logical_Switch", gwSwitch("external"), ovndbtest.Op{"ports": none}},
		{"external switch", "Logical_Switch", gwSwitch("external"), nil},
		{"port, name", "Logical_Router_Port", gwPort("join"), ovndbtest.Op{"name": "x"}},
		{"port, MAC", "Logical_Router_Port", gwPort("gateway"), ovndbtest.Op{"mac": "02:00:00:00:00:01"}},
		{"port, networks", "Logical_Router_Port", gwPort("external"), ovndbtest.Op{"networks": "192.0.2.9/24"}},
		{"port, group", "Logical_Router_Port", gwPort("external"), ovndbtest.Op{"ha_chassis_group": none}},
		{"port, mark", "Logical_Router_Port", gwPort("external"), ovndbtest.Op{"external_ids": ovndbtest.Map(nil)}},
		{"end, options", "Logical_Switch_Port", gwEnd("join"), ovndbtest.Op{"options": ovndbtest.Map(nil)}},
		{"end, addresses", "Logical_Switch_Port", gwEnd("gateway"), ovndbtest.Op{"addresses": none}},
		{"end, type", "Logical_Switch_Port", gwEnd("external"), ovndbtest.Op{"type": ""}},
		{"provider's port, VLAN", "Logical_Switch_Port", gwEnd("provider"), ovndbtest.Op{"tag_request": none}},
		{"provider's port, tag", "Logical_Switch_Port", gwEnd("provider"), ovndbtest.Op{"tag": 7}},
		{"provider's port, network", "Logical_Switch_Port", gwEnd("provider"), ovndbtest.Op{"options": ovndbtest.Map(map[string]string{"network_name": "x"})}},
		{"route, next hop", "Logical_Router_Static_Route", gwRoute("default4"), ovndbtest.Op{"nexthop": "100.88.0.9"}},
		{"route, destination", "Logical_Router_Static_Route", gwRoute("nexthop6"), ovndbtest.Op{"ip_prefix": "2000::/3"}},
		{"group, name", "HA_Chassis_Group", gwGroup, ovndbtest.Op{"name": "x"}},
		{"group, chassis", "HA_Chassis_Group", gwGroup, ovndbtest.Op{"ha_chassis": none}},
		{"chassis, name", "HA_Chassis", gwMember("c1"), ovndbtest.Op{"chassis_name": "x"}},
		{"chassis, node", "HA_Chassis", gwMember("c1"), ovndbtest.Op{"external_ids": ovndbtest.Map(nil)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.columns == nil {
				w.remove(t, tt.table, tt.key)
			} else {
				w.change(t, tt.table, tt.key, tt.columns)
			}
			if reflect.DeepEqual(w.rows(t), want) {
				t.Fatal("nothing was changed")
			}
			ensureGateway(t, n, gwFull, oneNode)
			w.wantRows(t, want)
		})
	}
}

// A chassis that someone else put into the group goes.
func TestGatewayOfStrangers(t *testing.T) {
	w := newWorld(t)
	ensureGateway(t, w.networks, gwFull, oneNode)
	want := w.rows(t)
	w.NBCtl("ha-chassis-group-add-chassis", "shop/r1:gateway", "theirs", "30000")
	ensureGateway(t, w.networks, gwFull, oneNode)
	w.wantRows(t, want)
}

// A gateway that is configured no more goes with all that networks have in it; they themselves stay as they are.
func TestGatewayIsDropped(t *testing.T) {
	w := newWorld(t)
	nets := []string{netDual, `"subnets":"10.2.0.0/24"`, `"topology":"layer3","subnets":"10.128.0.0/16/24"`}
	make := func(n *ovnnet.Networks) {
		for i, keys := range nets {
			ensure(t, n, network(t, []string{"blue", "red", "green"}[i], keys+onR1))
		}
	}
	make(w.networks)
	want := w.rows(t)
	w.clear(t)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, twoNodes)
	make(n)
	before := w.versions(t)
	w.proxy.Reset()
	if err := n.DropGateways(withLimit(t)); err != nil {
		t.Error(err)
	}
	w.wantCommitted(t, 0)
	if after := w.versions(t); !maps.Equal(before, after) {
		t.Errorf("a gateway that is configured: rows %v became %v", before, after)
	}
	if err := w.networks.DropGateways(withLimit(t)); err != nil {
		t.Error(err)
	}
	w.wantRows(t, want)
	w.proxy.Reset()
	make(w.networks)
	if err := w.networks.DropGateways(withLimit(t)); err != nil {
		t.Error(err)
	}
	w.wantCommitted(t, 0)

	w.clear(t) // without a network its router goes too
	ensureGateway(t, n, gwFull, twoNodes)
	if err := w.networks.DropGateways(withLimit(t)); err != nil {
		t.Error(err)
	}
	w.wantRows(t, map[string]map[string]fields{})
}

// Controllers change leaders: for a moment there may be two.
func TestGatewayOfSeveralControllers(t *testing.T) {
	w := newWorld(t)
	blue, red := network(t, "blue", netDual+onR1), network(t, "red", `"subnets":"10.2.0.0/24"`+onR1)
	n := w.routed(t, gwFull)
	ensureGateway(t, n, gwFull, twoNodes)
	ensure(t, n, blue)
	ensure(t, n, red)
	want := w.rows(t)
	w.clear(t)
	var all sync.WaitGroup
	for i := range 4 {
		n := w.routed(t, gwFull)
		all.Go(func() {
			if i%2 == 0 {
				ensureGateway(t, n, gwFull, twoNodes)
			}
			ensure(t, n, blue)
			ensure(t, n, red)
			ensureGateway(t, n, gwFull, twoNodes)
		})
	}
	all.Wait()
	w.wantRows(t, want)
}

// What another controller does between the look and the write is not overwritten blindly.
func TestGatewayIsRaced(t *testing.T) {
	tests := []struct {
		name, table string
		there       bool
		do          func(t *testing.T, w *world)
	}{
		{"another one was faster", "Logical_Switch", false, func(t *testing.T, w *world) { ensureGateway(t, w.other(t), gwFull, oneNode) }},
		{"another one made another", "Logical_Switch", false, func(t *testing.T, w *world) { ensureGateway(t, w.other(t), gw4, twoNodes) }},
		{"another one made the router", "Logical_Router", false, func(t *testing.T, w *world) {
			w.put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", map[string]string{"ovn-multinet/router": "shop/r1"})
		}},
		{"the router went", "Logical_Router_Port", false, func(t *testing.T, w *world) { w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{"the gateway went", "Logical_Switch_Port", true, func(t *testing.T, w *world) {
			if err := w.other(t).DropGateways(withLimit(t)); err != nil {
				t.Error(err)
			}
		}},
		{"a switch went", "Logical_Switch_Port", true, func(t *testing.T, w *world) { w.remove(t, "Logical_Switch", gwSwitch("external")) }},
		{"a port went", "Logical_Router_Port", true, func(t *testing.T, w *world) { w.dropPorts(t, "Logical_Router", gwRouter) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.there {
				ensureGateway(t, w.networks, gw4, oneNode)
			}
			w.meanwhile(t, tt.table, func() { tt.do(t, w) })
			ensureGateway(t, w.networks, gwFull, oneNode)
			w.wantRows(t, fullGateway())
		})
	}
}

// wantForeign has EnsureGateway refuse for a reason that has those words, and change nothing but for the router's own row.
func (w *world) wantForeign(t *testing.T, words ...string) {
	t.Helper()
	before := w.versions(t)
	changed, err := w.networks.EnsureGateway(withLimit(t), gatewayConf(t, "shop/r1", gwFull), oneNode)
	refused, ok := errors.AsType[*ovnnet.Refused](err)
	for _, word := range words {
		if !ok || changed || !strings.Contains(refused.Reason, word) {
			t.Errorf("changed %t, error %v; want it refused with %q", changed, err, word)
		}
	}
	after := w.versions(t)
	delete(after, "Logical_Router "+ovndb.RouterKey("shop/r1"))
	delete(before, "Logical_Router "+ovndb.RouterKey("shop/r1"))
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// Rows that are not ours are left alone, and the operator can read which.
func TestGatewayAmongForeignRows(t *testing.T) {
	t.Run("the router's key", func(t *testing.T) {
		w := newWorld(t)
		w.put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", nil)
		w.wantForeign(t, "router: logical router "+ovndb.RouterKey("shop/r1")+" is not ours")
	})
	const inTheWay = "a row that is not ours is in the way: "
	for _, part := range []string{"join", "gateway", "external"} {
		t.Run("the name of router port "+part, func(t *testing.T) {
			w := newWorld(t)
			w.NBCtl("lr-add", "theirs", "--", "lrp-add", "theirs", "shop/r1:"+part, "02:00:00:00:00:01", "203.0.113.1/24")
			w.wantForeign(t, inTheWay, `"Logical_Router_Port"`, `("shop/r1:`+part+`")`)
		})
	}
	for _, name := range []string{"shop/r1:provider", "shop/r1:join:switch"} {
		t.Run("the name of switch port "+name, func(t *testing.T) {
			w := newWorld(t)
			w.NBCtl("ls-add", "theirs", "--", "lsp-add", "theirs", name)
			w.wantForeign(t, inTheWay, `"Logical_Switch_Port"`, `("`+name+`")`)
		})
	}
	t.Run("the group's name", func(t *testing.T) {
		w := newWorld(t)
		w.NBCtl("ha-chassis-group-add", "shop/r1:gateway")
		w.wantForeign(t, inTheWay, `"HA_Chassis_Group"`, `("shop/r1:gateway")`)
	})
}
