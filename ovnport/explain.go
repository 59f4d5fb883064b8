package ovnport

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Explain says which of OVN's parts is behind with a port that got no flows: northd sets the column "up" of every
// port that it has seen, to false at first.
func (n *NB) Explain(ctx context.Context, sandbox string, e *NoFlows) error {
	ports, _, err := n.read(ctx, []string{e.Port.PortUUID})
	row := ports[e.Port.PortUUID]
	switch {
	case err != nil:
		return conf.Errorf(conf.CodeNoFlows, "is OVN's Northbound database reachable?", "%w (and the Northbound database does not answer: %v)", e, err)
	case row == nil:
		return conf.Errorf(conf.CodePodGone, "the pod was deleted or replaced meanwhile", "port %s is gone from the Northbound database", e.Port.PortName)
	case row.ExternalIDs[keySandbox] != sandbox:
		return conf.Errorf(conf.CodePodGone, "a newer sandbox of the pod has taken it over", "port %s is not this sandbox's any more", e.Port.PortName)
	case row.Up == nil:
		return conf.Errorf(conf.CodeNoFlows, "is ovn-northd running and connected?", "%w: ovn-northd is behind, it has not seen the port", e)
	default:
		return conf.Errorf(conf.CodeNoFlows, "is ovn-controller running on this node and connected to the Southbound database?",
			"%w: ovn-controller of this node is behind", e)
	}
}

// Check tells whether a port is there, is the sandbox's and has its addresses: what OVN delivers goes by them.
func (n *NB) Check(ctx context.Context, sandbox, key, mac string, addresses []netip.Prefix) error {
	ports, _, err := n.read(ctx, []string{key})
	if err != nil {
		return unreachable(err)
	}
	row := ports[key]
	if row == nil || row.ExternalIDs[keySandbox] != sandbox {
		return conf.Errorf(conf.CodeNotAsMade, "recreate the pod", "its port %s is not this sandbox's in the Northbound database", key)
	}
	want := []string{mac}
	for _, a := range addresses {
		want = append(want, a.Addr().String())
	}
	var got []string
	if len(row.Addresses) > 0 { // a second element is "unknown"
		got = strings.Fields(row.Addresses[0])
	}
	if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		return conf.Errorf(conf.CodeNotAsMade, "someone changed it there; recreate the pod",
			"its port %s has the addresses %q in the Northbound database, not its own", row.Name, row.Addresses)
	}
	return nil
}

// Check tells whether a host end is plugged for the sandbox, with its flows.
func (v *OVS) Check(ctx context.Context, sandbox string, p OVSPort) error {
	iface := &vswitch.Interface{Name: p.HostVeth}
	err := v.db.WaitConnected(ctx)
	if err == nil {
		err = v.db.Client().Get(ctx, iface)
	}
	if errors.Is(err, client.ErrNotFound) {
		return conf.Errorf(conf.CodeNotAsMade, "recreate the pod", "its host end %s is not in Open vSwitch", p.HostVeth)
	}
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "is Open vSwitch running on this node?", "%w", err)
	}
	x := iface.ExternalIDs
	if x["sandbox"] != sandbox || x["iface-id"] != p.PortName || x["ovn-installed"] != "true" {
		return conf.Errorf(conf.CodeNotAsMade, "is ovn-controller running on this node?", "its host end %s is not bound to its port", p.HostVeth)
	}
	return nil
}
