package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestServiceLayer3: on a network with a switch on each node, a Service answers at any address, also at one of a node's
// subnet: the pods of that node ask for its MAC, and all others send to their gateway. The agent of a node that comes
// after the Service makes the node's switch.
func TestServiceLayer3(t *testing.T) {
	const nad = "nine"
	w := parallelWorld(t, lab.Options{Nodes: 3}, nil)
	w.network(nad, `{"type":"ovn-multinet","topology":"layer3","subnets":"10.9.0.0/16/24,fd09::/48/64"}`)
	backends, counts := w.backends(nad)
	auto := w.service("web", serviceYAML("web", nad, "auto", webPorts, ""))
	equal(t, "number of virtual addresses", len(auto), 2)
	clients := append(backends, w.labelled(0, "near", nad, nil), w.labelled(2, "late", nad, nil))
	names := []string{"web"}
	for i, p := range clients[1:] {
		var fixed []string
		for _, text := range w.Links(p)["net1"].IPs() {
			a := netip.MustParseAddr(text).AsSlice()
			a[len(a)-1] ^= 0x40 // no pod has it: the pods' addresses are hashes of few names
			vip, _ := netip.AddrFromSlice(a)
			fixed = append(fixed, vip.String())
		}
		names = append(names, fmt.Sprint("fixed-", i))
		yaml := serviceYAML(names[1+i], nad, strings.Join(fixed, ","), webPorts, "")
		w.service(names[1+i], strings.Replace(yaml, "selector: app="+names[1+i], "selector: app=web", 1))
		auto = append(auto, fixed...)
	}
	w.NBCtl("--wait=hv", "sync")
	w.eachAnswered(backends, counts, func() {
		for _, p := range clients {
			for _, vip := range auto {
				w.allowed(p, vip, "tcp/80")
				w.allowed(p, vip, "udp/53")
			}
		}
	})
	for _, name := range names {
		w.Must(w.RemoveManifest(serviceManifest(name)))
	}
	w.closed(clients[3], auto[0], "tcp/80")
	w.End(clients...)
	w.endNetworks(nad)
	w.AsBefore()
}
