//go:build kube

package scenarios

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// ownOVN are the values of a chart that brings OVN. The nodes' kernel has no datapath for it.
const ownOVN = `
ovn: {enabled: true, datapath: auto, tunnelInterface: eth1, replaceAfter: 10s}
`

// TestOVNInTheCluster installs the chart on nodes without OVN and Open vSwitch. Then a member of the databases loses its
// disk, and all nodes lose their power at once: the pods get their networks again, and nobody waits for somebody else.
func TestOVNInTheCluster(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 3, WithoutOVN: true})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.InstallChart(w.Ctx, ownOVN))
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	for _, n := range w.Nodes {
		w.Must(lab.Eventually(w.Ctx, func() error {
			_, err := os.Stat(n.Path("/etc/cni/net.d/05-ovn-multinet.conflist"))
			return err
		}))
	}
	var all []string
	for i := range w.Nodes {
		name := fmt.Sprint("web-", i+1)
		w.Must(w.Apply(w.Ctx, pod(name, fmt.Sprint("node", i+1), "blue")))
		all = append(all, "default/"+name)
	}
	w.Must(w.WaitReady(w.Ctx, all...))
	reach := func() {
		t.Helper()
		for i := range w.Nodes {
			for _, ip := range w.links(fmt.Sprint("web-", i+1))["net1"].ips() {
				w.reaches("web-1", "net1", ip)
			}
		}
	}
	reach()
	addresses := w.links("web-3")["net1"].ips()

	member := w.podOn("app=ovn-multinet-ovn-central", "node2")
	for _, name := range []string{"nb", "sb"} {
		for _, file := range []string{".db", ".id"} {
			w.Must(os.Remove(w.Nodes[1].Path("/var/lib/ovn-multinet/ovn/" + name + file)))
		}
	}
	w.kubectl("--namespace", "ovn-multinet", "delete", "pod", member)
	w.Must(lab.Eventually(w.Ctx, func() error {
		now := w.podOn("app=ovn-multinet-ovn-central", "node2")
		if now == "" || now == member {
			return fmt.Errorf("node2 has the pod %q", now)
		}
		return nil
	}))
	w.Must(w.WaitReady(w.Ctx, "ovn-multinet/"+w.podOn("app=ovn-multinet-ovn-central", "node2")))
	w.Must(w.Apply(w.Ctx, pod("later", "node2", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/later"))

	w.Must(w.Reboot(w.Ctx, kube.RebootOptions{}, w.Nodes...))
	w.Must(lab.Eventually(w.Ctx, func() error {
		for _, name := range append(all, "default/later") {
			p := w.getPod(name)
			if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].RestartCount == 0 ||
				!p.Status.ContainerStatuses[0].Ready {
				return fmt.Errorf("pod %s does not run again", name)
			}
		}
		return nil
	}))
	reach()
	if now := w.links("web-3")["net1"].ips(); !slices.Equal(now, addresses) {
		t.Errorf("after the reboot web-3 has %v, before %v", now, addresses)
	}
}

// podOn is the name of one of our pods on a node; "": there is none.
func (w *world) podOn(labels, node string) string {
	return w.kubectl("--namespace", "ovn-multinet", "get", "pods", "--selector", labels,
		"--field-selector", "spec.nodeName="+node, "--output", "jsonpath={.items[*].metadata.name}")
}
