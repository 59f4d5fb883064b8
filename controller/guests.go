package controller

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// noteGuest notes whether a network is a guest on a router of another namespace. accepted is the accepted
// configuration.
func (c *Controller) noteGuest(id string, accepted *netmodel.Network) {
	delete(c.guests, id)
	if accepted != nil && accepted.IsGuest() {
		c.guests[id] = accepted.Router
	}
}

// detachForbidden detaches a network from its router if the network may not be there any more, and updates standing.
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

// routerChanged queues the networks that a change of network i on the router may concern. These are the refused
// networks of that router. If network i is in the router's own namespace, they are also the guests on the router,
// because the change may withdraw the consent to them. The pass over a guest has the tenant of this change, so that a
// guest cannot delay the pass by spending its own budget.
func (c *Controller) routerChanged(i item, router string) {
	c.retryOnRouter(router)
	if router == "" || netmodel.RouterNamespace(router) != namespaceOf(i.id) {
		return
	}
	for guest, of := range c.guests {
		if of == router {
			network := item{kindNetwork, guest, i.tenant}
			delete(c.waits, network)
			c.queue.Add(network)
		}
	}
}
