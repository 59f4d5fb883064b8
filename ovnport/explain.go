package ovnport

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Explain says which of OVN's parts is behind with a port that got no flows: northd sets the column "up" of every
// port that it has seen, to false at first.
func (n *NB) Explain(ctx context.Context, sandbox string, e *NoFlows) error {
	ports, _, err := n.read(ctx, []string{e.Plug.PortUUID})
	row := ports[e.Plug.PortUUID]
	switch {
	case err != nil:
		return conf.Errorf(conf.CodeNoFlows, "is OVN's Northbound database reachable?", "%w (and the Northbound database does not answer: %v)", e, err)
	case row == nil:
		return conf.Errorf(conf.CodePodGone, "the pod was deleted or replaced meanwhile", "port %s is gone from the Northbound database", e.Plug.PortName)
	case row.ExternalIDs[keySandbox] != sandbox:
		return conf.Errorf(conf.CodePodGone, "a newer sandbox of the pod has taken it over", "port %s is not this sandbox's any more", e.Plug.PortName)
	case row.Up == nil:
		return conf.Errorf(conf.CodeNoFlows, "is ovn-northd running and connected?", "%w: ovn-northd is behind, it has not seen the port", e)
	default:
		return conf.Errorf(conf.CodeNoFlows, "is ovn-controller running on this node and connected to the Southbound database?",
			"%w: ovn-controller of this node is behind", e)
	}
}

// Check tells whether a port is there and the sandbox's.
func (n *NB) Check(ctx context.Context, sandbox, key string) error {
	ports, _, err := n.read(ctx, []string{key})
	if err != nil {
		return err
	}
	row := ports[key]
	if row == nil || row.ExternalIDs[keySandbox] != sandbox {
		return conf.Errorf(conf.CodeInternal, "recreate the pod", "its port %s is not this sandbox's in the Northbound database", key)
	}
	return nil
}

// Check tells whether a host end is plugged for the sandbox, with its flows.
func (v *OVS) Check(ctx context.Context, sandbox string, p Plug) error {
	if err := v.db.WaitConnected(ctx); err != nil {
		return err
	}
	iface := &vswitch.Interface{Name: p.HostEnd}
	if err := v.db.Client().Get(ctx, iface); err != nil {
		return conf.Errorf(conf.CodeInternal, "recreate the pod", "its host end %s is not in Open vSwitch: %w", p.HostEnd, err)
	}
	x := iface.ExternalIDs
	if x["sandbox"] != sandbox || x["iface-id"] != p.PortName || x["ovn-installed"] != "true" {
		return conf.Errorf(conf.CodeInternal, "is ovn-controller running on this node?", "its host end %s is not bound to its port", p.HostEnd)
	}
	return nil
}
