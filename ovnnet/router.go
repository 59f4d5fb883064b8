package ovnnet

import (
	"context"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// overlaps refuses a subnet that meets another one on the same router, and returns the assertion that what is on the
// router is what was looked at.
func (n *Networks) overlaps(ctx context.Context, network *netmodel.Network) ([]ovsdb.Operation, error) {
	name := network.RouterName()
	on, err := n.readOnRouter(ctx, name)
	if err != nil {
		return nil, err
	}
	check := func(text, owner, what string) error {
		other, err := netip.ParsePrefix(text)
		if err != nil || owner == network.ID() {
			return nil
		}
		if owner != "" {
			what = "network " + owner
		}
		for _, subnet := range network.Subnets {
			if other.Overlaps(subnet) {
				return refusedf("router: subnet %s overlaps %s of %s on router %s", subnet, other.Masked(), what, name)
			}
		}
		return nil
	}
	for _, r := range on.routes {
		if r.Nexthop != discard {
			continue
		}
		if err := check(r.IPPrefix, r.ExternalIDs[keyNetwork], "a route"); err != nil {
			return nil, err
		}
	}
	for _, port := range on.ports {
		for _, text := range port.Networks {
			if err := check(text, port.ExternalIDs[keyNetwork], "port "+port.Name); err != nil {
				return nil, err
			}
		}
	}
	return on.unchanged(), nil
}

// onRouter is what a router has.
type onRouter struct {
	router *nb.LogicalRouter
	ports  []*nb.LogicalRouterPort
	// routes show the whole of a layer3 network, of which ports show the blocks that nodes have.
	routes []*nb.LogicalRouterStaticRoute
}

func (n *Networks) readOnRouter(ctx context.Context, name string) (*onRouter, error) {
	key := ovndb.RouterKey(name)
	results, err := n.db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalRouterTable, key, "ports", "static_routes")})
	if err != nil {
		return nil, err
	}
	on := &onRouter{router: &nb.LogicalRouter{}}
	if err := one(n.db, results[0], &on.router); err != nil {
		return nil, err
	}
	on.router.UUID = key
	on.ports, err = ovndb.ReadByKey[nb.LogicalRouterPort](
		ctx, n.db, nb.LogicalRouterPortTable, on.router.Ports, "_uuid", "name", "networks", "external_ids")
	if err != nil {
		return nil, err
	}
	on.routes, err = ovndb.ReadByKey[nb.LogicalRouterStaticRoute](
		ctx, n.db, nb.LogicalRouterStaticRouteTable, on.router.StaticRoutes)
	return on, err
}

// unchanged asserts that the router has this still.
func (on *onRouter) unchanged() []ovsdb.Operation {
	return []ovsdb.Operation{
		holdsPorts(nb.LogicalRouterTable, on.router.UUID, on.router.Ports), holdsRoutes(on.router.UUID, on.router.StaticRoutes),
	}
}

// networks are the networks of a namespace that are on the router.
func (on *onRouter) networks(namespace string) []string {
	ids := map[string]bool{}
	add := func(marks map[string]string) {
		if of, _, own := strings.Cut(marks[keyNetwork], "/"); own && of == namespace {
			ids[marks[keyNetwork]] = true
		}
	}
	for _, port := range on.ports {
		add(port.ExternalIDs)
	}
	for _, route := range on.routes {
		add(route.ExternalIDs)
	}
	return sortedKeys(ids)
}

// holdsPorts asserts that a row's ports are these, holdsRoutes that a router's routes are.
func holdsPorts(table, key string, ports []string) ovsdb.Operation {
	return holds(table, key, "ports", ports)
}

func holdsRoutes(key string, routes []string) ovsdb.Operation {
	return holds(nb.LogicalRouterTable, key, "static_routes", routes)
}

func holds(table, key, column string, members []string) ovsdb.Operation {
	op := ovndb.Present(table, key)
	op.Columns, op.Rows = []string{column}, []ovsdb.Row{{column: ovndb.UUIDs(members)}}
	return op
}

// ensureRouter makes a logical router, or gives it its name again. It has a transaction of its own: of two networks that
// need it at once, one makes it and both go on.
func (n *Networks) ensureRouter(ctx context.Context, name string) error {
	row, err := n.db.Insert(&nb.LogicalRouter{UUID: ovndb.RouterKey(name), Name: name, ExternalIDs: map[string]string{keyRouter: name}})
	if err != nil {
		return err
	}
	if err = n.write(ctx, []ovsdb.Operation{row}); raced(err) {
		key := ovndb.RouterKey(name)
		err = n.write(ctx, []ovsdb.Operation{
			ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", keyRouter, name),
			ovndb.Update(nb.LogicalRouterTable, key, ovsdb.Row{"name": name}),
		})
	}
	if raced(err) { // it is gone again: whoever needs it looks again
		return nil
	}
	return err
}

// dropRouter deletes a logical router of ours that has nothing left: neither a port nor a route of a layer3 network.
func (n *Networks) dropRouter(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	key := ovndb.RouterKey(name)
	err := n.write(ctx, []ovsdb.Operation{
		ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", keyRouter, name),
		holdsPorts(nb.LogicalRouterTable, key, nil),
		holdsRoutes(key, nil),
		ovndb.Delete(nb.LogicalRouterTable, key),
	})
	if raced(err) { // it has some, or is gone
		return nil
	}
	return err
}
