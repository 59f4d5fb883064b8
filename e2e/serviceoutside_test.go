package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// outsideServiceYAML is a Service of namespace shop with an outside address: by the annotation, with clusterIP None.
func outsideServiceYAML(name, network, address, sources, ports string) string {
	more := "\n    ovn-multinet/service-outside-address: " + address
	if sources != "" {
		more += "\n    ovn-multinet/service-outside-sources: " + sources
	}
	yaml := serviceYAML(name, network, "", ports, "")
	return strings.Replace(yaml, "\nspec:", more+"\nspec:", 1)
}

// typedServiceYAML asks for the same by the type LoadBalancer.
func typedServiceYAML(name, network, address, sources, ports string) string {
	yaml := outsideServiceYAML(name, network, address, "", ports)
	typed := "type: LoadBalancer, loadBalancerClass: ovn-multinet/gateway, allocateLoadBalancerNodePorts: false, clusterIP: 10.96.0.9"
	if sources != "" {
		typed += ", loadBalancerSourceRanges: [" + sources + "]"
	}
	return strings.Replace(yaml, "clusterIP: None", typed, 1)
}

// clientSeen returns the address that a server in a pod sees of the client that connects to an address.
func (w *outsideWorld) clientSeen(from place, server *lab.Pod, to string) (seen netip.Addr, err error) {
	var listener net.Listener
	// A process that a test has just forked has a former listener of ours open, until it runs its program.
	if err := lab.Eventually(w.Ctx, func() error {
		return server.Do(func() (err error) {
			listener, err = net.Listen("tcp", ":8081")
			return err
		})
	}); err != nil {
		return seen, err
	}
	defer listener.Close()
	came := make(chan netip.Addr, 1)
	go func() {
		if c, err := listener.Accept(); err == nil {
			came <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			c.Close()
		}
		close(came)
	}()
	err = from.Do(func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(to, "81"), 10*silence)
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil {
		return seen, err
	}
	return <-came, nil
}

const outsidePorts = `{name: http, port: 80, targetPort: 8080}, {name: seen, port: 81, targetPort: 8081}, {name: dns, protocol: UDP, port: 53, targetPort: 90}`

// answersOutside wants a Service to answer at its outside addresses: TCP and UDP, from everywhere.
func (w *outsideWorld) answersOutside(addresses []string, from ...place) {
	w.T.Helper()
	for _, p := range from {
		for _, a := range addresses {
			for range 4 { // some of them go to each backend
				w.allowed(p, a, "tcp/80")
				w.allowed(p, a, "udp/53")
			}
		}
	}
}

// outsideAre waits until a Service has these outside addresses, and is ready.
func (w *outsideWorld) outsideAre(name string, want []string) {
	w.T.Helper()
	w.Eventually(func() error {
		state, err := w.serviceState(name)
		if err == nil && (!state.Ready || !slices.Equal(state.OutsideAddresses, want)) {
			err = fmt.Errorf("service %s: %+v, want the outside addresses %v", name, state, want)
		}
		return err
	})
}

// TestServiceOutside: outside hosts reach a Service at its outside addresses, and so do pods of the network and of
// another network of the router. The backends see the client's address. Backends follow readiness. Only allowed sources
// get through. When the gateway's node fails, the next node takes over.
func TestServiceOutside(t *testing.T) {
	t.Parallel()
	w := newOutsideWorld(t)
	toEachOther := strings.NewReplacer(`"routes":[`, `"routes":[{"dst":"10.20.0.0/14"},{"dst":"fd20::/12"},`)
	w.network("hidden", toEachOther.Replace(outOf(1, "")))
	addresses := []string{"192.0.2.17", "2001:db8::111"}
	const fixed = "192.0.2.17,2001:db8::111"
	var pods []*lab.Pod
	var counts []*answerer
	for i := range 3 {
		p := w.labelled(i, fmt.Sprint("web-", i), "hidden", map[string]string{"app": "web"})
		pods, counts = append(pods, p), append(counts, w.answer(p, 8080, 90))
	}
	client := w.labelled(2, "client", "hidden", nil)
	w.Must(w.WriteManifest(serviceManifest("web"), outsideServiceYAML("web", "hidden", fixed, "", outsidePorts)))
	w.outsideAre("web", addresses)
	w.network("beside", toEachOther.Replace(outOf(2, ""))) // joins the router later
	other := w.labelled(1, "other", "beside", nil)
	w.eachAnswered(pods, counts, func() { w.answersOutside(addresses, w.host, client, other) })
	w.answersOutside(addresses, pods[0]) // a backend itself

	w.step("readiness", func(t *testing.T, w *outsideWorld) {
		ready := func(is string, which ...int) {
			for _, i := range which {
				pods[i].Ready = is
				w.Must(pods[i].WriteManifest())
			}
		}
		ready("False", 0, 1)
		w.outsideBackends("web", "192.0.2.17:80", 1)
		w.NBCtl("--wait=hv", "sync") // the nodes know it
		for i, a := range []string{"192.0.2.9", "2001:db8::9"} {
			seen, err := w.clientSeen(w.host, pods[2], addresses[i])
			w.Must(err)
			equal(t, "client that the backend sees", seen.String(), a)
		}
		before := counts[0].of("tcp/8080")
		w.answersOutside(addresses, w.host)
		equal(t, "connections to the pod that is not ready", counts[0].of("tcp/8080")-before, 0)
		ready("False", 2)
		w.outsideBackends("web", "192.0.2.17:80", 0)
		w.Eventually(func() error { return refused(w.host, "192.0.2.17", "80") })
		ready("True", 0, 1, 2)
		w.outsideBackends("web", "192.0.2.17:80", 3)
	})
	w.step("sources", func(t *testing.T, w *outsideWorld) { w.sources(addresses, fixed, client) })
	w.step("sources, and the pods' own addresses", func(_ *testing.T, w *outsideWorld) { w.sourcesInside() })
	w.step("a backend has a floating address", func(_ *testing.T, w *outsideWorld) { w.floatingBackend(addresses, pods) })
	w.step("the gateway's node fails", func(_ *testing.T, w *outsideWorld) {
		w.watched(0, 1, 2)
		first := w.gatewayComesTo(0, 1)
		w.Must(w.Nodes[first].PowerOff(w.Ctx))
		w.gatewayComesTo(1 - first)
		pods[first].Ready = "False" // kubelet is gone, so its pods are not ready
		w.Must(pods[first].WriteManifest())
		w.outsideBackends("web", "192.0.2.17:80", 2)
		w.answersOutside(addresses, w.host, client)
		w.Must(w.Nodes[first].PowerOn(w.Ctx))
		w.watched(0, 1, 2)
	})
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.closed(w.host, "192.0.2.17", "tcp/80")
	w.End(append(pods, client, other)...)
	w.endNetworks("hidden", "beside")
	w.asBeforeOutside()
}

// outsideBackends waits until an outside vip of NB has so many backends, and all nodes that live have the flows.
func (w *outsideWorld) outsideBackends(service, vip string, want int) {
	w.T.Helper()
	w.Eventually(func() error {
		out := w.NBCtl("--bare", "--columns=vips", "find", "Load_Balancer", fmt.Sprintf("name=%q", "/core:outside:shop/"+service+":tcp"))
		for word := range strings.FieldsSeq(out) {
			if list, ok := strings.CutPrefix(word, vip+"="); ok {
				if got := strings.FieldsFunc(list, func(r rune) bool { return r == ',' }); len(got) == want {
					return nil
				}
			}
		}
		return fmt.Errorf("service %s has %s, want %d backends at %s", service, out, want, vip)
	})
	w.NBCtl("--wait=sb", "sync")
}

// sources: only hosts in the subnets reach the addresses; by the annotation and by the type. Pods do in any case.
func (w *outsideWorld) sources(addresses []string, fixed string, client *lab.Pod) {
	stranger := w.outside("stranger", 42, "192.0.2.7/24", "2001:db8::7/64")
	w.answersOutside(addresses, stranger)
	const hosts = "192.0.2.8/31,2001:db8::8/126"
	for _, yaml := range []string{
		outsideServiceYAML("web", "hidden", fixed, hosts, outsidePorts),
		typedServiceYAML("web", "hidden", fixed, "192.0.2.8/31, \"2001:db8::8/126\"", outsidePorts),
	} {
		w.Must(w.WriteManifest(serviceManifest("web"), yaml))
		for _, a := range addresses {
			w.closed(stranger, a, "tcp/80")
			w.closed(stranger, a, "udp/53")
		}
		w.answersOutside(addresses, w.host, client)
		w.Must(w.WriteManifest(serviceManifest("web"), outsideServiceYAML("web", "hidden", fixed, "", outsidePorts)))
		w.answersOutside(addresses, stranger)
	}
	w.Must(w.WriteManifest(serviceManifest("web"), outsideServiceYAML("web", "hidden", fixed, "all", outsidePorts)))
	w.serviceRefused("web", `"all" is no subnet`)
	w.answersOutside(addresses, stranger) // what was accepted before stays
	w.Must(w.WriteManifest(serviceManifest("web"), outsideServiceYAML("web", "hidden", fixed, "", outsidePorts)))
	w.outsideAre("web", addresses)
}

// sourcesInside: where outside hosts have a route to the pods, only hosts in the subnets reach the ports of the Service
// at the pods' own addresses. Other ports stay open.
func (w *outsideWorld) sourcesInside() {
	w.network("open", outOf(3, `"snat":false,`))
	p := w.labelled(0, "direct-0", "open", map[string]string{"app": "direct"})
	w.answer(p, 8080, 90, 91)
	stranger := w.outside("walker", 42, "192.0.2.6/24", "2001:db8::6/64")
	for _, from := range []*lab.Outside{w.host, stranger} {
		w.Must(from.Route(w.Ctx, "10.23.0.0/24", "192.0.2.10"))
		w.Must(from.Route(w.Ctx, "fd23::/64", "2001:db8::10"))
	}
	own := w.Links(p)["net1"].IPs()
	reaches := func(from place, which func(place, string, string)) {
		for _, a := range own {
			which(from, a, "tcp/8080")
			which(from, a, "udp/90")
		}
	}
	const ports = `{name: http, port: 80, targetPort: 8080}, {name: dns, protocol: UDP, port: 53, targetPort: 90}`
	w.Must(w.WriteManifest(serviceManifest("direct"), outsideServiceYAML("direct", "open", "192.0.2.18", "", ports)))
	w.outsideAre("direct", []string{"192.0.2.18"})
	reaches(stranger, w.allowed)
	w.Must(w.WriteManifest(serviceManifest("direct"),
		outsideServiceYAML("direct", "open", "192.0.2.18", "192.0.2.8/31,2001:db8::8/126", ports)))
	reaches(stranger, w.closed)
	reaches(w.host, w.allowed)
	w.closed(stranger, "192.0.2.18", "tcp/80")
	w.allowed(w.host, "192.0.2.18", "tcp/80")
	p.Ready = "False" // it still listens
	w.Must(p.WriteManifest())
	w.outsideBackends("direct", "192.0.2.18:80", 0)
	w.NBCtl("--wait=hv", "sync")
	reaches(stranger, w.denied)
	for _, a := range own {
		w.allowed(stranger, a, "tcp/91")
		w.allowed(stranger, a, "udp/91")
	}
	w.Must(w.RemoveManifest(serviceManifest("direct")))
	reaches(stranger, w.allowed)
	w.End(p)
	w.endNetworks("open")
}

// floatingBackend: all connections to the Service succeed while each backend has a floating address, and the floating
// address works too.
func (w *outsideWorld) floatingBackend(addresses []string, pods []*lab.Pod) {
	floating := []string{"192.0.2.20", "2001:db8::114"}
	w.requests(pods[2], `[{"interface":"net1","floating":"192.0.2.20,2001:db8::114"}]`)
	w.floats(pods[2], floating)
	for _, p := range pods[:2] {
		p.Ready = "False"
		w.Must(p.WriteManifest())
	}
	w.outsideBackends("web", "192.0.2.17:80", 1)
	w.answersOutside(addresses, w.host)
	for _, a := range floating {
		w.allowed(w.host, a, "tcp/8080")
		w.allowed(w.host, a, "udp/90")
	}
	w.requests(pods[2], "")
	for _, p := range pods[:2] {
		p.Ready = "True"
		w.Must(p.WriteManifest())
	}
	w.outsideBackends("web", "192.0.2.17:80", 3)
}

// TestServiceOutsideClaims: an outside address has one holder, and the operator grants it.
func TestServiceOutsideClaims(t *testing.T) {
	t.Parallel()
	w := newOutsideWorld(t)
	w.network("hidden", outOf(1, ""))
	p := w.labelled(2, "web-0", "hidden", map[string]string{"app": "web"})
	w.answer(p, 8080, 90)
	w.requests(p, `[{"interface":"net1","floating":"192.0.2.20"}]`)
	w.becomes(func() error { return w.sees(w.host, p, []string{"192.0.2.20", "2001:db8::10"}) })
	for _, test := range []struct{ address, why string }{
		{"192.0.2.20", "outside address: address 192.0.2.20 on physical network provider, VLAN 42 is in use by pod shop/web-0 interface net1"},
		{"192.0.2.99", "outside address: address 192.0.2.99 is in no pool of router /core"},
	} {
		w.Must(w.WriteManifest(serviceManifest("web"), outsideServiceYAML("web", "hidden", test.address, "", outsidePorts)))
		w.serviceRefused("web", test.why)
	}
	w.Must(w.WriteManifest(serviceManifest("web"), outsideServiceYAML("web", "hidden", "auto", "", outsidePorts)))
	var state serviceState
	w.Eventually(func() (err error) {
		if state, err = w.serviceState("web"); err == nil && (!state.Ready || len(state.OutsideAddresses) != 2) {
			err = errors.New("no outside addresses: " + state.Reason)
		}
		return err
	})
	w.answersOutside(state.OutsideAddresses, w.host)
	// The operator takes the pool back: the addresses end at once.
	controllerConfig(t, w.Lab, gatewayConfig)
	w.serviceRefused("web", "outside address: router /core has no address pool that is granted to namespace shop")
	equal(t, "outside load balancers", w.NBCtl("--bare", "--columns=name", "list", "Load_Balancer"), "")
	controllerConfig(t, w.Lab, poolsConfig)
	w.outsideAre("web", state.OutsideAddresses)
	w.answersOutside(state.OutsideAddresses, w.host)
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.End(p)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}
