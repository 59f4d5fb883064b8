package controller

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// noteGuest keeps the router of another namespace that a network is on.
func (c *Controller) noteGuest(id string, inForce *netmodel.Network) {
	delete(c.guests, id)
	if inForce != nil && inForce.IsGuest() {
		c.guests[id] = inForce.Router
	}
}

// expel detaches a network from a router where it may not be any more. standing is then what is left.
func (c *Controller) detachForbidden(ctx context.Context, i item, standing *ovnnet.Stored) error {
	network := standing.Config
	if network == nil || network.Router == "" {
		return nil
	}
	reason, err := c.networks.DetachForbidden(ctx, network, standing.NADs)
	if err != nil || reason == nil {
		return err
	}
	c.log.Warn("network is detached from its router", "network", i.id, "router", network.Router, "reason", reason)
	standing.Config = network.WithoutRouter()
	delete(c.guests, i.id)
	c.routerChanged(i, network.Router)
	return nil
}

// routerChanged has the networks looked at that a change of a network on the router may concern: networks that are refused
// on that router, and guests, whose consent the owner's network may have withdrawn. The look at a guest counts as one for
// the tenant of this change, so that no guest delays the look by changes of its own.
func (c *Controller) routerChanged(i item, router string) {
	c.retryOnRouter(router)
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
