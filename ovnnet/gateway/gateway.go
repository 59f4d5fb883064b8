package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Gateways writes the gateways of routers into OVN's Northbound database.
type Gateways struct {
	*nbrows.Store
	// routers are the routers that the controller's --config describes, by their full names.
	routers map[string]*netmodel.Router
	mtus    map[string]int // by router: see SetMTU
}

// New returns Gateways with the routers that the operator's configuration describes, by their full names.
func New(s *nbrows.Store, routers map[string]*netmodel.Router) *Gateways {
	return &Gateways{s, routers, map[string]int{}}
}

// SetMTU says which MTU the gateway of a router has from its next Ensure on: no larger packet leaves or enters by it.
// Without a call, and with 0, a gateway keeps the MTU that it has in NB.
func (n *Gateways) SetMTU(router string, mtu int) { n.mtus[router] = mtu }

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

// ReadCurrent adds the rows that say whether the gateway of a router exists and has the addresses of the operator's
// configuration. The routes of networks use these addresses as next hops. Call current after the rows have been read.
func (n *Gateways) ReadCurrent(reads *nbrows.Reads, router string) (current func() bool) {
	var gateway *nb.LogicalRouter
	var join, external *nb.LogicalRouterPort
	joinKey, externalKey := portKey(router, partJoin), portKey(router, partExternal)
	nbrows.ReadOne(reads, nb.LogicalRouterTable, ovndb.GatewayKey(router), &gateway, "_uuid", "external_ids")
	nbrows.ReadOne(reads, nb.LogicalRouterPortTable, joinKey, &join)
	nbrows.ReadOne(reads, nb.LogicalRouterPortTable, externalKey, &external)
	return func() bool {
		r := n.WithGateway(router)
		if r == nil || gateway == nil {
			return false
		}
		wanted := wantedRows(r).ports
		return nbrows.SamePort(join, wanted[joinKey]) && nbrows.SamePort(external, wanted[externalKey])
	}
}

// Chassis is a node and the name of its chassis in OVN.
type Chassis struct{ Node, Name, physical string }

// Ensure creates or updates the gateway of a router in one transaction, with the router if that is missing. nodes are
// the nodes that may have the gateway; the function order chooses their priorities. With nil the nodes and priorities
// do not change.
func (n *Gateways) Ensure(ctx context.Context, r *netmodel.Router, nodes []Chassis) (changed bool, err error) {
	return n.Change(ctx, "the gateway of router "+r.Name, func(b *nbrows.Batch) error {
		have, err := n.read(ctx, r.Name)
		if err != nil {
			return err
		}
		if have.routerRenamed {
			return cmp.Or(n.RenameRouter(ctx, r.Name), nbrows.ErrAgain)
		}
		wanted := wantedRows(r)
		wanted.setMTU(have, n.mtus[r.Name])
		if err := n.checkNetworks(ctx, r, have, wanted); err != nil {
			return err
		}
		var noted map[string]string
		if have.gateway != nil {
			noted = have.gateway.ExternalIDs
		}
		have.wire = &nbrows.BookClaims{}
		have.wire.Rows, err = n.ReadClaims(ctx, have.same(r.Name), noted, wanted.wire)
		if refused, ok := errors.AsType[*nbrows.Refused](err); ok {
			return nbrows.Refusedf("router %s: %s", r.Name, refused.Reason)
		}
		if err != nil {
			return err
		}
		members := have.order(r.Name, nodes)
		if nodes == nil {
			members = have.chassis
		}
		wanted.setMembers(members)
		return n.change(ctx, b, r.Name, have, wanted)
	})
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
