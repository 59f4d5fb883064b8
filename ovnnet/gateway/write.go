package gateway

import (
	"context"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// change adds the operations that change the present rows of a gateway into the wanted rows; none if they are equal.
func (n *Gateways) change(
	ctx context.Context, b *nbrows.Batch, router string, have *present, wanted *gatewayRows,
) error {
	if !have.routerThere {
		row, err := n.InsertRouter(router)
		if err != nil {
			return err
		}
		b.Add(row)
	} else {
		b.Add(nbrows.SetOptions(
			nb.LogicalRouterTable, ovndb.RouterKey(router), have.routerOptions, nbrows.RouterOptions())...)
	}
	nbrows.Put(b, nb.LogicalRouterTable, wanted.gateway.UUID, have.gateway, wanted.gateway)
	nbrows.Put(b, nb.LogicalSwitchTable, wanted.join.UUID, have.join, wanted.join)
	nbrows.Put(b, nb.LogicalSwitchTable, wanted.external.UUID, have.external, wanted.external)
	// The database deletes the chassis rows that are not wanted, because the group does not refer to them any more.
	before := len(b.Ops)
	for _, key := range nbrows.SortedKeys(wanted.chassis) {
		nbrows.Put(b, nb.HAChassisTable, key, have.chassis[key], wanted.chassis[key])
	}
	b.News = len(b.Ops) > before // for the nodes that may have the gateway now
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
			return err
		}
	}
	if have.gateway != nil {
		// A row may be missing because another controller has deleted the gateway since it was read. Without the gateway,
		// nobody would delete a row that is written now. Another list of claims must not be overwritten.
		b.First(have.same(router))
	}
	return nil
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
