package check

import (
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// checkDistrusted says of each distrusted node whether it still has access to OVN.
func (c *Cluster) checkDistrusted() (all []Finding) {
	const what = "distrusted"
	if c.unreadable(what) {
		return nil
	}
	ended := strings.Fields(c.Authority[authority.DistrustedKey])
	for i := range c.Nodes {
		name := c.Nodes[i].Name
		if !conf.Distrusted(c.Nodes[i].Labels) {
			continue
		}
		switch rotation := c.Authority[authority.RotationKey]; {
		case c.Authority == nil:
			all = append(all, warning(what, "replace the node's certificate for NB and SB, or their authority",
				"the chart does not run OVN, so the node's access does not end by itself").at(name))
		case slices.Contains(ended, name):
			all = append(all, ok(what, "the node has no access to OVN").at(name))
		case rotation != "":
			all = append(all, warning(what, "wait, and check again",
				"the node has access until all certificates are replaced: %s", rotation).at(name))
		default:
			all = append(all, warning(what, "wait a minute, and check again; then see the controller's log. With another "+
				"signer, replace its authority", "the node has access").at(name))
		}
		for j := range c.Pods {
			if p := &c.Pods[j]; p.Labels[agentLabel] == controllerApp && p.Spec.NodeName == name {
				all = append(all, warning(what, "kubectl -n "+Namespace+" delete pod "+p.Name,
					"root of the node can read the token of a controller (pod %s)", p.Name).at(name))
			}
		}
	}
	if len(all) == 0 {
		all = append(all, ok(what, "no node is distrusted"))
	}
	return all
}
