package ovnport

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Explain says which of OVN's parts is behind with a port that got no flows: northd sets the column "up" of every
// port that it has seen, to false at first.
func (n *NB) Explain(ctx context.Context, e *NoFlows) error {
	ports, _, err := n.read(ctx, []string{e.Plug.PortUUID})
	row := ports[e.Plug.PortUUID]
	switch {
	case err != nil:
		return conf.Errorf(conf.CodeNoFlows, "is OVN's Northbound database reachable?", "%w (and the Northbound database does not answer: %v)", e, err)
	case row == nil:
		return conf.Errorf(conf.CodePodGone, "the pod was deleted or replaced meanwhile", "port %s is gone from the Northbound database", e.Plug.PortName)
	case row.Up == nil:
		return conf.Errorf(conf.CodeNoFlows, "is ovn-northd running and connected?", "%w: ovn-northd is behind, it has not seen the port", e)
	default:
		return conf.Errorf(conf.CodeNoFlows, "is ovn-controller running on this node and connected to the Southbound database?",
			"%w: ovn-controller of this node is behind", e)
	}
}
