package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestBoundaryRouterNeedsConsent: pods of another namespace reach a router's networks when its owner lets them, and as long
// as it does. Afterwards they go on, on their own network.
func TestBoundaryRouterNeedsConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	guest := func(i int) string { return routed(i, "shop/main") }
	lets := func(keys string) string { return strings.Replace(routed(1, "main"), `"router"`, keys+`"router"`, 1) }
	const consent = `"routerGuests":[{"namespace":"web","subnets":"10.22.0.0/16,fd22::/64"}],`

	w.nad("web/black", guest(2)) // before the router is there
	const says = `namespace web may not join router shop/main: write "routerGuests": [{"namespace": "web", "subnets": "10.22.0.0/24,fd22::/64"}]`
	w.notReady("web/black", says)
	w.network("red", routed(1, "main"))
	red := w.attached(0, "red", "red")
	w.notReady("web/black", says)
	early, err := w.Nodes[1].NewPod(w.ctx, "web", "early", map[string]string{networksAnnotation: "black"})
	w.must(err)
	_, err = early.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "network web/black", says)
	w.end(early)

	w.network("red", lets(consent))
	w.inForce("web/black", guest(2))
	black, peer := w.podOf("web", 1, "black", "black"), w.podOf("web", 0, "peer", "black")
	w.add(black)
	w.add(peer)
	w.mustReach(red, w.links(black)["net1"].IPs()...)
	w.mustReach(black, w.links(red)["net1"].IPs()...)
	ping := w.pinging(black, w.links(peer)["net1"].IPs()[0])
	rows := fmt.Sprint(w.portRow(black, "net1"), w.portRow(peer, "net1"))

	w.network("red", routed(1, "main"))
	w.notReady("web/black", says)
	w.unreachable([2]*lab.Pod{red, black}, [2]*lab.Pod{black, red}, [2]*lab.Pod{peer, red})
	ping.goesOn()
	late := w.podOf("web", 0, "late", "black") // new pods have the network too
	w.add(late)
	w.mustReach(late, w.links(black)["net1"].IPs()...)
	equal(t, "ports of the running pods", fmt.Sprint(w.portRow(black, "net1"), w.portRow(peer, "net1")), rows)

	w.network("red", lets(consent))
	w.inForce("web/black", guest(2))
	w.mustReach(late, w.links(red)["net1"].IPs()...)
	w.end(red) // and the owner's last network, which takes its consent with it
	w.endNetworks("red")
	w.notReady("web/black", says)
	out, err := w.NBCtl(w.ctx, "--bare", "--columns=name", "list", "Logical_Router")
	w.must(err)
	equal(t, "routers without a network of their own namespace", out, "")
	ping.goesOn()
	ping.stop()
	w.end(black, peer, late)
	w.endNetworks("web/black")
	w.asBefore()
}

// TestBoundaryGatewayIsForThoseListed: a tenant whom the operator does not list neither takes a subnet outside from the
// others on the router, nor has it discarded.
func TestBoundaryGatewayIsForThoseListed(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0)
	w.gatewayStands(0)
	next := w.outside("next", 42, "192.0.2.1/24", "2001:db8::1/64", "198.51.100.1/24")
	w.network("hidden", outOf(1, ""))
	p := w.attached(2, "web", "hidden")
	snat := []string{"192.0.2.10"}
	equal(t, "addresses that the next hop sees", w.seenFrom(p, next, "198.51.100.1"), snat)
	for name, config := range map[string]string{
		"web/thief": `{"type":"ovn-multinet","router":"/core","subnets":"198.51.100.0/24"}`,
		"web/hole":  `{"type":"ovn-multinet","router":"/core","topology":"layer3","subnets":"198.51.100.0/24/26"}`,
		"thief":     `{"type":"ovn-multinet","router":"/core","subnets":"198.51.100.0/24"}`, // of a namespace that is listed
		"web/other": `{"type":"ovn-multinet","router":"/edge","subnets":"198.51.100.0/24"}`,
	} {
		w.nad(name, config)
		words := "namespace web may not join router /core"
		switch name {
		case "thief":
			words = "namespace shop may bring 10.0.0.0/8,fd00::/8 to router /core, not 198.51.100.0/24"
		case "web/other":
			words = "there is no router /edge of the whole cluster"
		}
		w.notReady(name, words, "in the controller's --config")
		w.noSwitch(strings.Replace("shop/"+name, "shop/web/", "web/", 1))
	}
	equal(t, "addresses that the next hop sees", w.seenFrom(p, next, "198.51.100.1"), snat)
	w.end(p)
	w.endNetworks("hidden", "web/thief", "web/hole", "thief", "web/other")
	w.asBeforeOutside()
}
