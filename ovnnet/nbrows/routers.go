package nbrows

import (
	"context"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Switches returns all logical switches except those of another cluster.
func (n *Store) Switches(ctx context.Context) ([]*nb.LogicalSwitch, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.Db, results[0])
	return slices.DeleteFunc(switches, func(sw *nb.LogicalSwitch) bool {
		return ovndb.OtherCluster(sw.ExternalIDs) != ""
	}), err
}

// Routers returns all logical routers except those of another cluster.
func (n *Store) Routers(ctx context.Context) ([]*nb.LogicalRouter, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		{
			Op: ovsdb.OperationSelect, Table: nb.LogicalRouterTable,
			Columns: []string{"_uuid", "external_ids", "ports", "static_routes"},
		},
	})
	if err != nil {
		return nil, err
	}
	routers, err := ovndb.Rows[nb.LogicalRouter](n.Db, results[0])
	return slices.DeleteFunc(routers, func(r *nb.LogicalRouter) bool {
		return ovndb.OtherCluster(r.ExternalIDs) != ""
	}), err
}

// HoldsPorts returns the assertion that a switch or router has exactly these ports.
func HoldsPorts(table, key string, ports []string) ovsdb.Operation {
	return holds(table, key, "ports", ports)
}

// HoldsRoutes returns the assertion that a router has exactly these routes.
func HoldsRoutes(key string, routes []string) ovsdb.Operation {
	return holds(nb.LogicalRouterTable, key, "static_routes", routes)
}

func holds(table, key, column string, members []string) ovsdb.Operation {
	op := ovndb.Present(table, key)
	op.Columns, op.Rows = []string{column}, []ovsdb.Row{{column: ovndb.UUIDs(members)}}
	return op
}

// InsertRouter returns the operation that creates a logical router.
func (n *Store) InsertRouter(name string) (ovsdb.Operation, error) {
	return n.Db.Insert(&nb.LogicalRouter{
		UUID: ovndb.RouterKey(name), Name: name, Options: RouterOptions(),
		ExternalIDs: map[string]string{KeyRouter: name},
	})
}

// RenameRouter gives a logical router of ours its name again.
func (n *Store) RenameRouter(ctx context.Context, name string) error {
	key := ovndb.RouterKey(name)
	err := n.Write(ctx, []ovsdb.Operation{
		ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", KeyRouter, name),
		ovndb.Update(nb.LogicalRouterTable, key, ovsdb.Row{"name": name}),
	})
	if Raced(err) { // the router was deleted meanwhile, or is not ours: the caller reads it again
		return nil
	}
	return err
}

// SetRouterOptions gives a logical router of ours its options. have are the present ones.
func (n *Store) SetRouterOptions(ctx context.Context, name string, have map[string]string) error {
	key := ovndb.RouterKey(name)
	err := n.Write(ctx, append([]ovsdb.Operation{
		ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", KeyRouter, name),
	}, SetOptions(nb.LogicalRouterTable, key, have, RouterOptions())...))
	if Raced(err) { // the router was deleted meanwhile, or is not ours: the caller reads it again
		return nil
	}
	return err
}

// DeleteUnusedRouter deletes a logical router of ours that has neither ports nor routes. An empty name is ignored.
func (n *Store) DeleteUnusedRouter(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	key := ovndb.RouterKey(name)
	b := &Batch{Db: n.Db}
	b.Add(ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", KeyRouter, name),
		HoldsPorts(nb.LogicalRouterTable, key, nil),
		HoldsRoutes(key, nil),
		ovndb.Delete(nb.LogicalRouterTable, key))
	b.DeleteRouterServices(name)
	err := n.Write(ctx, b.Ops)
	if Raced(err) { // the router has ports or routes, is not ours, or does not exist
		return nil
	}
	return err
}
