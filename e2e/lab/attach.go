package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// StartAttach runs ovn-multinet-attach on the node, which changes the networks of running pods. The node's agent needs
// the flag --attach. env is added to its environment, and to that of the plugin.
func (n *Node) StartAttach(ctx context.Context, env ...string) error {
	if n.Attach != nil {
		n.Attach.env = append(n.Attach.env, env...)
		return n.Attach.start(ctx)
	}
	path, err := n.lab.binary("ovn-multinet-attach")
	if err != nil {
		return err
	}
	list, err := n.ConfList()
	if err != nil {
		return err
	}
	dir := filepath.Join(n.Dir, "attach.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, conf.ConflistName), list, 0o644); err != nil {
		return err
	}
	n.Attach, err = n.lab.run(ctx, &Process{
		Name: n.Name + "/ovn-multinet-attach", netns: n.NetNS, env: env, log: filepath.Join(n.Dir, "attach.log"),
		args: []string{path, "--net-dir", dir, "--bin-dir", strings.Join([]string{n.lab.bins.CNI, n.lab.bins.Ours}, ":"),
			"--cni-cache", n.cacheDir(), "--socket", n.AgentSocket},
	})
	return err
}
