package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// preset is what the chart sets for a distribution.
type preset struct {
	ConfDir       string
	BinDir        string
	KeepOnPrimary []netip.Prefix
}

func prefixes(all ...string) (out []netip.Prefix) {
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// distributions is the table of images/chart/distributions.yaml.
var distributions = map[string]preset{
	"kubeadm": {"/etc/cni/net.d", "/opt/cni/bin", prefixes("10.244.0.0/16", "10.96.0.0/12")},
	"k3s": {
		"/var/lib/rancher/k3s/agent/etc/cni/net.d", "/var/lib/rancher/k3s/data/cni", prefixes("10.42.0.0/16", "10.43.0.0/16"),
	},
	"rke2": {"/etc/cni/net.d", "/opt/cni/bin", prefixes("10.42.0.0/16", "10.43.0.0/16")},
	"microk8s": {
		"/var/snap/microk8s/current/args/cni-network", "/var/snap/microk8s/current/opt/cni/bin",
		prefixes("10.1.0.0/16", "10.152.183.0/24"),
	},
}

// distributionOf returns the chart's value for a node. A distribution that the chart does not know has the folders of
// kubeadm in most cases.
func distributionOf(n *corev1.Node) string {
	version := n.Status.NodeInfo.KubeletVersion
	_, micro := n.Labels["microk8s.io/cluster"]
	switch {
	case strings.Contains(version, "+k3s"):
		return "k3s"
	case strings.Contains(version, "+rke2"):
		return "rke2"
	case micro:
		return "microk8s"
	}
	return "kubeadm"
}

// distribution returns the chart's value for the cluster, or "" if the nodes differ or there are none.
func (c *Cluster) distribution() string {
	all := c.distributions()
	if len(all) != 1 {
		return ""
	}
	return all[0]
}

func (c *Cluster) distributions() (all []string) {
	for i := range c.Nodes {
		if name := distributionOf(&c.Nodes[i]); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func (c *Cluster) checkDistribution(p Plan) []Finding {
	const what = "distribution"
	all := c.distributions()
	switch {
	case len(all) == 0:
		return nil
	case len(all) > 1:
		return []Finding{fault(what, "install on the nodes of one distribution: the folders of CNI differ",
			"the nodes are of several distributions: %s", strings.Join(all, ", "))}
	}
	found := all[0]
	info := c.Nodes[0].Status.NodeInfo
	seen := fmt.Sprintf("kubelet %s on %s", info.KubeletVersion, info.OSImage)
	preset := distributions[found]
	switch {
	case p.Distribution != "" && p.Distribution != found:
		return []Finding{fault(what, "set the value distribution to "+found,
			"the value is %s, and the nodes have %s", p.Distribution, seen)}
	case p.Distribution == "" && (p.NetDir != preset.ConfDir || p.BinDir != preset.BinDir):
		return []Finding{warning(what, fmt.Sprintf("set the value distribution to %s, if the nodes have the folders of %s",
			found, found), "%s, and the installer uses %s and %s", seen, p.NetDir, p.BinDir)}
	case found == "kubeadm":
		return []Finding{ok(what, "%s: the value distribution is kubeadm, the default", seen)}
	}
	if p.Distribution == "" && !c.Installed() {
		return []Finding{ok(what, "%s: set the value distribution to %s", seen, found)}
	}
	return []Finding{ok(what, "%s, folders of %s", seen, found)}
}
