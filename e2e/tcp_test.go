package e2e

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestTCP sends a megabyte from pod to pod, between nodes and on one node, over IPv4 and IPv6. Pings pass where TCP
// does not: a userspace datapath drops what the kernel left without a checksum.
func TestTCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	from, near, far := w.attached(0, "from", "green"), w.attached(0, "near", "green"), w.attached(1, "far", "green")
	for _, to := range []*lab.Pod{near, far} {
		for _, ip := range w.links(to)["net1"].IPs() {
			w.mustReach(from, ip)
			w.must(lab.Transfer(from, to, ip))
		}
	}
	w.end(from, near, far)
	w.asBefore()
}
