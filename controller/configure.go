package controller

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// configure applies the operator's configuration from the last call of Queue.Configure. It returns false if that
// configuration is already applied.
func (c *Controller) configure() bool {
	next := c.changes.next.Swap(nil)
	if next == nil {
		return false
	}
	c.gateways.Configure(next.Routers)
	c.physical, c.profiles = next.Physical, next.Profiles
	c.engine.Limit(next.Limits)
	clear(c.nodes) // log the nodes of all gateways again
	return true
}

// reconcileConfig applies the operator's configuration if it is new, and queues all that may depend on it.
func (c *Controller) reconcileConfig(context.Context, engine.Item) error {
	if c.configure() {
		c.queueGateways()
		c.engine.Add(everything)
	}
	return nil
}

// reconcileNodes queues all gateways, because the nodes have changed.
func (c *Controller) reconcileNodes(context.Context, engine.Item) error {
	c.queueGateways()
	c.nets.ForgetNodes()
	return nil
}

// reconcileProfiles writes for the agents which security profiles the operator allows.
func (c *Controller) reconcileProfiles(ctx context.Context, _ engine.Item) error {
	texts := map[string]string{}
	dhcpServers := false
	for name, p := range c.profiles {
		texts[name] = p.Encode()
		dhcpServers = dhcpServers || p.PortGroup == netmodel.DHCPServersGroup
	}
	changed, err := policies.EnsureProfiles(ctx, c.rows, texts, dhcpServers)
	if changed {
		c.log.Info("the security profiles have changed", "profiles", len(texts))
	}
	return err
}

// queueGateways queues all gateways.
func (c *Controller) queueGateways() {
	for _, name := range c.gateways.Names() {
		c.engine.Add(gatewayItem(name))
	}
}
