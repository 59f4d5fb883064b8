package gateway

import (
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// gatewayRows are the rows of a router's gateway. The way out leads from the router over the join switch to the
// gateway, which is a logical router of its own, and over the external switch to the physical network. The maps are by
// row key.
type gatewayRows struct {
	gateway        *nb.LogicalRouter
	join, external *nb.LogicalSwitch
	ports          map[string]*nb.LogicalRouterPort
	ends           map[string]*nb.LogicalSwitchPort
	routes         map[string]*nb.LogicalRouterStaticRoute
	group          *nb.HAChassisGroup
	chassis        map[string]*nb.HAChassis
	wire           *nbrows.BookClaims
}

// The parts of a gateway, as its row keys and row names have them. The name of a row is the router's name, a colon and
// the part. A router's name cannot contain a colon.
const (
	partJoin        = "join"    // the join switch, and the router's port to it
	partGatewayJoin = "gateway" // the gateway, and its port to the join switch
	partExternal    = nbrows.PartExternal
	partProvider    = nbrows.PartProvider
	routeDefault    = "default" // the router's route to the gateway
	routeNextHop    = "nexthop" // the gateway's route to the next hop on the physical network
	keyGatewayNodes = "ovn-multinet/gateway-nodes"
)

// portKey returns the row key of a router port of the gateway.
func portKey(router, part string) string { return ovndb.PartKey("gateway port "+part, router) }

// endKey returns the row key of a switch port of the gateway.
func endKey(router, part string) string { return ovndb.PartKey("gateway end "+part, router) }

// switchPartKey returns the row key of the join switch or the external switch.
func switchPartKey(router, part string) string { return nbrows.GatewaySwitchKey(router, part) }

// gatewayRouteKey returns the row key of a route of the gateway.
func gatewayRouteKey(router, kind, family string) string {
	return ovndb.PartKey("gateway route "+kind+family, router)
}

// groupKey returns the row key of the gateway's HA_Chassis_Group.
func groupKey(router string) string { return nbrows.GatewayGroupKey(router) }

// wantedRows returns the rows that a gateway should have, without the chassis of its nodes.
func wantedRows(r *netmodel.Router) *gatewayRows {
	marks := func() map[string]string { return map[string]string{nbrows.KeyRouter: r.Name} }
	g := &gatewayRows{
		gateway: &nb.LogicalRouter{
			UUID: ovndb.GatewayKey(r.Name), Name: r.Name + ":gateway", Options: nbrows.RouterOptions(), ExternalIDs: marks(),
		},
		join: &nb.LogicalSwitch{UUID: switchPartKey(r.Name, partJoin), Name: r.Name + ":join", ExternalIDs: marks()},
		external: &nb.LogicalSwitch{
			UUID: switchPartKey(r.Name, partExternal), Name: r.Name + ":external", ExternalIDs: marks(),
		},
		ports: map[string]*nb.LogicalRouterPort{}, ends: map[string]*nb.LogicalSwitchPort{},
		routes: map[string]*nb.LogicalRouterStaticRoute{},
		group:  &nb.HAChassisGroup{UUID: groupKey(r.Name), Name: r.Name + ":gateway", ExternalIDs: marks()},
	}
	g.gateway.ExternalIDs[keyGatewayNodes] = r.Nodes
	g.wire = nbrows.ClaimsOfRouter(r)
	g.wire.Mark(g.gateway.ExternalIDs)
	var routerJoin, gatewayJoin []netip.Prefix
	for i := range r.Join {
		routerJoin, gatewayJoin = append(routerJoin, r.RouterJoin(i)), append(gatewayJoin, r.GatewayJoin(i))
		f, any := nbrows.Family(r.Join[i].Addr()), "0.0.0.0/0"
		if f == "6" {
			any = "::/0"
		}
		g.route(r.Name, routeDefault, f, any, r.GatewayJoin(i).Addr())
		g.route(r.Name, routeNextHop, f, any, r.NextHops[i])
	}
	g.connect(r.Name, partJoin, routerJoin)
	g.connect(r.Name, partGatewayJoin, gatewayJoin)
	port := g.connect(r.Name, partExternal, r.External)
	group := g.group.UUID
	port.HaChassisGroup = &group
	key := endKey(r.Name, partProvider)
	g.ends[key] = nbrows.ProviderRow(key, r.Name+":"+partProvider, r.Physical, r.VLAN, marks())
	return g
}

// connect adds a port of the router or of the gateway, and the switch's port to it. The MAC is made from the address,
// as for a pod's port.
func (g *gatewayRows) connect(router, part string, addresses []netip.Prefix) *nb.LogicalRouterPort {
	subnet := addresses[0].Masked()
	if part == partExternal { // the MAC is on a physical network
		subnet = netip.Prefix{}
	}
	mac, _ := ovndb.LeaseMAC(subnet, addresses[0].Addr())
	port := &nb.LogicalRouterPort{
		UUID: portKey(router, part), Name: router + ":" + part, MAC: mac.String(),
		ExternalIDs: map[string]string{nbrows.KeyRouter: router},
	}
	for _, a := range addresses {
		port.Networks = append(port.Networks, a.String())
	}
	g.ports[port.UUID] = port
	end := &nb.LogicalSwitchPort{
		UUID: endKey(router, part), Name: router + ":" + part + ":switch", Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": port.Name}, ExternalIDs: map[string]string{nbrows.KeyRouter: router},
	}
	if part == partExternal {
		// OVN announces outside addresses on the physical network when they get another MAC: a floating address has the
		// gateway's MAC or its own. Otherwise neighbours would send to the old MAC for about a minute.
		end.Options["nat-addresses"] = "router"
	}
	g.ends[end.UUID] = end
	return port
}

// route adds a route of the router or of the gateway, unless its next hop is the zero Addr.
func (g *gatewayRows) route(router, kind, family, to string, via netip.Addr) {
	if via.IsValid() {
		key := gatewayRouteKey(router, kind, family)
		g.routes[key] = &nb.LogicalRouterStaticRoute{
			UUID: key, IPPrefix: to, Nexthop: via.String(), ExternalIDs: map[string]string{nbrows.KeyRouter: router},
		}
	}
}

// gatewayHolders returns, by row key, the row that refers to each router port, switch port and route of a gateway.
func gatewayHolders(router string) map[string]nbrows.Holder {
	main, gateway := ovndb.RouterKey(router), ovndb.GatewayKey(router)
	join, external := switchPartKey(router, partJoin), switchPartKey(router, partExternal)
	holders := map[string]nbrows.Holder{
		portKey(router, partJoin):        nbrows.InRouter(main, "ports"),
		portKey(router, partGatewayJoin): nbrows.InRouter(gateway, "ports"),
		portKey(router, partExternal):    nbrows.InRouter(gateway, "ports"),
		endKey(router, partJoin):         nbrows.InSwitch(join),
		endKey(router, partGatewayJoin):  nbrows.InSwitch(join),
		endKey(router, partExternal):     nbrows.InSwitch(external),
		endKey(router, partProvider):     nbrows.InSwitch(external),
	}
	for _, f := range nbrows.Families {
		holders[gatewayRouteKey(router, routeDefault, f)] = nbrows.InRouter(main, "static_routes")
		holders[gatewayRouteKey(router, routeNextHop, f)] = nbrows.InRouter(gateway, "static_routes")
	}
	return holders
}

// holderOf returns the lookup of a row's holder by the row's key.
func holderOf[T any](holders map[string]nbrows.Holder) func(key string, _ *T) nbrows.Holder {
	return func(key string, _ *T) nbrows.Holder { return holders[key] }
}

// setMTU sets the MTU of the gateway's port to the physical network. Packets are compared with it before OVN translates
// their addresses, in both directions: so the answer that a packet is too big names the addresses that its sender used.
func (g *gatewayRows) setMTU(have *present, mtu int) {
	key := portKey(g.gateway.ExternalIDs[nbrows.KeyRouter], partExternal)
	if old := have.ports[key]; mtu == 0 && old != nil {
		nbrows.KeepMTU(g.ports[key], old)
		return
	}
	nbrows.SetMTU(g.ports[key], mtu)
}

// setMembers sets the chassis rows, and the group's references to them.
func (g *gatewayRows) setMembers(members map[string]*nb.HAChassis) {
	g.chassis, g.group.HaChassis = members, nil
	for key := range members {
		g.group.HaChassis = append(g.group.HaChassis, key)
	}
	slices.Sort(g.group.HaChassis)
}
