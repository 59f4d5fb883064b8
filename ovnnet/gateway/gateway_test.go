package gateway_test

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// Row keys of r1's gateway. A controller of the next version finds the rows by them.
func gwPort(part string) string { return ovndb.PartKey("gateway port "+part, "shop/r1") }

func gwEnd(part string) string { return ovndb.PartKey("gateway end "+part, "shop/r1") }

func gwRoute(kind string) string { return ovndb.PartKey("gateway route "+kind, "shop/r1") }

// fullGateway is all that gwFull on one node makes.
func fullGateway() map[string]map[string]nbtest.Fields {
	const ids = "ovn-multinet/router=shop/r1"
	end := func(part string) nbtest.Fields {
		options := "router-port=shop/r1:" + part
		if part == "external" {
			options = "nat-addresses=router " + options
		}
		return nbtest.Fields{"name": "shop/r1:" + part + ":switch", "type": "router", "addresses": "router", "options": options, "external_ids": ids}
	}
	route := func(to, via string) nbtest.Fields {
		return nbtest.Fields{"ip_prefix": to, "nexthop": via, "external_ids": ids}
	}
	claims := nbtest.BookClaims("physical:provider:42", "router shop/r1", "192.0.2.1", "192.0.2.10", "2001:db8::1", "2001:db8::10")
	return map[string]map[string]nbtest.Fields{
		"Logical_Router": {
			ovndb.RouterKey("shop/r1"): {"name": "shop/r1", "options": nbtest.RouterOptions, "external_ids": ids, "ports": gwPort("join"), "static_routes": nbtest.KeysInOrder(gwRoute("default4"), gwRoute("default6"))},
			nbtest.GwRouter: {"name": "shop/r1:gateway", "options": nbtest.RouterOptions, "external_ids": "ovn-multinet/claims=" + nbtest.KeysInOrder(slices.Collect(maps.Keys(claims))...) +
				" ovn-multinet/gateway-nodes=gw=yes " + ids,
				"ports": nbtest.KeysInOrder(gwPort("gateway"), gwPort("external")), "static_routes": nbtest.KeysInOrder(gwRoute("nexthop4"), gwRoute("nexthop6"))},
		},
		"Logical_Router_Port": {
			gwPort("join"):    {"name": "shop/r1:join", "mac": "0a:58:64:58:00:01", "networks": "100.88.0.1/24 fd88::1/64", "external_ids": ids},
			gwPort("gateway"): {"name": "shop/r1:gateway", "mac": "0a:58:64:58:00:02", "networks": "100.88.0.2/24 fd88::2/64", "external_ids": ids},
			gwPort("external"): {"name": "shop/r1:external", "mac": "0a:58:c0:00:02:0a", "networks": "192.0.2.10/24 2001:db8::10/64",
				"ha_chassis_group": nbtest.GwGroup, "external_ids": ids},
		},
		"Logical_Switch": {
			nbtest.GwSwitch("join"):     {"name": "shop/r1:join", "external_ids": ids, "ports": nbtest.KeysInOrder(gwEnd("join"), gwEnd("gateway"))},
			nbtest.GwSwitch("external"): {"name": "shop/r1:external", "external_ids": ids, "ports": nbtest.KeysInOrder(gwEnd("external"), gwEnd("provider"))},
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
		"HA_Chassis_Group": {nbtest.GwGroup: {"name": "shop/r1:gateway", "ha_chassis": nbtest.GwMember("c1"), "external_ids": ids}},
		"HA_Chassis":       {nbtest.GwMember("c1"): {"chassis_name": "c1", "priority": "16384", "external_ids": "ovn-multinet/node=n1 " + ids}},
	}
}

func TestGatewayIsMade(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	w.Proxy.Reset()
	if !nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode) {
		t.Error("changed is false")
	}
	w.WantCommitted(t, 1) // with the router
	w.WantRows(t, fullGateway())

	// Any number of times it changes nothing, whoever asks: the controller, or a network.
	before := w.Versions(t)
	for _, nodes := range [][]gateway.Chassis{nbtest.OneNode, nbtest.OneNode, nil} {
		if nbtest.EnsureGateway(t, n, nbtest.GwFull, nodes) {
			t.Error("changed is true")
		}
	}
	w.WantCommitted(t, 0)
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// What the configuration leaves out.
func TestGatewayWithDefaults(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, `"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10",`+nbtest.GwPhysical+","+nbtest.GwNodes, []gateway.Chassis{})
	rows := w.Rows(t)
	if got := rows["Logical_Switch_Port"][gwEnd("provider")]; got["tag"]+got["tag_request"] != "" {
		t.Errorf("the untagged port %v", got)
	}
	if got := rows["Logical_Router_Port"][gwPort("join")]["networks"]; got != "100.64.0.1/24" {
		t.Errorf("the router's address is %s", got)
	}
	if got := w.Routes(t, nbtest.GwRouter) + w.Routes(t, ovndb.RouterKey("shop/r1")); got != "0.0.0.0/0 via 100.64.0.2" {
		t.Errorf("routes %q, want the router's alone", got)
	}
	if got := rows["HA_Chassis_Group"][nbtest.GwGroup]; got["name"] != "shop/r1:gateway" || got["ha_chassis"] != "" {
		t.Errorf("without nodes the group is %v", got)
	}
}

// However a gateway became what it is, the rows are those of one that was never anything else, the networks' among them.
func TestGatewayChanges(t *testing.T) {
	w := nbtest.NewWorld(t)
	make := func(t *testing.T, keys string) {
		t.Helper()
		n := w.Routed(t, keys)
		nbtest.EnsureGateway(t, n, keys, nbtest.OneNode)
		nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	}
	for name, keys := range nbtest.GatewayChanges() {
		for _, way := range [][2]string{{nbtest.GwFull, keys}, {keys, nbtest.GwFull}} {
			t.Run(name, func(t *testing.T) {
				w.Clear(t)
				make(t, way[1])
				want := w.Rows(t)
				w.Clear(t)
				make(t, way[0])
				make(t, way[1])
				w.WantRows(t, want)
			})
		}
	}
}

// What others change or take away of a gateway is put right.
func TestGatewayIsMended(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	want := w.Rows(t)
	none := ovndbtest.Set[any]()
	tests := []struct {
		name, table, key string
		columns          ovndbtest.Op // nil: the row is deleted
	}{
		{"gateway, name", "Logical_Router", nbtest.GwRouter, ovndbtest.Op{"name": "x"}},
		{"gateway, options", "Logical_Router", nbtest.GwRouter, ovndbtest.Op{"options": ovndbtest.Map(map[string]string{"chassis": "c1"})}},
		{"gateway, ports", "Logical_Router", nbtest.GwRouter, ovndbtest.Op{"ports": none}},
		{"gateway, routes", "Logical_Router", nbtest.GwRouter, ovndbtest.Op{"static_routes": none}},
		{"gateway, its nodes", "Logical_Router", nbtest.GwRouter, ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/router": "shop/r1"})}},
		{"gateway", "Logical_Router", nbtest.GwRouter, nil},
		{"router, name", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"name": "x"}},
		{"router, ports", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"ports": none}},
		{"router, routes", "Logical_Router", ovndb.RouterKey("shop/r1"), ovndbtest.Op{"static_routes": none}},
		{"router", "Logical_Router", ovndb.RouterKey("shop/r1"), nil},
		{"join switch, name", "Logical_Switch", nbtest.GwSwitch("join"), ovndbtest.Op{"name": "x"}},
		{"join switch, ports", "Logical_Switch", nbtest.GwSwitch("join"), ovndbtest.Op{"ports": none}},
		{"join switch", "Logical_Switch", nbtest.GwSwitch("join"), nil},
		{"external switch, other_config", "Logical_Switch", nbtest.GwSwitch("external"), ovndbtest.Op{"other_config": ovndbtest.Map(map[string]string{"subnet": "192.0.2.0/24"})}},
		{"external switch, ports", "Logical_Switch", nbtest.GwSwitch("external"), ovndbtest.Op{"ports": none}},
		{"external switch", "Logical_Switch", nbtest.GwSwitch("external"), nil},
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
		{"group, name", "HA_Chassis_Group", nbtest.GwGroup, ovndbtest.Op{"name": "x"}},
		{"group, chassis", "HA_Chassis_Group", nbtest.GwGroup, ovndbtest.Op{"ha_chassis": none}},
		{"chassis, name", "HA_Chassis", nbtest.GwMember("c1"), ovndbtest.Op{"chassis_name": "x"}},
		{"chassis, node", "HA_Chassis", nbtest.GwMember("c1"), ovndbtest.Op{"external_ids": ovndbtest.Map(nil)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.columns == nil {
				w.Remove(t, tt.table, tt.key)
			} else {
				w.Change(t, tt.table, tt.key, tt.columns)
			}
			if reflect.DeepEqual(w.Rows(t), want) {
				t.Fatal("nothing was changed")
			}
			nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
			w.WantRows(t, want)
		})
	}
}

// A chassis that someone else put into the group goes.
func TestGatewayOfStrangers(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.OneNode)
	want := w.Rows(t)
	w.NBCtl("ha-chassis-group-add-chassis", "shop/r1:gateway", "theirs", "30000")
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.OneNode)
	w.WantRows(t, want)
}

// A gateway that is configured no more goes with all that networks have in it; they themselves stay as they are.
func TestGatewayIsDropped(t *testing.T) {
	w := nbtest.NewWorld(t)
	nets := []string{nbtest.NetDual, `"subnets":"10.2.0.0/24"`, `"topology":"layer3","subnets":"10.128.0.0/16/24"`}
	make := func(n *nbtest.Client) {
		for i, keys := range nets {
			nbtest.Ensure(t, n, nbtest.Network(t, []string{"blue", "red", "green"}[i], keys+nbtest.OnR1))
		}
	}
	make(w.Networks)
	want := w.Rows(t)
	w.Clear(t)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.TwoNodes)
	make(n)
	before := w.Versions(t)
	w.Proxy.Reset()
	if err := n.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
		t.Error(err)
	}
	w.WantCommitted(t, 0)
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("a gateway that is configured: rows %v became %v", before, after)
	}
	if err := w.Networks.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
		t.Error(err)
	}
	w.WantRows(t, want)
	w.Proxy.Reset()
	make(w.Networks)
	if err := w.Networks.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
		t.Error(err)
	}
	w.WantCommitted(t, 0)

	w.Clear(t) // without a network its router goes too
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.TwoNodes)
	if err := w.Networks.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
		t.Error(err)
	}
	w.WantRows(t, map[string]map[string]nbtest.Fields{})
}

// Controllers change leaders: for a moment there may be two.
func TestGatewayOfSeveralControllers(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue, red := nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1), nbtest.Network(t, "red", `"subnets":"10.2.0.0/24"`+nbtest.OnR1)
	n := w.Routed(t, nbtest.GwFull)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.TwoNodes)
	nbtest.Ensure(t, n, blue)
	nbtest.Ensure(t, n, red)
	want := w.Rows(t)
	w.Clear(t)
	var all sync.WaitGroup
	for i := range 4 {
		n := w.Routed(t, nbtest.GwFull)
		all.Go(func() {
			if i%2 == 0 {
				nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.TwoNodes)
			}
			nbtest.Ensure(t, n, blue)
			nbtest.Ensure(t, n, red)
			nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.TwoNodes)
		})
	}
	all.Wait()
	w.WantRows(t, want)
}

// What another controller does between the look and the write is not overwritten blindly.
func TestGatewayIsRaced(t *testing.T) {
	type step = func(t *testing.T, w *nbtest.World)
	router := func(t *testing.T, w *nbtest.World) {
		w.Put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", map[string]string{"ovn-multinet/router": "shop/r1"})
	}
	present := func(t *testing.T, w *nbtest.World) { nbtest.EnsureGateway(t, w.Networks, nbtest.Gw4, nbtest.OneNode) }
	tests := []struct {
		name, table string
		before, do  step
	}{
		{"another one was faster", "Logical_Switch", nil, func(t *testing.T, w *nbtest.World) {
			nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.OneNode)
		}},
		{"another one made another", "Logical_Switch", nil, func(t *testing.T, w *nbtest.World) { nbtest.EnsureGateway(t, w.Other(t), nbtest.Gw4, nbtest.TwoNodes) }},
		{"another one made the router", "Logical_Router", nil, router},
		{"the router went", "Logical_Router_Port", router, func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{"the gateway went", "Logical_Switch_Port", present, func(t *testing.T, w *nbtest.World) {
			if err := w.Other(t).Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
				t.Error(err)
			}
		}},
		{"a switch went", "Logical_Switch_Port", present, func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Switch", nbtest.GwSwitch("external")) }},
		{"a port went", "Logical_Router_Port", present, func(t *testing.T, w *nbtest.World) { w.DropPorts(t, "Logical_Router", nbtest.GwRouter) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			if tt.before != nil {
				tt.before(t, w)
			}
			w.Meanwhile(t, tt.table, func() { tt.do(t, w) })
			nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.OneNode)
			w.WantRows(t, fullGateway())
		})
	}
}

// Rows that are not ours are left alone, and the operator can read which.
func TestGatewayAmongForeignRows(t *testing.T) {
	t.Run("the router's key", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		w.Put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", nil)
		w.WantForeign(t, "router: logical router "+ovndb.RouterKey("shop/r1")+" is not ours")
	})
	const inTheWay = "a row that is not ours is in the way: "
	for _, part := range []string{"join", "gateway", "external"} {
		t.Run("the name of router port "+part, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			w.NBCtl("lr-add", "theirs", "--", "lrp-add", "theirs", "shop/r1:"+part, "02:00:00:00:00:01", "203.0.113.1/24")
			w.WantForeign(t, inTheWay, `"Logical_Router_Port"`, `("shop/r1:`+part+`")`)
		})
	}
	for _, name := range []string{"shop/r1:provider", "shop/r1:join:switch"} {
		t.Run("the name of switch port "+name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			w.NBCtl("ls-add", "theirs", "--", "lsp-add", "theirs", name)
			w.WantForeign(t, inTheWay, `"Logical_Switch_Port"`, `("`+name+`")`)
		})
	}
	t.Run("the group's name", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		w.NBCtl("ha-chassis-group-add", "shop/r1:gateway")
		w.WantForeign(t, inTheWay, `"HA_Chassis_Group"`, `("shop/r1:gateway")`)
	})
}
