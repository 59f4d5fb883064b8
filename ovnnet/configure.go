package ovnnet

import "github.com/ovn-multinet/ovn-multinet/netmodel"

// settings are the operator's: the routers that --config describes, by their full names, and the grants of physical networks.
type settings struct {
	routers  map[string]*netmodel.Router
	physical netmodel.PhysicalGrants
}

// GrantPhysical says which namespaces may have localnet networks on which physical networks; without it none may. It is
// called before Run.
func (c *Controller) GrantPhysical(grants netmodel.PhysicalGrants) { c.physical = grants }

// Configure takes another configuration of the operator, instead of the one that counts. All gateways and networks are
// compared with it.
func (c *Controller) Configure(routers map[string]*netmodel.Router, grants netmodel.PhysicalGrants) {
	c.next.Store(&settings{routers, grants})
	c.queue.Add(item{kind: kindConfig})
}

// configure takes over what Configure was given last; false: it has been taken over.
func (c *Controller) configure() bool {
	next := c.next.Swap(nil)
	if next == nil {
		return false
	}
	c.networks.routers, c.physical = next.routers, next.physical
	clear(c.nodes) // the nodes of gateways are told anew
	return true
}

// NodesChanged says that a node is new or gone, or has other labels.
func (c *Controller) NodesChanged() { c.queue.Add(item{kind: kindNodes}) }

// lookAtGateways has all gateways compared.
func (c *Controller) lookAtGateways() {
	for name, r := range c.networks.routers {
		if r.HasGateway() {
			c.queue.Add(gatewayItem(name))
		}
	}
}
