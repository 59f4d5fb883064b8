package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// overlay is a NAD as ovn-kubernetes' users have it, word for word but for the names.
func overlay(nad, subnets string, mtu int) string {
	return fmt.Sprintf(`{
            "cniVersion": "0.3.1",
            "name": "tenantblue",
            "type": "ovn-k8s-cni-overlay",
            "topology":"layer2",
            "subnets": "%s",
            "mtu": %d,
            "netAttachDefName": "%s",
            "excludeSubnets": "10.100.200.0/29"
    }`, subnets, mtu, nad)
}

// TestOverlayNADs reads ovn-kubernetes' NADs as they are: those of one name are one network, as far as they agree.
func TestOverlayNADs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, withGlobal("tools", func(l *lab.Lab) {
		l.ControllerArgs = []string{"--joining-namespaces", "tools"}
	}))
	const subnets = "10.100.200.0/24"
	w.network("first", overlay("shop/first", subnets, 1300))
	w.network("second", overlay("shop/second", subnets, 1300))
	w.network("tools/third", overlay("tools/third", subnets, 1300))
	a, b, c := w.attached(0, "a", "first"), w.attached(1, "b", "second"), w.attached(0, "c", "tools/third")
	for _, p := range []*lab.Pod{a, b, c} {
		link := w.links(p)["net1"]
		equal(t, "MTU", link.MTU, 1300)
		if ip := link.IPs()[0]; !strings.HasPrefix(ip, "10.100.200.") || len(w.status(p)) != 2 {
			t.Errorf("%s has %s, status %+v", p, ip, w.status(p))
		}
		w.mustReach(p, w.links(a)["net1"].IPs()[0], w.links(b)["net1"].IPs()[0], w.links(c)["net1"].IPs()[0])
	}
	equal(t, "networks", w.networkOf(a)+" "+w.networkOf(b)+" "+w.networkOf(c), "tenantblue tenantblue tenantblue")
	ping := w.pinging(a, w.links(b)["net1"].IPs()[0])

	for _, odd := range []struct {
		nad, config string
		code        uint // of a pod's ADD; 0: it is not tried, for it waits a while
		says        []string
	}{
		{"wider", overlay("shop/wider", "10.100.0.0/16", 1300), conf.CodeTryAgain, []string{"differs from", "tenantblue", "subnets: 10.100.0.0/16 is not 10.100.200.0/24"}},
		{"larger", overlay("shop/larger", subnets, 1400), 0, []string{"differs from", "tenantblue", "mtu: 1400 is not 1300"}},
		{"visitors/guest", overlay("visitors/guest", subnets, 1300), 0, []string{"tenantblue is of namespace shop", "namespace visitors may not join"}},
		{"astray", overlay("shop/other", subnets, 1300), conf.CodeInvalidConfig, []string{`netAttachDefName is "shop/other"`}},
	} {
		t.Run(odd.nad, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx}
			w.nad(odd.nad, odd.config)
			w.notReady(odd.nad, odd.says...)
			if odd.code != 0 {
				p := w.pod(0, "odd", odd.nad)
				_, err := p.Add(w.ctx)
				w.refused(err, odd.code, append(odd.says, "network shop/"+odd.nad)...)
				w.end(p)
			}
			for _, nad := range []string{"first", "second", "tools/third"} {
				if state, _ := w.state(nad); !state.Ready {
					t.Errorf("the network of %s suffers from another NAD: %+v", nad, state)
				}
			}
			ping.goesOn()
			w.removeNAD(odd.nad)
		})
	}

	// The network is there as long as one NAD is that describes it.
	w.removeNAD("first")
	w.settled()
	late := w.pod(0, "late", "first")
	_, err := late.Add(w.ctx)
	w.clean(err)
	d := w.attached(0, "d", "second")
	w.mustReach(d, w.links(a)["net1"].IPs()[0], w.links(b)["net1"].IPs()[0])
	ping.stop()
	w.end(a, b, c, d, late)
	w.endNetworks("second", "tools/third")
	w.noSwitch("tenantblue")
	w.asBefore()
}

// networkOf is the network that a pod's first port is on.
func (w *world) networkOf(p *lab.Pod) string {
	w.t.Helper()
	return w.portRow(p, "net1").ExternalIDs["ovn-multinet/network"]
}
