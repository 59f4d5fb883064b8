package ovnnet

import (
	"context"
	"errors"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
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
		return nil, refusedf("%v", err)
	}
	return c.guards, nil
}

// listed refuses a network on a router for which the operator does not list it.
func (n *Networks) listed(network *netmodel.Network) error {
	check := network.CheckClusterRouter
	if r := n.routers[network.Router]; r != nil {
		check = func() error { return r.CheckJoin(network) }
	}
	if err := check(); err != nil {
		return refusedf("%v", err)
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
	switches, err := ovndb.ReadByKey[nb.LogicalSwitch](ctx, n.db, nb.LogicalSwitchTable, keys, "_uuid", "external_ids")
	if err != nil {
		return nil, err
	}
	c := &consent{}
	for _, sw := range switches {
		owner := inForce(sw)
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
func (n *Networks) Expel(ctx context.Context, network *netmodel.Network, accepted []string) (reason *Refused, err error) {
	no := n.listed(network)
	if no == nil && network.IsGuest() {
		c, err := n.consentOf(ctx, network.Router)
		if err != nil {
			return nil, err
		}
		if err := network.CheckGuest(slices.Concat(c.guests, c.former)); err != nil {
			no = refusedf("%v", err)
		}
	}
	if no == nil {
		return nil, nil
	}
	reason, _ = errors.AsType[*Refused](no)
	_, err = n.Ensure(ctx, network.WithoutRouter(), accepted)
	return reason, err
}

// noteGuest keeps the router of another namespace that a network is on.
func (c *Controller) noteGuest(id string, inForce *netmodel.Network) {
	delete(c.guests, id)
	if inForce != nil && inForce.IsGuest() {
		c.guests[id] = inForce.Router
	}
}

// expel detaches a network from a router where it may not be any more. standing is then what is left.
func (c *Controller) expel(ctx context.Context, i item, standing *Standing) error {
	network := standing.InForce
	if network == nil || network.Router == "" {
		return nil
	}
	reason, err := c.networks.Expel(ctx, network, standing.Accepted)
	if err != nil || reason == nil {
		return err
	}
	c.log.Warn("network is detached from its router", "network", i.id, "router", network.Router, "reason", reason)
	standing.InForce = network.WithoutRouter()
	delete(c.guests, i.id)
	c.routerChanged(i, network.Router)
	return nil
}

// routerChanged has the networks looked at that a change of a network on the router may concern: networks that are refused
// on that router, and guests, whose consent the owner's network may have withdrawn. The look at a guest counts as one for
// the tenant of this change, so that no guest delays the look by changes of its own.
func (c *Controller) routerChanged(i item, router string) {
	c.wake(router)
	if router == "" || netmodel.RouterNamespace(router) != namespaceOf(i.id) {
		return
	}
	for guest, of := range c.guests {
		if of == router {
			look := item{kindNetwork, guest, i.tenant}
			delete(c.waits, look)
			c.queue.Add(look)
		}
	}
}
