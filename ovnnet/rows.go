package ovnnet

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// rows are those of one network, as they are or as they ought to be.
type networkRows struct {
	// own is the network's switch, which carries what is in force. On layer3 it has no ports.
	own *nbrows.Switch
	// nodes are the parts of the nodes that have blocks of a layer3 network, by the keys of their switches.
	nodes map[string]*nbrows.Switch
	// routes and nats are the network's in routers, by their keys.
	routes map[string]*nb.LogicalRouterStaticRoute
	nats   map[string]*nb.NAT
	// wire are a localnet network's claims on addresses of its wire.
	claims *nbrows.BookClaims
}

// parts are those that have a switch.
func (r *networkRows) switches() []*nbrows.Switch {
	var list []*nbrows.Switch
	if r.own.Row != nil {
		list = append(list, r.own)
	}
	for _, key := range slices.Sorted(maps.Keys(r.nodes)) {
		list = append(list, r.nodes[key])
	}
	return list
}

// wanted is what a network that takes ports of the NADs ought to have, but for its nodes' parts.
func (n *Networks) wanted(network *netmodel.Network, nads []string) *networkRows {
	r := &networkRows{own: nbrows.NewSwitch(network, nads), nodes: map[string]*nbrows.Switch{}, claims: nbrows.ClaimsOfNetwork(network)}
	r.claims.Mark(r.own.Row.ExternalIDs)
	r.routes, r.nats = wantedRoutes(n.gateways, network)
	return r
}

// wantedRoutes are a network's routes, in its router and in that's gateway, and what the gateway hides.
func wantedRoutes(gateways *gateway.Gateways, network *netmodel.Network) (map[string]*nb.LogicalRouterStaticRoute, map[string]*nb.NAT) {
	routes, nats := map[string]*nb.LogicalRouterStaticRoute{}, map[string]*nb.NAT{}
	id, router := network.ID(), network.RouterName()
	for _, subnet := range network.Subnets {
		marks := map[string]string{nbrows.KeyNetwork: id, nbrows.KeyRouter: router}
		f := nbrows.Family(subnet.Addr())
		if network.Topology == netmodel.Layer3 {
			key := nbrows.RouteKey(id, nbrows.Discard, f)
			routes[key] = &nb.LogicalRouterStaticRoute{UUID: key, IPPrefix: subnet.String(), Nexthop: "discard", ExternalIDs: maps.Clone(marks)}
		}
		gateway := gateways.WithGateway(network.Router)
		i := -1
		if gateway != nil {
			i = slices.IndexFunc(gateway.External, func(e netip.Prefix) bool { return nbrows.Family(e.Addr()) == f })
		}
		if i < 0 {
			continue
		}
		key := nbrows.RouteKey(id, nbrows.Back, f)
		routes[key] = &nb.LogicalRouterStaticRoute{UUID: key, IPPrefix: subnet.String(), Nexthop: gateway.RouterJoin(i).Addr().String(), ExternalIDs: maps.Clone(marks)}
		if network.SNAT != nil && *network.SNAT || network.SNAT == nil && gateway.SNAT {
			key := nbrows.NatKey(id, f)
			nats[key] = &nb.NAT{UUID: key, Type: nb.NATTypeSNAT, LogicalIP: subnet.String(), ExternalIP: gateway.External[i].Addr().String(), ExternalIDs: marks}
		}
	}
	return routes, nats
}
