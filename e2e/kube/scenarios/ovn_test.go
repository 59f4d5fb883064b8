//go:build kube

package scenarios

import (
	"fmt"
	"os"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// ownOVN are the values of a chart that brings OVN. The nodes' kernel has no datapath for it.
const ownOVN = `
ovn: {enabled: true, datapath: auto, tunnelInterface: eth1, replaceAfter: 10s}
`

// TestOVNInTheCluster installs the chart on nodes without OVN and Open vSwitch.
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
	for i := range w.Nodes {
		for _, ip := range w.links(fmt.Sprint("web-", i+1))["net1"].ips() {
			w.reaches("web-1", "net1", ip)
		}
	}
}
