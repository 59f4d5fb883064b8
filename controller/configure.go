package controller

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// configure applies the operator's configuration from the last call of Queue.Configure. It returns false if that
// configuration is already applied.
func (c *Controller) configure() bool {
	next := c.changes.next.Swap(nil)
	if next == nil {
		return false
	}
	c.gateways.Configure(next.routers)
	c.physical, c.profiles = next.physical, next.profiles
	clear(c.nodes) // log the nodes of all gateways again
	return true
}

// reconcileProfiles tells the agents which security profiles the operator allows.
func (c *Controller) reconcileProfiles(ctx context.Context) error {
	texts := map[string]string{}
	for name, p := range c.profiles {
		texts[name] = p.Encode()
	}
	changed, err := policies.EnsureProfiles(ctx, c.rows, texts)
	if changed {
		c.log.Info("the security profiles have changed", "profiles", len(texts))
	}
	return err
}

// queueGateways queues all gateways.
func (c *Controller) queueGateways() {
	for _, name := range c.gateways.Names() {
		c.queue.Add(gatewayItem(name))
	}
}
