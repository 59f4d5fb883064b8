package ovnnet

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// gatewayRows are those of a router's gateway: the way from the router over the join switch to the gateway, a router of
// its own, and from there over the external switch to the provider's network. Rows have the keys of their parts.
type gatewayRows struct {
	gateway        *nb.LogicalRouter
	join, external *nb.LogicalSwitch
	ports          map[string]*nb.LogicalRouterPort
	ends           map[string]*nb.LogicalSwitchPort
	routes         map[string]*nb.LogicalRouterStaticRoute
	group          *nb.HAChassisGroup
	chassis        map[string]*nb.HAChassis
	wire           *wireClaims
}

// The parts of a gateway. As names of rows they stand behind the router's name and a colon, which is in no router's name.
const (
	partJoin        = "join"     // the switch, and the router's port on it
	partGatewayJoin = "gateway"  // the gateway, and its port on the join switch
	partExternal    = "external" // the switch, and the gateway's port on it
	partProvider    = "provider" // the external switch's way out
	routeDefault    = "default"  // of the router, to the gateway
	routeNextHop    = "nexthop"  // of the gateway, to the provider's router
	keyGatewayNodes = "ovn-multinet/gateway-nodes"
	haChassisGroup  = "ha-chassis-group"
)

func portKey(router, part string) string { return ovndb.PartKey("gateway port "+part, router) }

func endKey(router, part string) string { return ovndb.PartKey("gateway end "+part, router) }

func switchPartKey(router, part string) string { return ovndb.PartKey("gateway switch "+part, router) }

func gatewayRouteKey(router, kind, family string) string {
	return ovndb.PartKey("gateway route "+kind+family, router)
}

func groupKey(router string) string { return ovndb.PartKey(haChassisGroup, router) }

// wantedGateway is what a gateway ought to have, but for its nodes.
func wantedGateway(r *netmodel.Router) *gatewayRows {
	marks := func() map[string]string { return map[string]string{keyRouter: r.Name} }
	g := &gatewayRows{
		gateway:  &nb.LogicalRouter{UUID: ovndb.GatewayKey(r.Name), Name: r.Name + ":gateway", ExternalIDs: marks()},
		join:     &nb.LogicalSwitch{UUID: switchPartKey(r.Name, partJoin), Name: r.Name + ":join", ExternalIDs: marks()},
		external: &nb.LogicalSwitch{UUID: switchPartKey(r.Name, partExternal), Name: r.Name + ":external", ExternalIDs: marks()},
		ports:    map[string]*nb.LogicalRouterPort{}, ends: map[string]*nb.LogicalSwitchPort{},
		routes: map[string]*nb.LogicalRouterStaticRoute{},
		group:  &nb.HAChassisGroup{UUID: groupKey(r.Name), Name: r.Name + ":gateway", ExternalIDs: marks()},
	}
	g.gateway.ExternalIDs[keyGatewayNodes] = r.Nodes
	g.wire = wantedOfRouter(r)
	g.wire.mark(g.gateway.ExternalIDs)
	var routerJoin, gatewayJoin []netip.Prefix
	for i := range r.Join {
		routerJoin, gatewayJoin = append(routerJoin, r.RouterJoin(i)), append(gatewayJoin, r.GatewayJoin(i))
		f, any := family(r.Join[i].Addr()), "0.0.0.0/0"
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
	g.ends[key] = providerRow(key, r.Name+":"+partProvider, r.Physical, r.VLAN, marks())
	return g
}

// connect makes a port of router or gateway, with a switch's end of it. The MAC is made of the address, as a pod's is.
func (g *gatewayRows) connect(router, part string, addresses []netip.Prefix) *nb.LogicalRouterPort {
	subnet := addresses[0].Masked()
	if part == partExternal { // the MAC is one of the wire's
		subnet = netip.Prefix{}
	}
	mac, _ := ovndb.LeaseMAC(subnet, addresses[0].Addr())
	port := &nb.LogicalRouterPort{
		UUID: portKey(router, part), Name: router + ":" + part, MAC: mac.String(), ExternalIDs: map[string]string{keyRouter: router},
	}
	for _, a := range addresses {
		port.Networks = append(port.Networks, a.String())
	}
	g.ports[port.UUID] = port
	end := &nb.LogicalSwitchPort{
		UUID: endKey(router, part), Name: router + ":" + part + ":switch", Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": port.Name}, ExternalIDs: map[string]string{keyRouter: router},
	}
	g.ends[end.UUID] = end
	return port
}

func (g *gatewayRows) route(router, kind, family, to string, via netip.Addr) {
	if via.IsValid() {
		key := gatewayRouteKey(router, kind, family)
		g.routes[key] = &nb.LogicalRouterStaticRoute{UUID: key, IPPrefix: to, Nexthop: via.String(), ExternalIDs: map[string]string{keyRouter: router}}
	}
}

// holders tell which router or switch holds a gateway's rows.
func gatewayHolders(router string) map[string]holder {
	holders := map[string]holder{
		portKey(router, partJoin):        {nb.LogicalRouterTable, ovndb.RouterKey(router), "ports"},
		portKey(router, partGatewayJoin): {nb.LogicalRouterTable, ovndb.GatewayKey(router), "ports"},
		portKey(router, partExternal):    {nb.LogicalRouterTable, ovndb.GatewayKey(router), "ports"},
		endKey(router, partJoin):         {nb.LogicalSwitchTable, switchPartKey(router, partJoin), "ports"},
		endKey(router, partGatewayJoin):  {nb.LogicalSwitchTable, switchPartKey(router, partJoin), "ports"},
		endKey(router, partExternal):     {nb.LogicalSwitchTable, switchPartKey(router, partExternal), "ports"},
		endKey(router, partProvider):     {nb.LogicalSwitchTable, switchPartKey(router, partExternal), "ports"},
	}
	for _, f := range families {
		holders[gatewayRouteKey(router, routeDefault, f)] = holder{nb.LogicalRouterTable, ovndb.RouterKey(router), "static_routes"}
		holders[gatewayRouteKey(router, routeNextHop, f)] = holder{nb.LogicalRouterTable, ovndb.GatewayKey(router), "static_routes"}
	}
	return holders
}

// Chassis is a node in OVN's words.
type Chassis struct{ Node, Name string }

// EnsureGateway makes the gateway of a router, or brings it up to date, all in one transaction. The nodes take it in turn:
// see order; nil leaves them as they are.
func (n *Networks) EnsureGateway(ctx context.Context, r *netmodel.Router, nodes []Chassis) (changed bool, err error) {
	for tries := races(0); ; {
		if err := tries.again("the gateway of router " + r.Name); err != nil {
			return changed, err
		}
		have, err := n.readGateway(ctx, r.Name)
		if err != nil {
			return changed, err
		}
		if !have.routerThere {
			if err := n.ensureRouter(ctx, r.Name); err != nil {
				return changed, err
			}
			continue
		}
		want := wantedGateway(r)
		if err := n.checkNetworks(ctx, r, have, want); err != nil {
			return changed, err
		}
		var noted map[string]string
		if have.gateway != nil {
			noted = have.gateway.ExternalIDs
		}
		have.wire = &wireClaims{}
		have.wire.rows, err = n.readWire(ctx, noted, want.wire)
		if refused, ok := errors.AsType[*Refused](err); ok {
			return changed, refusedf("router %s: %s", r.Name, refused.Reason)
		}
		if err != nil {
			return changed, err
		}
		members := have.order(r.Name, nodes)
		if nodes == nil {
			members = have.chassis
		}
		want.setMembers(members)
		ops, err := n.changeGateway(r.Name, have, want)
		if err != nil || len(ops) == 0 {
			return false, err
		}
		if err = n.write(ctx, ops); !raced(err) {
			return err == nil, inTheWay(err)
		}
	}
}

// checkNetworks refuses a gateway in whose subnets a network of the router is already. One that comes later is refused.
func (n *Networks) checkNetworks(ctx context.Context, r *netmodel.Router, have *foundGateway, want *gatewayRows) error {
	key := portKey(r.Name, partJoin)
	if samePort(have.ports[key], want.ports[key]) && samePort(have.ports[portKey(r.Name, partExternal)], want.ports[portKey(r.Name, partExternal)]) {
		return nil
	}
	results, err := n.db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalRouterTable, ovndb.RouterKey(r.Name), "ports")})
	if err != nil {
		return err
	}
	router := &nb.LogicalRouter{}
	if err := one(n.db, results[0], &router); err != nil {
		return err
	}
	ports, err := ovndb.ReadByKey[nb.LogicalRouterPort](ctx, n.db, nb.LogicalRouterPortTable, router.Ports)
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
				return refusedf("port %s: %v", port.Name, err)
			}
		}
	}
	return nil
}

func (g *gatewayRows) setMembers(members map[string]*nb.HAChassis) {
	g.chassis, g.group.HaChassis = members, nil
	for key := range members {
		g.group.HaChassis = append(g.group.HaChassis, key)
	}
	slices.Sort(g.group.HaChassis)
}

// foundGateway is a gateway as it is.
type foundGateway struct {
	gatewayRows
	routerThere bool
}

func (n *Networks) readGateway(ctx context.Context, router string) (*foundGateway, error) {
	have := &foundGateway{gatewayRows: gatewayRows{
		ports: map[string]*nb.LogicalRouterPort{}, ends: map[string]*nb.LogicalSwitchPort{},
		routes: map[string]*nb.LogicalRouterStaticRoute{}, chassis: map[string]*nb.HAChassis{},
	}}
	if err := n.db.WaitConnected(ctx); err != nil {
		return nil, err
	}
	var main *nb.LogicalRouter
	ops := []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, ovndb.RouterKey(router), "_uuid", "name", "external_ids"),
		ovndb.Select(nb.LogicalRouterTable, ovndb.GatewayKey(router), "_uuid", "name", "options", "external_ids"),
		ovndb.Select(nb.LogicalSwitchTable, switchPartKey(router, partJoin), switchColumns...),
		ovndb.Select(nb.LogicalSwitchTable, switchPartKey(router, partExternal), switchColumns...),
		ovndb.Select(nb.HAChassisGroupTable, groupKey(router)),
	}
	decode := []func(ovsdb.OperationResult) error{
		func(r ovsdb.OperationResult) error { return one(n.db, r, &main) },
		func(r ovsdb.OperationResult) error { return one(n.db, r, &have.gateway) },
		func(r ovsdb.OperationResult) error { return one(n.db, r, &have.join) },
		func(r ovsdb.OperationResult) error { return one(n.db, r, &have.external) },
		func(r ovsdb.OperationResult) error { return one(n.db, r, &have.group) },
	}
	for key, in := range gatewayHolders(router) {
		switch {
		case in.column == "static_routes":
			ops = append(ops, ovndb.Select(nb.LogicalRouterStaticRouteTable, key))
			decode = append(decode, func(r ovsdb.OperationResult) error { return into(n.db, r, key, have.routes) })
		case in.table == nb.LogicalRouterTable:
			ops = append(ops, ovndb.Select(nb.LogicalRouterPortTable, key))
			decode = append(decode, func(r ovsdb.OperationResult) error { return into(n.db, r, key, have.ports) })
		default:
			ops = append(ops, ovndb.Select(nb.LogicalSwitchPortTable, key))
			decode = append(decode, func(r ovsdb.OperationResult) error { return into(n.db, r, key, have.ends) })
		}
	}
	results, err := n.db.Transact(ctx, ops)
	if err != nil {
		return nil, err
	}
	for i, d := range decode {
		if err := d(results[i]); err != nil {
			return nil, err
		}
	}
	if main != nil && main.ExternalIDs[keyRouter] != router {
		return nil, refusedf("router: logical router %s is not ours", main.UUID)
	}
	have.routerThere = main != nil && main.Name == router
	if err := have.checkMarks(router); err != nil {
		return nil, err
	}
	return have, n.readMembers(ctx, have)
}

// checkMarks refuses rows at a gateway's keys that are not ours.
func (have *foundGateway) checkMarks(router string) error {
	foreign := func(what, key string, ids map[string]string) error {
		if ids[keyRouter] == router {
			return nil
		}
		return refusedf("router %s: gateway: %s %s is not ours", router, what, key)
	}
	var errs []error
	if g := have.gateway; g != nil {
		errs = append(errs, foreign("logical router", g.UUID, g.ExternalIDs))
	}
	for _, sw := range []*nb.LogicalSwitch{have.join, have.external} {
		if sw != nil {
			errs = append(errs, foreign("logical switch", sw.UUID, sw.ExternalIDs))
		}
	}
	if g := have.group; g != nil {
		errs = append(errs, foreign("HA chassis group", g.UUID, g.ExternalIDs))
	}
	return errors.Join(errs...)
}

func (n *Networks) readMembers(ctx context.Context, have *foundGateway) error {
	if have.group == nil {
		return nil
	}
	members, err := ovndb.ReadByKey[nb.HAChassis](ctx, n.db, nb.HAChassisTable, have.group.HaChassis)
	for _, m := range members {
		have.chassis[m.UUID] = m
	}
	return err
}

// changeGateway lists the operations that make of a gateway's rows what they ought to be.
func (n *Networks) changeGateway(router string, have *foundGateway, want *gatewayRows) ([]ovsdb.Operation, error) {
	b := &batch{db: n.db}
	put(b, nb.LogicalRouterTable, want.gateway.UUID, have.gateway, want.gateway)
	put(b, nb.LogicalSwitchTable, want.join.UUID, have.join, want.join)
	put(b, nb.LogicalSwitchTable, want.external.UUID, have.external, want.external)
	for _, key := range sortedKeys(want.chassis) { // those that are not wanted any more go with their places in the group
		put(b, nb.HAChassisTable, key, have.chassis[key], want.chassis[key])
	}
	put(b, nb.HAChassisGroupTable, want.group.UUID, have.group, want.group)
	holders := gatewayHolders(router)
	for _, key := range sortedKeys(holders) {
		in := holders[key]
		switch {
		case in.column == "static_routes":
			putIn(b, nb.LogicalRouterStaticRouteTable, key, have.routes[key], want.routes[key], in, in)
		case in.table == nb.LogicalRouterTable:
			putIn(b, nb.LogicalRouterPortTable, key, have.ports[key], want.ports[key], in, in)
		default:
			putIn(b, nb.LogicalSwitchPortTable, key, have.ends[key], want.ends[key], in, in)
		}
	}
	b.setWire(have.wire.rows, want.wire)
	if len(b.ops) > 0 && have.gateway != nil { // as in change
		b.ops = slices.Insert(b.ops, 0, ovndb.Present(nb.LogicalRouterTable, want.gateway.UUID))
	}
	return b.ops, b.err
}

// DropGateways takes the gateways away of routers that have none any more.
func (n *Networks) DropGateways(ctx context.Context) error {
	routers, err := n.allRouters(ctx)
	if err != nil {
		return err
	}
	var errs []error
	names := map[string]bool{}
	for _, r := range routers {
		name := r.ExternalIDs[keyRouter]
		if r.UUID == ovndb.GatewayKey(name) || slices.Contains(r.Ports, portKey(name, partJoin)) {
			names[name] = true
		}
	}
	switches, err := n.allSwitches(ctx)
	if err != nil {
		return err
	}
	for _, sw := range switches { // others may have taken the gateway itself
		name := sw.ExternalIDs[keyRouter]
		if sw.UUID == switchPartKey(name, partJoin) || sw.UUID == switchPartKey(name, partExternal) {
			names[name] = true
		}
	}
	for _, name := range sortedKeys(names) {
		if name != "" && n.withGateway(name) == nil {
			errs = append(errs, n.dropGateway(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// allSwitches lists the switches but those of another cluster.
func (n *Networks) allSwitches(ctx context.Context) ([]*nb.LogicalSwitch, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	return slices.DeleteFunc(switches, func(sw *nb.LogicalSwitch) bool { return ovndb.OtherCluster(sw.ExternalIDs) != "" }), err
}

// dropGateway deletes what holds the gateway's rows; the database collects the others, the networks' among them.
func (n *Networks) dropGateway(ctx context.Context, router string) error {
	for tries := races(0); ; {
		if err := tries.again("the gateway of router " + router); err != nil {
			return err
		}
		if err := n.dropGatewayOnce(ctx, router); !raced(err) {
			return err
		}
	}
}

func (n *Networks) dropGatewayOnce(ctx context.Context, router string) error {
	b := &batch{db: n.db}
	if err := n.dropWire(ctx, b, "router "+router); err != nil {
		return err
	}
	b.add(ovndb.Unlink(nb.LogicalRouterTable, "ports", portKey(router, partJoin)))
	for _, f := range families {
		b.add(ovndb.Unlink(nb.LogicalRouterTable, "static_routes", gatewayRouteKey(router, routeDefault, f)))
	}
	b.add(
		ovndb.Delete(nb.LogicalRouterTable, ovndb.GatewayKey(router)),
		ovndb.Delete(nb.LogicalSwitchTable, switchPartKey(router, partJoin)),
		ovndb.Delete(nb.LogicalSwitchTable, switchPartKey(router, partExternal)),
		// Before they are collected, rows that refer to the group are counted.
		ovndb.Delete(nb.LogicalRouterPortTable, portKey(router, partExternal)),
		ovndb.Delete(nb.HAChassisGroupTable, groupKey(router)),
	)
	if err := n.write(ctx, b.ops); err != nil {
		return err
	}
	return n.dropRouter(ctx, router)
}
