package e2e

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// TestAttachedAgain: a sandbox may be attached again after its DEL (CNI specification, section 2, ADD). Its host ends then have
// the names they had before, and an ovs-vswitchd that is behind would take the new links for the old ones: the pod would have
// interfaces and no packets. So it is waited for before they are made, and the ADD fails if that takes long.
func TestAttachedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, nil)
	peer, p := w.attached(0, "peer", "blue"), w.attached(0, "web", "blue")
	w.must(p.Node.VSwitchd.Pause())
	w.del(p)
	_, err := p.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "an earlier attempt of this sandbox is not released yet: ovs-vswitchd is behind: it still has the host-side veths open")
	w.must(p.Node.VSwitchd.Resume())
	for range 5 {
		w.del(p)
		w.add(p)
		w.mustReach(peer, w.links(p)["net1"].IPs()...)
	}
	w.end(p, peer)
	w.asBefore()
}

// TestAttachedOverAKilledADD: a runtime that repeats an ADD without the DEL that the specification wants between gets a pod
// whose packets pass, too.
func TestAttachedOverAKilledADD(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, nil)
	peer := w.attached(0, "peer", "blue")
	for range 5 {
		p, prev := w.withoutNetworks("web", "blue,green")
		_, err := p.Add(w.ctx, lab.OnlyOurs(prev), lab.WithEnv(failpoint.Env+"=bound"))
		w.killed(err)
		_, err = p.Add(w.ctx, lab.OnlyOurs(prev))
		w.must(err)
		w.mustReach(peer, w.links(p)["net1"].IPs()...)
		w.end(p)
	}
	w.end(peer)
	w.asBefore()
}
