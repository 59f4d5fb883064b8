package kube

import (
	"context"
	"os"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// PrimaryConfList is Flannel's conflist on a node.
const PrimaryConfList = "/etc/cni/net.d/10-flannel.conflist"

// RewritePrimary does what Flannel's init container does at each start: it writes the conflist into the file that is there.
func (n *Node) RewritePrimary(text []byte) error {
	return os.WriteFile(n.Path(PrimaryConfList), text, 0o644)
}

// PatchAgents changes the DaemonSet that the installed product's agents and installers are of, by a JSON patch, and returns when
// it is so on all nodes.
func (c *Cluster) PatchAgents(ctx context.Context, patch string) error {
	if _, err := c.Kubectl(ctx, "--namespace", "ovn-multinet", "patch", "daemonset", "agent", "--type=json", "--patch="+patch); err != nil {
		return err
	}
	return c.rolledOut(ctx, "daemonset/agent")
}

// DeleteProduct deletes what InstallProduct made, by the manifests, and returns when it is gone.
func (c *Cluster) DeleteProduct(ctx context.Context) error {
	_, err := c.kubectl(ctx, strings.NewReader(images.Manifests), "delete", "--ignore-not-found", "--wait", "-f", "-",
		"--selector", "!"+entry.KeepLabel)
	return err
}
