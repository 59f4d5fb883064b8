package check

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// TestDistrusted: what an operator sees from the label on a node to the end of the node's access.
func TestDistrusted(t *testing.T) {
	c := installed()
	says(t, c.checkDistrusted(), "distrusted", "no node is distrusted")
	c.Nodes[1].Labels = map[string]string{conf.DistrustedLabel: ""}
	const to = "warning distrusted: "
	judged(t, c.checkDistrusted(), to+"the chart does not run OVN, so the node's access does not end by itself on node2")
	c.Authority = map[string]string{}
	judged(t, c.checkDistrusted(), to+"the node has access on node2")
	c.Authority[authority.RotationKey] = "since noon"
	c.Pods = append(c.Pods, podOf(controllerApp, "c1", "node1"), podOf(controllerApp, "c2", "node2"))
	judged(t, c.checkDistrusted(), to+"the node has access until all certificates are replaced: since noon on node2",
		to+"root of the node can read the token of a controller (pod c2) on node2")
	c.Pods = nil
	c.Authority = map[string]string{authority.DistrustedKey: "node1 node2"}
	says(t, c.checkDistrusted(), "distrusted", "the node has no access to OVN")
}
