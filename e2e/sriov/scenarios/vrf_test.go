//go:build sriov

package scenarios

import "testing"

// TestVRF: a pod puts one of its two interfaces on a network into a VRF. The kernel then forgets the routes of the
// interface, the rule of the VRF comes before ours, and both interfaces answer at their addresses. CHECK leaves the routes
// of that interface to the pod, and misses them when the interface is out of the VRF again.
func TestVRF(t *testing.T) {
	w := newWorld(t)
	p, other := w.Pod(0, "routing", `[{"name":"green"},{"name":"green"}]`), w.Pod(1, "other", "green")
	w.AddInTheEnd(p)
	w.AddInTheEnd(other)
	one, two := w.Links(p)["net1"], w.Links(p)["net2"]
	w.MustReach(other, one.IPs()...)
	w.Must(p.Check(w.Ctx))
	restore := func() { // the kernel keeps IPv4 addresses alone
		for _, a := range one.Prefixes() {
			w.Exec(p, "ip", "addr", "replace", a, "dev", "net1", "nodad")
		}
	}
	w.Exec(p, "ip", "link", "add", "red", "type", "vrf", "table", "10")
	w.Exec(p, "ip", "link", "set", "red", "up")
	w.Exec(p, "ip", "link", "set", "net1", "master", "red")
	restore()
	w.MustReach(other, append(one.IPs(), two.IPs()...)...)
	w.Must(p.Check(w.Ctx))
	w.Exec(p, "ip", "link", "set", "net1", "nomaster")
	restore()
	if err := p.Check(w.Ctx); err == nil {
		t.Error("CHECK does not miss the routes of an interface that was in a VRF")
	}
	w.End(p, other)
	w.AsBefore()
}
