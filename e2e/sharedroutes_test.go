package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// sharingPorts are the ports of the flows of TestSharedRoutes. That the kernel sends all flows by one of two interfaces has
// a chance of one in two thousand million.
const sharingPorts, sharingFlows = 7000, 32

// TestSharedRoutes: two interfaces of a pod on one layer3 network share the way to the other nodes, by flow and in both
// families; each flow has the address of its interface. If one interface is down, on either side, new flows leave by the
// other one.
func TestSharedRoutes(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	const config = `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/22/24,fd80::/62/64","routes":[{"dst":"224.0.0.0/4","scope":253}]}`
	w.network("wide", config)
	there := w.Attached(1, "there", "wide")
	both := w.Attached(0, "both", `[{"name":"wide"},{"name":"wide"}]`)
	for n := range sharingFlows {
		w.mirrors(there, sharingPorts+n)
	}
	to := w.Links(there)["net1"].IPs()
	// sources are the source addresses of new flows to an address.
	sources := func(w *world, to string) (all []string, err error) {
		for n := range sharingFlows {
			flow := w.udpFlow(both, to, sharingPorts+n)
			who, err := flow.ask()
			if err == nil && who == "" {
				err = fmt.Errorf("nobody answers the flow from %s to %s", flow.conn.LocalAddr(), to)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, who)
		}
		slices.Sort(all)
		return slices.Compact(all), nil
	}
	// by waits until new flows have the addresses of these interfaces, and of no other one. The kernel notices a moment
	// later that the other end of an interface is down, or up again.
	by := func(w *world, links ...string) {
		w.T.Helper()
		for family, addr := range to {
			var want []string
			for _, link := range links {
				want = append(want, w.Links(both)[link].IPs()[family])
			}
			slices.Sort(want)
			w.Eventually(func() error {
				got, err := sources(w, addr)
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("new flows to %s come from %v, want %v", addr, got, want)
				}
				return err
			})
		}
	}
	w.part("both", func(t *testing.T, w *world) {
		by(w, "net1", "net2")
		w.Must(both.Check(w.Ctx))
	})
	w.answer(both, 80)
	for _, link := range []string{"net1", "net2"} {
		w.part("the node's end of "+link+" is down", func(t *testing.T, w *world) {
			veth := agentapi.HostVeth(both.Sandbox, link)
			other := map[string]string{"net1": "net2", "net2": "net1"}[link]
			w.Exec(w.Nodes[0], "ip", "link", "set", veth, "down")
			by(w, other)
			w.answersBy(there, both, other)
			w.Exec(w.Nodes[0], "ip", "link", "set", veth, "up")
			by(w, "net1", "net2")
			w.Must(both.Check(w.Ctx))
		})
	}
	w.part("the pod's end is down", func(t *testing.T, w *world) {
		w.Exec(both, "ip", "link", "set", "net1", "down")
		by(w, "net2")
		w.answersBy(there, both, "net2")
	})
	w.part("a route that has lost a next hop", func(_ *testing.T, w *world) { w.checksNextHops("wide") })
	w.End(there, both)
	w.endNetworks("wide")
	w.AsBefore()
}

// checksNextHops wants CHECK to find a route that has lost a next hop.
func (w *world) checksNextHops(network string) {
	p := w.Attached(0, "less", fmt.Sprintf(`[{"name":%q},{"name":%[1]q}]`, network))
	w.Must(p.Check(w.Ctx))
	gateway := netip.MustParseAddr(w.Links(p)["net1"].IPs()[0]).As4()
	gateway[3] = 1 // of the node subnet
	w.Exec(p, "ip", "route", "replace", "10.128.0.0/22", "via", netip.AddrFrom4(gateway).String(), "dev", "net1")
	if err := p.Check(w.Ctx); err == nil {
		w.T.Error("CHECK does not notice a route that has lost a next hop")
	}
	w.End(p)
}
