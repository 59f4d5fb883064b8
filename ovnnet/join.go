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

// mayJoin refuses a network on a router that it may not join: the operator's list decides where --config describes the
// router, and the networks of the router's namespace decide about another namespace's. It returns the assertion that these
// networks still consent.
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

// listed refuses a network on a router for which the operator does not list it.
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

// consent is what the networks of a router's namespace that are on the router say of guests.
type consent struct {
	guests []netmodel.Guest
	guards []ovsdb.Operation // assert that these networks are as they were read
	// former are the guests that networks with the mark of another cluster list. After an adoption every network has that
	// mark until its next look.
	former []netmodel.Guest
}

// consentOf reads the accepted networks of the router's namespace that are on the router.
func (n *Networks) consentOf(ctx context.Context, router string) (*consent, error) {
	on, err := n.readOnRouter(ctx, router)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, id := range on.networks(netmodel.RouterNamespace(router)) {
		keys = append(keys, ovndb.SwitchKey(id))
	}
	switches, err := ovndb.ReadByKey[nb.LogicalSwitch](ctx, n.Db, nb.LogicalSwitchTable, keys, "_uuid", "external_ids")
	if err != nil {
		return nil, err
	}
	c := &consent{}
	for _, sw := range switches {
		owner := nbrows.AcceptedConfig(sw)
		if owner == nil || owner.Router != router || len(owner.Guests) == 0 {
			continue
		}
		accepted := ovndb.AcceptedPrefix + owner.NAD()
		if sw.ExternalIDs[accepted] == "" {
			continue // the network is being deleted
		}
		if ovndb.OtherCluster(sw.ExternalIDs) != "" {
			c.former = append(c.former, owner.Guests...)
			continue
		}
		c.guests = append(c.guests, owner.Guests...)
		guard := ovndb.Present(nb.LogicalSwitchTable, sw.UUID)
		guard.Where = append(guard.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(map[string]string{
			ovndb.ConfigKey: sw.ExternalIDs[ovndb.ConfigKey], accepted: sw.ExternalIDs[accepted],
		})))
		c.guards = append(c.guards, guard)
	}
	return c, nil
}

// Expel detaches a network from its router if the network may not be there any more: its pods keep their ports and reach
// each other. network is the accepted configuration, accepted are the NADs whose ports it takes. A guest of a network that
// this cluster has adopted and not looked at yet stays: that look decides.
func (n *Networks) DetachForbidden(ctx context.Context, network *netmodel.Network, accepted []string) (reason *nbrows.Refused, err error) {
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
