package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

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
	_, err := n.Change(ctx, "the gateway of router "+router, func(b *nbrows.Batch) error {
		return n.deleteRows(ctx, b, router)
	})
	if err != nil {
		return err
	}
	return n.DeleteUnusedRouter(ctx, router)
}

// deleteRows adds the operations of delete.
func (n *Gateways) deleteRows(ctx context.Context, b *nbrows.Batch, router string) error {
	have := &present{}
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
	return nil
}
