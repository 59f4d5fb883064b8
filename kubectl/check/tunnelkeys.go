package check

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// smallRange is the number of tunnel keys that OVN has for the whole cluster when a chassis lists the encapsulation
// VXLAN, and smallNetwork the number of ports that it then binds on a network (ovn-architecture(7), "Tunnel
// Encapsulations"). With Geneve alone OVN has 16,711,680 keys.
const (
	smallRange   = 4095
	smallNetwork = 2047
)

// CheckTunnelKeys judges how many tunnel keys ovn-northd has for the whole cluster; 0: it has not said.
func (c *Cluster) CheckTunnelKeys(keys int, err error) []Finding {
	const what = "tunnel-keys"
	switch {
	case !c.Installed():
		return nil
	case apierrors.IsForbidden(err):
		return []Finding{unread(what, "run this command with the right to create pods/exec in "+Namespace, err)}
	case err != nil:
		return []Finding{warning(what, "see the log of an agent", "no agent can read OVN's Northbound database: %v", err)}
	case keys == 0:
		return nil
	case keys > smallRange:
		return []Finding{ok(what, "OVN has %d for the cluster", keys)}
	}
	find := "ovn-sbctl --columns=chassis_name find Encap type=vxlan"
	if c.bringsOVN() {
		find = "kubectl multinet sbctl -- --columns=chassis_name find Encap type=vxlan"
	}
	return []Finding{fault(what, "see which one: "+find+"; take vxlan out of its ovn-encap-type, "+
		"or distrust the node and delete its chassis; newer OVN: set vxlan_mode=false in NB_Global",
		"a chassis lists the encapsulation VXLAN: OVN has %d tunnel keys for the whole cluster, and binds %d ports on a "+
			"network", keys, smallNetwork)}
}
