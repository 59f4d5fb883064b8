//go:build sriov

package scenarios

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestMainJob attaches pods on two nodes to OVN networks through the kernel's datapath: packets of the full size and TCP get
// from pod to pod, those between nodes through a tunnel, and nothing is left.
func TestMainJob(t *testing.T) {
	w := newWorld(t)
	a := w.Attached(0, "a", "blue,green")
	near := w.Attached(0, "near", "blue")
	far := w.Attached(1, "far", `[{"name":"blue"},{"name":"green","interface":"data0","ips":["10.2.7.7","fd02::77"]}]`)
	for _, n := range w.Nodes {
		datapath := w.VSCtl(n, "--bare", "--columns=datapath_type", "find", "Bridge", "name=br-int")
		equal(t, "datapath of "+n.Name, datapath, "system")
	}
	equal(t, "MTU: underlay less Geneve", w.Links(a)["net1"].MTU, 1600-58)
	equal(t, "addresses", w.Links(far)["data0"].IPs(), []string{"10.2.7.7", "fd02::77"})
	features := w.Exec(a, "ethtool", "-k", "net1")
	if !strings.Contains(features, "tx-checksumming: on") {
		t.Errorf("the kernel's datapath needs no checksums of pods:\n%s", features)
	}

	before := w.tunnelled(w.Nodes[0])
	w.MustReach(near, w.Links(a)["net1"].IPs()...)
	w.Must(lab.Transfer(near, a, w.Links(a)["net1"].IPs()[0]))
	if sent := w.tunnelled(w.Nodes[0]) - before; sent > lab.TransferSize/2 {
		t.Errorf("%d bytes left the node for a pod that is on it", sent)
	}
	w.MustReach(a, w.Links(far)["net1"].IPs()...)
	for _, ip := range append(w.Links(far)["net1"].IPs(), w.Links(far)["data0"].IPs()...) {
		w.MustReach(a, ip)
		w.Must(lab.Transfer(a, far, ip))
	}
	if sent := w.tunnelled(w.Nodes[0]) - before; sent < 3*lab.TransferSize {
		t.Errorf("%d bytes through the tunnel between the nodes, which three megabytes are not", sent)
	}
	w.Exec(a, "ping", "-c1", "-W5", "-M", "do", "-s", fmt.Sprint(1542-28), w.Links(far)["net1"].IPs()[0])
	w.MustReach(a, w.Links(far)["eth0"].IPs()...) // Flannel's
	w.Over(a, near, far)
}

// tunnelled counts the bytes that a node has sent through its tunnels.
func (w *world) tunnelled(n *lab.Node) int {
	out := w.Exec(n, "ip", "-json", "-s", "link", "show", "genev_sys_6081")
	var links []struct {
		Stats struct {
			TX struct{ Bytes int }
		} `json:"stats64"`
	}
	w.Must(json.Unmarshal([]byte(out), &links))
	return links[0].Stats.TX.Bytes
}
