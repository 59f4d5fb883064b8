package gateway

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

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
	haChassisGroup  = "ha-chassis-group"
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
func groupKey(router string) string { return ovndb.PartKey(haChassisGroup, router) }

// wantedRows returns the rows that a gateway should have, without the chassis of its nodes.
func wantedRows(r *netmodel.Router) *gatewayRows {
	marks := func() map[string]string { return map[string]string{nbrows.KeyRouter: r.Name} }
	g := &gatewayRows{
		gateway: &nb.LogicalRouter{UUID: ovndb.GatewayKey(r.Name), Name: r.Name + ":gateway", ExternalIDs: marks()},
		join:    &nb.LogicalSwitch{UUID: switchPartKey(r.Name, partJoin), Name: r.Name + ":join", ExternalIDs: marks()},
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

// Gateways writes the gateways of routers into OVN's Northbound database.
type Gateways struct {
	*nbrows.Store
	// routers are the routers that the controller's --config describes, by their full names.
	routers map[string]*netmodel.Router
}

// New returns Gateways with the routers that the operator's configuration describes, by their full names.
func New(s *nbrows.Store, routers map[string]*netmodel.Router) *Gateways {
	return &Gateways{s, routers}
}

// Configure replaces the routers that the operator's configuration describes.
func (n *Gateways) Configure(routers map[string]*netmodel.Router) { n.routers = routers }

// Router returns the configured router with that full name; nil: none.
func (n *Gateways) Router(name string) *netmodel.Router { return n.routers[name] }

// Names returns the full names of the configured routers that have a gateway.
func (n *Gateways) Names() []string {
	var names []string
	for name, r := range n.routers {
		if r.HasGateway() {
			names = append(names, name)
		}
	}
	return names
}

// WithGateway returns the configured router with that full name if it has a gateway; nil if not.
func (n *Gateways) WithGateway(router string) *netmodel.Router {
	if r := n.routers[router]; r != nil && r.HasGateway() {
		return r
	}
	return nil
}

// SelectCurrent returns the operations that read what IsCurrent compares.
func SelectCurrent(router string) []ovsdb.Operation {
	return []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, ovndb.GatewayKey(router), "_uuid", "external_ids"),
		ovndb.Select(nb.LogicalRouterPortTable, portKey(router, partJoin)),
		ovndb.Select(nb.LogicalRouterPortTable, portKey(router, partExternal)),
	}
}

// IsCurrent tells, from the results of SelectCurrent, whether the gateway of a router exists and has the addresses of
// the operator's configuration. The routes of networks use these addresses as next hops.
func (n *Gateways) IsCurrent(router string, results []ovsdb.OperationResult) (bool, error) {
	var gateway *nb.LogicalRouter
	var join, external *nb.LogicalRouterPort
	err := errors.Join(
		nbrows.One(n.Db, results[0], &gateway), nbrows.One(n.Db, results[1], &join), nbrows.One(n.Db, results[2], &external))
	r := n.WithGateway(router)
	if err != nil || r == nil || gateway == nil {
		return false, err
	}
	wanted := wantedRows(r).ports
	return nbrows.SamePort(join, wanted[portKey(router, partJoin)]) &&
		nbrows.SamePort(external, wanted[portKey(router, partExternal)]), nil
}

// Chassis is a node and the name of its chassis in OVN.
type Chassis struct{ Node, Name, physical string }

// Ensure creates or updates the gateway of a router in one transaction, with the router if that is missing. nodes are
// the nodes that may have the gateway; the function order chooses their priorities. With nil the nodes and priorities
// do not change.
func (n *Gateways) Ensure(ctx context.Context, r *netmodel.Router, nodes []Chassis) (changed bool, err error) {
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("the gateway of router " + r.Name); err != nil {
			return changed, err
		}
		have, err := n.read(ctx, r.Name)
		if err != nil {
			return changed, err
		}
		if have.routerRenamed {
			if err := n.RenameRouter(ctx, r.Name); err != nil {
				return changed, err
			}
			continue
		}
		wanted := wantedRows(r)
		if err := n.checkNetworks(ctx, r, have, wanted); err != nil {
			return changed, err
		}
		var noted map[string]string
		if have.gateway != nil {
			noted = have.gateway.ExternalIDs
		}
		have.wire = &nbrows.BookClaims{}
		have.wire.Rows, err = n.ReadClaims(ctx, have.same(r.Name), noted, wanted.wire)
		if nbrows.Raced(err) {
			continue
		}
		if refused, ok := errors.AsType[*nbrows.Refused](err); ok {
			return changed, nbrows.Refusedf("router %s: %s", r.Name, refused.Reason)
		}
		if err != nil {
			return changed, err
		}
		members := have.order(r.Name, nodes)
		if nodes == nil {
			members = have.chassis
		}
		wanted.setMembers(members)
		ops, err := n.change(ctx, r.Name, have, wanted)
		if err != nil || len(ops) == 0 {
			return false, err
		}
		if err = n.Write(ctx, ops); !nbrows.Raced(err) {
			return err == nil, nbrows.AsRefused(err)
		}
	}
}

// checkNetworks refuses a gateway whose subnets overlap a subnet that is already on the router. A network that comes
// later is itself refused.
func (n *Gateways) checkNetworks(ctx context.Context, r *netmodel.Router, have *present, wanted *gatewayRows) error {
	key := portKey(r.Name, partJoin)
	if nbrows.SamePort(have.ports[key], wanted.ports[key]) &&
		nbrows.SamePort(have.ports[portKey(r.Name, partExternal)], wanted.ports[portKey(r.Name, partExternal)]) {
		return nil
	}
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, ovndb.RouterKey(r.Name), "ports"),
	})
	if err != nil {
		return err
	}
	router := &nb.LogicalRouter{}
	if err := nbrows.One(n.Db, results[0], &router); err != nil {
		return err
	}
	ports, err := ovndb.ReadByKey[nb.LogicalRouterPort](ctx, n.Db, nb.LogicalRouterPortTable, router.Ports)
	if err != nil {
		return err
	}
	for _, port := range ports {
		for _, text := range port.Networks {
			subnet, err := netip.ParsePrefix(text)
			if err != nil || port.UUID == key {
				continue
			}
			if err := r.CheckSubnet(subnet.Masked()); err != nil {
				return nbrows.Refusedf("port %s: %v", port.Name, err)
			}
		}
	}
	return nil
}

// setMembers sets the chassis rows, and the group's references to them.
func (g *gatewayRows) setMembers(members map[string]*nb.HAChassis) {
	g.chassis, g.group.HaChassis = members, nil
	for key := range members {
		g.group.HaChassis = append(g.group.HaChassis, key)
	}
	slices.Sort(g.group.HaChassis)
}

// change returns the operations that change the present rows of a gateway into the wanted rows; none if they are equal.
func (n *Gateways) change(
	ctx context.Context, router string, have *present, wanted *gatewayRows,
) ([]ovsdb.Operation, error) {
	b := &nbrows.Batch{Db: n.Db}
	if !have.routerThere {
		row, err := n.InsertRouter(router)
		if err != nil {
			return nil, err
		}
		b.Add(row)
	}
	nbrows.Put(b, nb.LogicalRouterTable, wanted.gateway.UUID, have.gateway, wanted.gateway)
	nbrows.Put(b, nb.LogicalSwitchTable, wanted.join.UUID, have.join, wanted.join)
	nbrows.Put(b, nb.LogicalSwitchTable, wanted.external.UUID, have.external, wanted.external)
	// The database deletes the chassis rows that are not wanted, because the group does not refer to them any more.
	for _, key := range nbrows.SortedKeys(wanted.chassis) {
		nbrows.Put(b, nb.HAChassisTable, key, have.chassis[key], wanted.chassis[key])
	}
	nbrows.Put(b, nb.HAChassisGroupTable, wanted.group.UUID, have.group, wanted.group)
	holders := gatewayHolders(router)
	nbrows.Compare(b, nb.LogicalRouterPortTable, have.ports, wanted.ports, holderOf[nb.LogicalRouterPort](holders))
	nbrows.Compare(b, nb.LogicalSwitchPortTable, have.ends, wanted.ends, holderOf[nb.LogicalSwitchPort](holders))
	nbrows.Compare(b, nb.LogicalRouterStaticRouteTable, have.routes, wanted.routes,
		holderOf[nb.LogicalRouterStaticRoute](holders))
	b.SetBookClaims(have.wire.Rows, wanted.wire)
	have.referToOutside(b)
	external := portKey(router, partExternal)
	if old := have.ports[external]; old != nil && !slices.Equal(old.Networks, wanted.ports[external].Networks) {
		b.StopForwards(router)
	}
	if wanted.wire.OtherBook(have.wire.Rows) { // the gateway has moved to another VLAN, where others have these addresses
		if err := n.DeleteOutside(ctx, b, router); err != nil {
			return nil, err
		}
	}
	if have.gateway != nil {
		// A row may be missing because another controller has deleted the gateway since it was read. Without the gateway,
		// nobody would delete a row that is written now. Another list of claims must not be overwritten.
		b.First(have.same(router))
	}
	return b.Ops, b.Err
}

// referToOutside makes the gateway refer to the group of load balancers with outside addresses, if there is one. The
// package outside makes it.
func (have *present) referToOutside(b *nbrows.Batch) {
	if have.gateway == nil || have.outside == nil || slices.Contains(have.gateway.LoadBalancerGroup, have.outside.UUID) {
		return
	}
	b.Add(ovndb.Present(nb.LoadBalancerGroupTable, have.outside.UUID), ovndb.Link(
		nb.LogicalRouterTable, have.gateway.UUID, nbrows.ServiceGroups, have.outside.UUID))
}

// DeleteUnused deletes the gateways that the operator's configuration does not describe any more.
func (n *Gateways) DeleteUnused(ctx context.Context) error {
	routers, err := n.Routers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	names := map[string]bool{}
	for _, r := range routers {
		name := r.ExternalIDs[nbrows.KeyRouter]
		if r.UUID == ovndb.GatewayKey(name) || slices.Contains(r.Ports, portKey(name, partJoin)) {
			names[name] = true
		}
	}
	switches, err := n.Switches(ctx)
	if err != nil {
		return err
	}
	for _, sw := range switches { // somebody may have deleted the gateway's own row
		name := sw.ExternalIDs[nbrows.KeyRouter]
		if sw.UUID == switchPartKey(name, partJoin) || sw.UUID == switchPartKey(name, partExternal) {
			names[name] = true
		}
	}
	for _, name := range nbrows.SortedKeys(names) {
		if name != "" && n.WithGateway(name) == nil {
			errs = append(errs, n.delete(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// delete deletes the gateway's root rows. The database deletes the rows that have no reference any more, also the rows
// of networks in the gateway.
func (n *Gateways) delete(ctx context.Context, router string) error {
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("the gateway of router " + router); err != nil {
			return err
		}
		if err := n.deleteOnce(ctx, router); !nbrows.Raced(err) {
			return err
		}
	}
}

// deleteOnce is one attempt of delete.
func (n *Gateways) deleteOnce(ctx context.Context, router string) error {
	have, b := &present{}, &nbrows.Batch{Db: n.Db}
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, ovndb.GatewayKey(router), "_uuid", "external_ids"),
	})
	if err != nil {
		return err
	}
	if err := nbrows.One(n.Db, results[0], &have.gateway); err != nil {
		return err
	}
	same := have.same(router)
	b.Add(same)
	err = errors.Join(n.ReleaseClaims(ctx, b, same, "router "+router), n.DeleteOutside(ctx, b, router))
	if err != nil {
		return err
	}
	b.Add(ovndb.Unlink(nb.LogicalRouterTable, "ports", portKey(router, partJoin)))
	for _, f := range nbrows.Families {
		b.Add(ovndb.Unlink(nb.LogicalRouterTable, "static_routes", gatewayRouteKey(router, routeDefault, f)))
	}
	b.Add(
		ovndb.Delete(nb.LogicalRouterTable, ovndb.GatewayKey(router)),
		ovndb.Delete(nb.LogicalSwitchTable, switchPartKey(router, partJoin)),
		ovndb.Delete(nb.LogicalSwitchTable, switchPartKey(router, partExternal)),
		// Delete the port itself too: the database refuses to delete a group while a row refers to it, even if that row has
		// no reference any more.
		ovndb.Delete(nb.LogicalRouterPortTable, portKey(router, partExternal)),
		ovndb.Delete(nb.HAChassisGroupTable, groupKey(router)),
	)
	if err := n.Write(ctx, b.Ops); err != nil {
		return err
	}
	return n.DeleteUnusedRouter(ctx, router)
}
