package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// http is a pod's port of the name http.
func http(number int) lab.Port { return lab.Port{Name: "http", Number: number} }

// TestPolicyNamedPorts: pods give the name http to different numbers. A rule with the name opens the number of the
// destination, in both directions, and nothing else. A pod that comes later with a third number is open on this one when
// its ADD has ended, and `kubectl multinet allowed` says the same as packets.
func TestPolicyNamedPorts(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("default/open", `{"type":"ovn-multinet","subnets":"10.40.0.0/16,fd40::/64"}`)
	numbers := []int{80, 81, 90}
	pod := func(node int, namespace, name, app string, ports ...lab.Port) *lab.Pod {
		p := w.guest(node, namespace, name, "default/open", map[string]string{"app": app}, ports...)
		w.answer(p, numbers...)
		return p
	}
	one := pod(0, "shop", "one", "db", http(80), lab.Port{Name: "stats", Number: 81})
	two := pod(1, "shop", "two", "db", http(81))
	client := pod(1, "shop", "client", "web", lab.Port{Name: "http", Protocol: "UDP", Number: 80})
	guest := pod(0, "guests", "guest", "web", http(90))
	// open wants a pod to reach so many of the numbers by TCP, and nothing by UDP.
	open := func(w *world, from, to *lab.Pod, number int) {
		var probes sync.WaitGroup
		for _, addr := range w.Links(to)["net1"].IPs() {
			for _, n := range numbers {
				probes.Go(func() {
					if n == number {
						w.allowed(from, addr, fmt.Sprint("tcp/", n))
					} else {
						w.closed(from, addr, fmt.Sprint("tcp/", n))
					}
					w.closed(from, addr, fmt.Sprint("udp/", n))
				})
			}
		}
		probes.Wait()
		for _, n := range numbers {
			for addr, allowed := range w.verdicts(from, to, fmt.Sprint("tcp/", n)) {
				if allowed != (n == number) {
					w.T.Errorf("%s to %s %s, port %d: allowed says %t", from, to, addr, n, allowed)
				}
			}
		}
	}
	late := func(w *world, from *lab.Pod) {
		w.policyIs("p", `"ready": true`)
		p := w.Pod(1, "late", "default/open")
		p.UID = p.UID[1:] + "0" // a pod that has labels from its creation: nobody hears of other labels
		p.Labels, p.Ports = map[string]string{"app": "db"}, []lab.Port{http(90)}
		w.Must(p.WriteManifest())
		w.AddInTheEnd(p)
		w.answer(p, numbers...)
		for _, addr := range w.Links(p)["net1"].IPs() { // at once: the ADD has ended
			w.allowed(from, addr, "tcp/90")
			w.denied(from, addr, "tcp/80")
			w.denied(from, addr, "tcp/81")
		}
		open(w, from, p, 90)
		w.End(p)
	}
	w.part("ingress", func(_ *testing.T, w *world) {
		w.policy("p", "default/open", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: http}]}]}`)
		open(w, client, one, 80)
		open(w, guest, two, 81)
		late(w, client)
	})
	w.part("egress", func(_ *testing.T, w *world) {
		w.policy("p", "default/open", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`)
		open(w, client, one, 80)
		open(w, client, two, 81)
		open(w, client, guest, 90) // of another namespace
		late(w, client)
		w.policy("p", "default/open", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], `+
			`egress: [{to: [{podSelector: {matchLabels: {app: db}}}, {ipBlock: {cidr: 10.40.0.0/16}}], ports: [{port: http}]}]}`)
		open(w, client, guest, 0) // an ipBlock has no names
		open(w, client, two, 81)
	})
	page, err := w.Lab.Multinet(w.Ctx, "policy", "show", "shop/p")
	w.Must(err)
	if want := "port tcp/http=81 of pods with app=db of namespace shop"; !strings.Contains(page, want) {
		t.Errorf("no %q in\n%s", want, page)
	}
	w.End(one, two, client, guest)
	w.Must(w.RemoveManifest(policyManifest("p")))
	w.endNetworks("default/open")
	w.AsBefore()
}
