//go:build kube

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// distributions are those whose nodes have other folders than kubeadm's. They stand here as their documentation names
// them, and not as the chart does.
var distributions = map[string]kube.Folders{
	"k3s": {
		ConfLists: "/var/lib/rancher/k3s/agent/etc/cni/net.d", Plugins: "/var/lib/rancher/k3s/data/cni", Kubelet: "/var/lib/kubelet",
	},
	"microk8s": {
		ConfLists: "/var/snap/microk8s/current/args/cni-network", Plugins: "/var/snap/microk8s/current/opt/cni/bin",
		Kubelet: "/var/snap/microk8s/common/var/lib/kubelet",
	},
}

// TestDistributions installs the chart, with the nodes' own OVN, on a node whose folders are those of a distribution, and
// uninstalls it. Only the folders are the distribution's.
func TestDistributions(t *testing.T) {
	t.Parallel()
	for name, folders := range distributions {
		t.Run(name, func(t *testing.T) {
			w := bareWorld(t, kube.Options{Nodes: 1, Folders: folders})
			w.Must(w.LoadImages(w.Ctx))
			endpoint, secrets, err := w.ServeNBOverTLS(w.Ctx, "ovn-multinet")
			w.Must(err)
			w.Must(w.Apply(w.Ctx, "apiVersion: v1\nkind: Namespace\nmetadata: {name: ovn-multinet}\n---\n"+secrets))
			w.Must(w.InstallChart(w.Ctx, fmt.Sprintf("distribution: %s\novn: {enabled: false, nbEndpoints: [%q]}\n", name, endpoint)))
			w.Must(w.WaitRollout(w.Ctx))
			w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+pod("a", "node1", "blue")))
			w.Must(w.WaitReady(w.Ctx, "default/a"))
			w.hasLinks("a", 2)
			w.kubectl("delete", "pod", "a", "--grace-period=0")
			w.kubectl("delete", "net-attach-def", "blue")
			if out, err := w.Helm(w.Ctx, "uninstall", "ovn-multinet", "--timeout=15m"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, file := range []string{filepath.Base(ourConflist), filepath.Base(ourPlugin)} {
				for _, folder := range []string{folders.ConfLists, folders.Plugins} {
					if _, err := os.Stat(w.Nodes[0].Path(filepath.Join(folder, file))); err == nil {
						t.Errorf("after the uninstall %s has %s", folder, file)
					}
				}
			}
			w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
		})
	}
}
