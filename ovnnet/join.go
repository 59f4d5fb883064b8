package ovnnet

import (
	"context"
	"errors"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// mayJoin refuses a network on a router that it may not join. If --config describes the router, the operator's list
// decides. If the router belongs to another namespace, the networks of that namespace decide, and mayJoin returns the
// assertions that these networks still consent.
func (n *Networks) mayJoin(ctx context.Context, network *netmodel.Network) ([]ovsdb.Operation, error) {
	if err := n.listed(network); err != nil || !network.IsGuest() {
		return nil, err
	}
	c, err := n.consentOf(ctx, network.Router)
	if err != nil {
		return nil, err
	}
	if err := network.CheckGuest(c.guests); err != nil {
		return nil, nbrows.Refusedf("%v", err)
	}
	return c.guards, nil
}

// listed refuses a network on a configured router if the operator does not allow the network there, and a network on a
// router of the whole cluster that is not configured.
func (n *Networks) listed(network *netmodel.Network) error {
	check := network.CheckClusterRouter
	if r := n.gateways.Router(network.Router); r != nil {
		check = func() error { return r.CheckJoin(network) }
	}
	if err := check(); err != nil {
		return nbrows.Refusedf("%v", err)
	}
	return nil
}

// consent lists the guests of a router. The networks of the router's own namespace name them.
type consent struct {
	guests []netmodel.Guest
	guards []ovsdb.Operation // assert that these networks are as they were read
	// former are the guests that networks with another cluster's identity name. After an adoption every network has the
	// old cluster's identity until its next reconcile pass.
	former []netmodel.Guest
}

// consentOf reads the accepted networks of the router's namespace that are on the router.
func (n *Networks) consentOf(ctx context.Context, router string) (*consent, error) {
	on, err := n.readOnRouter(ctx, router)
	if err != nil {
		return nil, err
	}
	rows, err := n.ReadAccepted(ctx, on.networks(netmodel.RouterNamespace(router)))
	if err != nil {
		return nil, err
	}
	c := &consent{}
	for _, id := range nbrows.SortedKeys(rows) {
		row := rows[id]
		owner := n.AcceptedConfig(row)
		if owner == nil || owner.Router != router || len(owner.Guests) == 0 {
			continue
		}
		accepted := ovndb.AcceptedPrefix + owner.NAD()
		if row.ExternalIDs[accepted] == "" {
			continue // the network is being deleted
		}
		if ovndb.OtherCluster(row.ExternalIDs) != "" {
			c.former = append(c.former, owner.Guests...)
			continue
		}
		c.guests = append(c.guests, owner.Guests...)
		guard := ovndb.Present(nb.CoppTable, row.UUID)
		guard.Where = append(guard.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
			ovndb.Map(map[string]string{
				ovndb.ConfigKey: row.ExternalIDs[ovndb.ConfigKey], accepted: row.ExternalIDs[accepted],
			})))
		c.guards = append(c.guards, guard)
	}
	return c, nil
}

// DetachForbidden detaches a network from its router if the network may no longer be on it. The network's pods keep
// their ports and reach each other. network is the accepted configuration, and accepted are the NADs whose ports the
// network takes. reason is nil if the network may stay. After an adoption a guest stays until the owner's network,
// which still has the old cluster's identity, has had a reconcile pass.
func (n *Networks) DetachForbidden(
	ctx context.Context, network *netmodel.Network, accepted []string,
) (reason *nbrows.Refused, err error) {
	no := n.listed(network)
	if no == nil && network.IsGuest() {
		c, err := n.consentOf(ctx, network.Router)
		if err != nil {
			return nil, err
		}
		if err := network.CheckGuest(slices.Concat(c.guests, c.former)); err != nil {
			no = nbrows.Refusedf("%v", err)
		}
	}
	if no == nil {
		return nil, nil
	}
	reason, _ = errors.AsType[*nbrows.Refused](no)
	_, err = n.Ensure(ctx, network.WithoutRouter(), accepted)
	return reason, err
}
