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
				return nbrows.Refusedf("router: subnet %s overlaps %s of %s on router %s", subnet, other.Masked(), what, name)
			}
		}
		return nil
	}
	for _, r := range on.routes {
		if r.Nexthop != nbrows.Discard {
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

// onRouter is what a router has.
type onRouter struct {
	router *nb.LogicalRouter
	ports  []*nb.LogicalRouterPort
	// routes show the whole of a layer3 network, of which ports show the blocks that nodes have.
	routes []*nb.LogicalRouterStaticRoute
}

func (n *Networks) readOnRouter(ctx context.Context, name string) (*onRouter, error) {
	key := ovndb.RouterKey(name)
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalRouterTable, key, "ports", "static_routes")})
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

// unchanged asserts that the router has this still.
func (on *onRouter) unchanged() []ovsdb.Operation {
	return []ovsdb.Operation{
		nbrows.HoldsPorts(nb.LogicalRouterTable, on.router.UUID, on.router.Ports), nbrows.HoldsRoutes(on.router.UUID, on.router.StaticRoutes),
	}
}

// networks are the networks of a namespace that are on the router.
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
