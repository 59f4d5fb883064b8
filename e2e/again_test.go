package e2e

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestAttachedAgain: a sandbox may be attached again after its DEL (CNI specification, section 2, ADD). Its host end then has
// the name it had before, and Open vSwitch, if it saw both changes at once, would keep the link that is gone: the pod
// would have an interface and no packets. So a switch that is behind is waited for, and the ADD fails if that takes long.
func TestAttachedAgain(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, nil)
	peer, p := w.attached(0, "peer", "blue"), w.attached(0, "web", "blue")
	w.must(p.Node.VSwitchd.Pause())
	w.del(p)
	_, err := p.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "ovs-vswitchd is behind, it has not let go of the host ends that container "+p.Sandbox+" had before")
	w.must(p.Node.VSwitchd.Resume())
	for range 5 {
		w.del(p)
		w.add(p)
		w.mustReach(peer, w.links(p)["net1"].IPs()...)
	}
	w.end(p, peer)
	w.asBefore()
}
