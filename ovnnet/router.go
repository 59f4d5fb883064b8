package ovnnet

import (
	"context"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// overlaps refuses a network with a subnet, or one behind its pods, that overlaps another one on the same router. It
// returns the assertions that the router still has the ports and routes that were compared.
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
		for _, subnet := range network.Routed() {
			if other.Overlaps(subnet) {
				return nbrows.Refusedf("router: subnet %s overlaps %s of %s on router %s", subnet, other.Masked(), what, name)
			}
		}
		return nil
	}
	for _, r := range on.routes {
		if !nbrows.InMainRouter(r) {
			continue
		}
		if err := check(r.IPPrefix, r.ExternalIDs[nbrows.KeyNetwork], "a route"); err != nil {
			return nil, err
		}
	}
	for _, port := range on.ports {
		for _, text := range port.Networks {
			if err := check(text, port.ExternalIDs[nbrows.KeyNetwork], "port "+port.Name); err != nil {
				return nil, err
			}
		}
	}
	return on.unchanged(), nil
}

// onRouter are the ports and routes of a router.
type onRouter struct {
	router *nb.LogicalRouter
	ports  []*nb.LogicalRouterPort
	// routes contain the whole subnets of layer3 networks. ports contain only the subnets of nodes that have one.
	routes []*nb.LogicalRouterStaticRoute
}

// readOnRouter reads the ports and routes of a router. A router that does not exist has none.
func (n *Networks) readOnRouter(ctx context.Context, name string) (*onRouter, error) {
	key := ovndb.RouterKey(name)
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, key, "ports", "static_routes"),
	})
	if err != nil {
		return nil, err
	}
	on := &onRouter{router: &nb.LogicalRouter{}}
	if err := nbrows.One(n.Db, results[0], &on.router); err != nil {
		return nil, err
	}
	on.router.UUID = key
	on.ports, err = ovndb.ReadByKey[nb.LogicalRouterPort](
		ctx, n.Db, nb.LogicalRouterPortTable, on.router.Ports, "_uuid", "name", "networks", "external_ids")
	if err != nil {
		return nil, err
	}
	on.routes, err = ovndb.ReadByKey[nb.LogicalRouterStaticRoute](
		ctx, n.Db, nb.LogicalRouterStaticRouteTable, on.router.StaticRoutes)
	return on, err
}

// unchanged returns the assertions that the router still has these ports and routes.
func (on *onRouter) unchanged() []ovsdb.Operation {
	return []ovsdb.Operation{
		nbrows.HoldsPorts(nb.LogicalRouterTable, on.router.UUID, on.router.Ports),
		nbrows.HoldsRoutes(on.router.UUID, on.router.StaticRoutes),
	}
}

// networks returns the IDs of a namespace's networks that are on the router.
func (on *onRouter) networks(namespace string) []string {
	ids := map[string]bool{}
	add := func(marks map[string]string) {
		if of, _, own := strings.Cut(marks[nbrows.KeyNetwork], "/"); own && of == namespace {
			ids[marks[nbrows.KeyNetwork]] = true
		}
	}
	for _, port := range on.ports {
		add(port.ExternalIDs)
	}
	for _, route := range on.routes {
		add(route.ExternalIDs)
	}
	return nbrows.SortedKeys(ids)
}
