package nbrows

import (
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Routers learn neighbours (table MAC_Binding of OVN's Southbound database) that OVN does not know by itself: those
// outside. OVN has no bound on their number.
const (
	// learnFromRequests is "false": a router does not learn from every ARP request and neighbour solicitation that it
	// hears. It learns a neighbour from an answer to its own request.
	learnFromRequests = "always_learn_from_arp_request"
	// neighbourAge is how long a router remembers a neighbour, in seconds. Then it asks again, if it needs the neighbour.
	// OVN compares ages once in this time, so a neighbour that was replaced is found after twice this time at most.
	neighbourAge = "mac_binding_age_threshold"
)

// OVN learns MACs (table FDB of its Southbound database) from ports without port security. It has no bound on their
// number, so the operator grants such networks.
const (
	// fdbAge is how long OVN remembers a MAC that sends nothing, in seconds. OVN 23.03 ignores the key.
	fdbAge        = "fdb_age_threshold"
	fdbAgeSeconds = "300"
)

// gatewayMTU is the option of a router's port with the largest packet, in bytes, that may pass the port in either
// direction. To the sender of a larger one OVN answers that fragmentation is needed or that the packet is too big. OVN
// has one flow for each other port of the router and each family for it, so only ports that need the option have it.
const gatewayMTU = "gateway_mtu"

// SetMTU gives a router's port its MTU; 0: none.
func SetMTU(port *nb.LogicalRouterPort, mtu int) {
	if port != nil && mtu > 0 {
		port.Options = map[string]string{gatewayMTU: strconv.Itoa(mtu)}
	}
}

// MTUOf returns the MTU of a router's port; 0: none.
func MTUOf(port *nb.LogicalRouterPort) int {
	mtu, _ := strconv.Atoi(port.Options[gatewayMTU]) // without the key 0
	return mtu
}

// keyPortMTU is in the row with what is accepted for a network, and has the MTU of the router's ports to the network,
// if they need one. Agents make such ports by it.
const keyPortMTU = "ovn-multinet/router-port-mtu"

// NotePortMTU notes the MTU of a network's ports on its router; 0: none.
func NotePortMTU(accepted *nb.Copp, mtu int) {
	if mtu > 0 {
		accepted.ExternalIDs[keyPortMTU] = strconv.Itoa(mtu)
	}
}

// PortMTU returns the noted MTU; 0: none.
func PortMTU(accepted *nb.Copp) int {
	if accepted == nil {
		return 0
	}
	mtu, _ := strconv.Atoi(accepted.ExternalIDs[keyPortMTU]) // without the key, or with another program's text, 0
	return mtu
}

// KeepMTU gives a wanted port the MTU of the present port.
func KeepMTU(wanted, have *nb.LogicalRouterPort) {
	if wanted == nil || have == nil {
		return
	}
	if mtu, ok := have.Options[gatewayMTU]; ok {
		wanted.Options = map[string]string{gatewayMTU: mtu}
	}
}

// optionChassis would bind a router to one node. Ours are on all nodes, or have an HA_Chassis_Group.
const optionChassis = "chassis"

// NeighbourAge is the value of neighbourAge.
const NeighbourAge = "20"

// RouterOptions returns the options of each logical router of ours.
func RouterOptions() map[string]string {
	return map[string]string{learnFromRequests: "false", neighbourAge: NeighbourAge}
}

// HasRouterOptions reports whether the present options of a logical router include ours.
func HasRouterOptions(have map[string]string) bool {
	return len(SetOptions(nb.LogicalRouterTable, "", have, RouterOptions())) == 0
}

// optionColumns has, by table, the column whose keys an operator may add to, and our keys in this column.
var optionColumns = map[string]ovndb.Options{
	nb.LogicalRouterTable:     {Column: "options", Ours: []string{learnFromRequests, neighbourAge, optionChassis}},
	nb.LogicalRouterPortTable: {Column: "options", Ours: []string{gatewayMTU}},
	nb.LogicalSwitchTable:     {Column: "other_config", Ours: []string{ipamSubnet, ipamExclude, fdbAge}},
	nb.LogicalSwitchPortTable: {Column: "options", Ours: []string{"router-port", "network_name", "nat-addresses"}},
}

// SetOptions returns the operations that give a row our options; none if the row has them. have are the present
// options. Keys of others stay.
func SetOptions(table, key string, have, wanted map[string]string) []ovsdb.Operation {
	return optionColumns[table].Set(table, key, have, wanted)
}
