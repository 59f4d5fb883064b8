package gateway

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// present are the rows of a gateway as read from NB.
type present struct {
	gatewayRows
	routerThere   bool                  // the router exists and has its name
	outside       *nb.LoadBalancerGroup // of the load balancers with outside addresses
	routerRenamed bool                  // the router exists and has another name
	routerOptions map[string]string     // of the router
}

// read reads the rows of a router's gateway. A row at one of our keys that is not ours is an error of type
// *nbrows.Refused.
func (n *Gateways) read(ctx context.Context, router string) (*present, error) {
	have := &present{gatewayRows: gatewayRows{
		ports: map[string]*nb.LogicalRouterPort{}, ends: map[string]*nb.LogicalSwitchPort{},
		routes: map[string]*nb.LogicalRouterStaticRoute{}, chassis: map[string]*nb.HAChassis{},
	}}
	if err := n.Db.WaitConnected(ctx); err != nil {
		return nil, err
	}
	var main *nb.LogicalRouter
	reads := n.Reads()
	nbrows.ReadOne(reads, nb.LogicalRouterTable, ovndb.RouterKey(router), &main,
		"_uuid", "name", "options", "external_ids")
	nbrows.ReadOne(reads, nb.LogicalRouterTable, ovndb.GatewayKey(router), &have.gateway,
		"_uuid", "name", "options", "external_ids", nbrows.ServiceGroups)
	nbrows.ReadOne(reads, nb.LogicalSwitchTable, switchPartKey(router, partJoin), &have.join, nbrows.SwitchColumns...)
	nbrows.ReadOne(reads, nb.LogicalSwitchTable, switchPartKey(router, partExternal), &have.external,
		nbrows.SwitchColumns...)
	nbrows.ReadOne(reads, nb.HAChassisGroupTable, groupKey(router), &have.group)
	nbrows.ReadOne(reads, nb.LoadBalancerGroupTable, ovndb.ServiceGroupKey(nbrows.OutsideScope(router)), &have.outside,
		"_uuid")
	for key, in := range gatewayHolders(router) {
		switch {
		case in.Column == "static_routes":
			nbrows.ReadInto(reads, nb.LogicalRouterStaticRouteTable, key, key, have.routes)
		case in.Table == nb.LogicalRouterTable:
			nbrows.ReadInto(reads, nb.LogicalRouterPortTable, key, key, have.ports)
		default:
			nbrows.ReadInto(reads, nb.LogicalSwitchPortTable, key, key, have.ends)
		}
	}
	if err := reads.Do(ctx); err != nil {
		return nil, err
	}
	if main != nil && main.ExternalIDs[nbrows.KeyRouter] != router {
		return nil, nbrows.Refusedf("router: logical router %s is not ours", main.UUID)
	}
	if main != nil {
		have.routerOptions = main.Options
	}
	have.routerThere = main != nil && main.Name == router
	have.routerRenamed = main != nil && main.Name != router
	if err := have.checkMarks(router); err != nil {
		return nil, err
	}
	return have, n.readMembers(ctx, have)
}

// same asserts that the gateway is as it was read. It does not compare external_ids as a whole: a row of an older
// version lacks the identity of the cluster.
func (have *present) same(router string) ovsdb.Operation {
	if have.gateway == nil {
		return ovndb.Absent(nb.LogicalRouterTable, ovndb.GatewayKey(router))
	}
	return ovndb.HoldsAll(nb.LogicalRouterTable, have.gateway.UUID, "external_ids", have.gateway.ExternalIDs)
}

// checkMarks refuses a gateway if a row at one of its keys is not ours.
func (have *present) checkMarks(router string) error {
	foreign := func(what, key string, ids map[string]string) error {
		if ids[nbrows.KeyRouter] == router {
			return nil
		}
		return nbrows.Refusedf("router %s: gateway: %s %s is not ours", router, what, key)
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

// readMembers reads the chassis rows of the gateway's group.
func (n *Gateways) readMembers(ctx context.Context, have *present) error {
	if have.group == nil {
		return nil
	}
	members, err := ovndb.ReadByKey[nb.HAChassis](ctx, n.Db, nb.HAChassisTable, have.group.HaChassis)
	for _, m := range members {
		have.chassis[m.UUID] = m
	}
	return err
}
