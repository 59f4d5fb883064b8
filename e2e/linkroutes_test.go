package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestRoutesOnTheLink: multicast of a program that names no interface leaves by the network whose route has CNI's scope
// "link", and reaches the pods of another node. The pod's own routes may have that scope too. By a gateway multicast
// reaches nobody, and the state of the network says so.
func TestRoutesOnTheLink(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("cast", `{"type":"ovn-multinet","subnets":"10.34.0.0/24,fd34::/64","routes":[{"dst":"224.0.0.0/4","scope":253},`+
		`{"dst":"fd99::/64","scope":253}]}`)
	w.network("wide", `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/16/24","routes":[{"dst":"198.51.100.0/24","scope":253}]}`)
	from, to := w.Attached(0, "from", "cast,wide"), w.Attached(1, "to", "cast")
	route := func(w *world, p *lab.Pod, dst string) string {
		out := strings.Fields(w.Exec(p, "ip", "route", "show", dst))
		return strings.Join(out, " ")
	}
	equal(t, "the route of multicast", route(w, from, "224.0.0.0/4"), "224.0.0.0/4 dev net1 scope link")
	equal(t, "the route on layer3", route(w, from, "198.51.100.0/24"), "198.51.100.0/24 dev net2 scope link")
	if routes := w.routes(from, "-6"); !slices.Contains(routes, "fd99::/64 via  dev net1") {
		t.Errorf("the route of IPv6 on the link is missing: %q", routes)
	}
	w.Must(from.Check(w.Ctx))
	w.Exec(to, "sysctl", "-q", "-w", "net.ipv4.icmp_echo_ignore_broadcasts=0") // 224.0.0.1 is of all hosts
	w.MustReach(from, "224.0.0.1")
	w.part("a route of the pod's own", func(t *testing.T, w *world) {
		p := w.Pod(0, "own", "green")
		p.Annotations["ovn-multinet/routes"] = `[{"dst":"239.0.0.0/8","scope":253,"interface":"net1"}]`
		w.Must(p.WriteManifest())
		w.Add(p)
		equal(t, "the pod's route", route(w, p, "239.0.0.0/8"), "239.0.0.0/8 dev net1 scope link")
		w.Must(p.Check(w.Ctx))
		w.End(p)
	})
	w.part("a gateway", func(t *testing.T, w *world) {
		w.network("gated", `{"type":"ovn-multinet","subnets":"10.35.0.0/24","routes":[{"dst":"224.0.0.0/4"}]}`)
		const why = "routes[0]: a gateway forwards no multicast to 224.0.0.0/4: write "
		w.says(w.Controller, `kind=Warning reason=NetworkWarning message="`+why)
		w.endNetworks("gated")
	})
	w.End(from, to)
	w.endNetworks("cast", "wide")
	w.AsBefore()
}
