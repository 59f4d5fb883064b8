package nbtest

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Pieces of the configuration of r1's gateway. GwFull has all of them.
const (
	gwJoin     = `"joinSubnet":"100.88.0.0/24,fd88::/64"`
	gwExternal = `"externalSubnet":"192.0.2.0/24,2001:db8::/64","externalAddress":"192.0.2.10,2001:db8::10"`
	gwHops     = `"nextHop":"192.0.2.1,2001:db8::1"`
	GwPhysical = `"physicalNetworkName":"provider"`
	gwVLAN     = `"vlanID":42`
	GwNodes    = `"gatewayNodes":"gw=yes"`
	GwFull     = gwJoin + "," + gwExternal + "," + gwHops + "," + GwPhysical + "," + gwVLAN + "," + GwNodes
	Gw4        = `"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10","nextHop":"192.0.2.1",` +
		GwPhysical + "," + GwNodes
)

// OneNode and TwoNodes are the nodes of gateways.
var (
	OneNode  = []gateway.Chassis{{Node: "n1", Name: "c1"}}
	TwoNodes = []gateway.Chassis{{Node: "n1", Name: "c1"}, {Node: "n2", Name: "d1"}}
)

// GwSwitch returns the row key of a switch of r1's gateway.
func GwSwitch(part string) string { return ovndb.PartKey("gateway switch "+part, "shop/r1") }

// GwMember returns the row key of a chassis in the group of r1's gateway.
func GwMember(chassis string) string {
	return ovndb.PartKey("ha-chassis "+chassis, "shop/r1")
}

// GwGroup and GwRouter are the row keys of the HA_Chassis_Group of r1's gateway, and of the gateway.
var GwGroup, GwRouter = ovndb.PartKey("ha-chassis-group", "shop/r1"), ovndb.GatewayKey("shop/r1")

// EnsureGateway ensures r1's gateway and returns whether anything was written.
func EnsureGateway(t *testing.T, n *Client, keys string, nodes []gateway.Chassis) bool {
	t.Helper()
	changed, err := n.Gateways.Ensure(WithLimit(t), GatewayConf(t, "shop/r1", keys), nodes)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// KeysInOrder returns the keys as Rows returns a set.
func KeysInOrder(keys ...string) string {
	list := make([]any, len(keys))
	for i, key := range keys {
		list[i] = key
	}
	return line(list)
}

// Routes returns a router's routes as "<destination> via <next hop>", sorted.
func (w *World) Routes(t *testing.T, router string) string {
	t.Helper()
	var list []any
	rows := w.Rows(t)
	for _, key := range strings.Fields(rows["Logical_Router"][router]["static_routes"]) {
		r := rows["Logical_Router_Static_Route"][key]
		list = append(list, r["ip_prefix"]+" via "+r["nexthop"])
	}
	return line(list)
}

// nats returns a router's SNAT rows as "<subnet> as <address>", sorted.
func (w *World) nats(t *testing.T, router string) string {
	t.Helper()
	var list []any
	rows := w.Rows(t)
	for _, key := range strings.Fields(rows["Logical_Router"][router]["nat"]) {
		r := rows["NAT"][key]
		if r["type"] != "snat" {
			t.Errorf("NAT %v", r)
		}
		list = append(list, r["logical_ip"]+" as "+r["external_ip"])
	}
	return line(list)
}

// GatewayChanges returns configurations that differ from GwFull, by the name of the difference.
func GatewayChanges() map[string]string {
	return map[string]string{
		"external addresses": gwJoin +
			`,"externalSubnet":"192.0.2.0/24,2001:db8::/64","externalAddress":"192.0.2.77,2001:db8::77",` +
			gwHops + "," + GwPhysical + "," + gwVLAN + "," + GwNodes,
		"external subnets": gwJoin +
			`,"externalSubnet":"198.51.100.0/25,2001:db8:9::/64"` +
			`,"externalAddress":"198.51.100.10,2001:db8:9::10","nextHop":"198.51.100.1,2001:db8:9::1",` +
			GwPhysical + "," + gwVLAN + "," + GwNodes,
		"IPv4 alone": Gw4 + "," + gwVLAN,
		"IPv6 alone": `"externalSubnet":"2001:db8::/64","externalAddress":"2001:db8::10",` +
			GwPhysical + "," + GwNodes,
		"another VLAN": gwJoin + "," + gwExternal + "," + gwHops + "," + GwPhysical + `,"vlanID":43,` + GwNodes,
		"no VLAN":      gwJoin + "," + gwExternal + "," + gwHops + "," + GwPhysical + "," + GwNodes,
		"another next hop": gwJoin + "," + gwExternal + `,"nextHop":"192.0.2.2,2001:db8::2",` +
			GwPhysical + "," + gwVLAN + "," + GwNodes,
		"a next hop less": gwJoin + "," + gwExternal + `,"nextHop":"2001:db8::1",` +
			GwPhysical + "," + gwVLAN + "," + GwNodes,
		"join subnets": `"joinSubnet":"100.99.0.0/28,fd99::/64",` + gwExternal + "," + gwHops + "," +
			GwPhysical + "," + gwVLAN + "," + GwNodes,
		"the provider's network": gwJoin + "," + gwExternal + "," + gwHops + `,"physicalNetworkName":"other",` +
			gwVLAN + "," + GwNodes,
		"the selector": gwJoin + "," + gwExternal + "," + gwHops + "," + GwPhysical + "," + gwVLAN +
			`,"gatewayNodes":"!gw"`,
		"snat": GwFull + `,"snat":false`,
	}
}

// WantForeign fails unless ensuring r1's gateway is refused with a reason that has these words, and changes no row.
func (w *World) WantForeign(t *testing.T, words ...string) {
	t.Helper()
	before := w.Versions(t)
	changed, err := w.Networks.Gateways.Ensure(WithLimit(t), GatewayConf(t, "shop/r1", GwFull), OneNode)
	refused, ok := errors.AsType[*nbrows.Refused](err)
	for _, word := range words {
		if !ok || changed || !strings.Contains(refused.Reason, word) {
			t.Errorf("changed %t, error %v; want it refused with %q", changed, err, word)
		}
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}
