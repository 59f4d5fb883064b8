package controller

import (
	"context"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/uplinks"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// configure applies the operator's configuration: what the file of the last call of Queue.Configure and the operator's
// objects say. It returns false if that configuration is already applied.
func (c *Controller) configure(ctx context.Context) (bool, error) {
	if next := c.changes.next.Swap(nil); next != nil {
		c.kinds.entries.Replace(*next)
	}
	now, changed, err := c.kinds.entries.Operator(ctx)
	if !changed || err != nil {
		return false, err
	}
	c.gateways.Configure(now.Routers)
	c.physical, c.profiles = now.Physical, now.Profiles
	c.kinds.uplinks.Configure(now.Uplinks, now.Tagged)
	c.engine.Limit(now.Limits)
	clear(c.nodes) // log the nodes of all gateways again
	return true, nil
}

// begin applies the operator's configuration before the first pass: without it, a pass would delete what objects
// describe. It returns false at the end of ctx.
func (c *Controller) begin(ctx context.Context) bool {
	for {
		one, cancel := context.WithTimeout(ctx, engine.OneChange)
		_, err := c.configure(one)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			c.log.Warn("cannot read the operator's objects yet", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}

// reconcileConfig applies the operator's configuration if it is new, and queues all that may depend on it.
func (c *Controller) reconcileConfig(ctx context.Context, _ engine.Item) error {
	changed, err := c.configure(ctx)
	if changed {
		c.queueGateways()
		c.engine.Add(everything)
	}
	return err
}

// reconcileNodes queues all gateways and uplinks, because the nodes have changed.
func (c *Controller) reconcileNodes(context.Context, engine.Item) error {
	c.queueGateways()
	c.engine.Add(uplinks.Item)
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
