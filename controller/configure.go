package controller

// configure applies the operator's configuration from the last call of Queue.Configure. It returns false if that
// configuration is already applied.
func (c *Controller) configure() bool {
	next := c.changes.next.Swap(nil)
	if next == nil {
		return false
	}
	c.gateways.Configure(next.routers)
	c.physical = next.physical
	clear(c.nodes) // log the nodes of all gateways again
	return true
}

// queueGateways queues all gateways.
func (c *Controller) queueGateways() {
	for _, name := range c.gateways.Names() {
		c.queue.Add(gatewayItem(name))
	}
}
