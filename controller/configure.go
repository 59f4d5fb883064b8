package controller

// configure applies the configuration that Queue.Configure was given last. It returns false if that is applied already.
func (c *Controller) configure() bool {
	next := c.changes.next.Swap(nil)
	if next == nil {
		return false
	}
	c.gateways.Configure(next.routers)
	c.physical = next.physical
	clear(c.nodes) // the nodes of gateways are logged anew
	return true
}

// queueGateways has all gateways compared.
func (c *Controller) queueGateways() {
	for _, name := range c.gateways.Names() {
		c.queue.Add(gatewayItem(name))
	}
}
