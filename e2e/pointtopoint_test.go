package e2e

import (
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestPointToPoint: two pods have the two addresses of a /31 (RFC 3021) and of a /127 (RFC 6164), with port security,
// and reach each other from both nodes. A route of the network leads to the other pod. A third pod is refused.
func TestPointToPoint(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("link", `{"type":"ovn-multinet","subnets":"10.31.0.0/31,fd31::/127"}`)
	w.network("link6", `{"type":"ovn-multinet","subnets":"fd32::2/127"}`)
	w.network("uplink", `{"type":"ovn-multinet","subnets":"10.33.0.4/31","excludeSubnets":"10.33.0.4/32",`+
		`"routes":[{"dst":"192.0.2.0/24","gw":"10.33.0.4"}]}`)
	b := w.Attached(1, "b", `[{"name":"link","ips":["10.31.0.0","fd31::"]},{"name":"link6"}]`)
	a := w.Attached(0, "a", "link,link6,uplink")
	equal(t, "addresses of a", w.Links(a)["net1"].Prefixes(), []string{"10.31.0.1/31", "fd31::1/127"})
	equal(t, "addresses of b", w.Links(b)["net1"].Prefixes(), []string{"10.31.0.0/31", "fd31::/127"})
	six := slices.Concat(w.Links(a)["net2"].Prefixes(), w.Links(b)["net2"].Prefixes())
	slices.Sort(six)
	equal(t, "addresses on link6", six, []string{"fd32::2/127", "fd32::3/127"})
	equal(t, "address beside a machine outside", w.Links(a)["net3"].Prefixes(), []string{"10.33.0.5/31"})
	if routes := w.routes(a, "-4"); !slices.Contains(routes, "192.0.2.0/24 via 10.33.0.4 dev net3") {
		t.Errorf("the route to the machine outside is missing: %q", routes)
	}
	w.answer(a, 80)
	w.answer(b, 80)
	w.answersBy(a, b, "net1", "net2")
	w.answersBy(b, a, "net1", "net2")
	w.Must(a.Check(w.Ctx))
	third := w.Pod(0, "third", "link")
	w.refused(w.TryAdd(third), conf.CodeNoAddressLeft, "network shop/link")
	w.End(a, b, third)
	w.endNetworks("link", "link6", "uplink")
	w.AsBefore()
}
