package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// forwardsConfig gives namespace shop ports of the gateway's own address, which is the only outside address.
const forwardsConfig = gatewayConfig + `    portForwards: {shop: 4}
`

var gatewayAddresses = []string{"192.0.2.10", "2001:db8::10"}

// forward writes a Service of namespace shop that has ports of the gateway's own addresses.
func (w *outsideWorld) forward(name, sources, ports string) {
	w.T.Helper()
	w.Must(w.WriteManifest(serviceManifest(name), outsideServiceYAML(name, "hidden", "gateway", sources, ports)))
}

// answersFrom wants connections of a pod to a port of outside hosts to be answered, with this port as the pod's own
// source port. Each call needs another port: Open vSwitch 3.1 aborts when a closed connection is opened again.
func (w *outsideWorld) answersFrom(p *lab.Pod, source uint16, port string, hosts ...string) {
	w.T.Helper()
	for _, host := range hosts {
		for _, protocol := range []string{"tcp", "udp"} {
			if err := p.Do(func() error { return exchange(protocol, source, net.JoinHostPort(host, port)) }); err != nil {
				w.T.Errorf("%s: %v", p, err)
			}
		}
	}
}

// exchange opens a connection from a source port, and wants an answer.
func exchange(protocol string, source uint16, to string) error {
	d := net.Dialer{Timeout: 10 * silence, Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { // the port is free again at once
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
			if protocol == "tcp" && err == nil {
				err = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
			}
		})
		if failed != nil {
			return failed
		}
		return err
	}}
	if d.LocalAddr = (&net.TCPAddr{Port: int(source)}); protocol == "udp" {
		d.LocalAddr = &net.UDPAddr{Port: int(source)}
	}
	c, err := d.DialContext(context.Background(), protocol, to)
	if err != nil {
		return fmt.Errorf("from port %d: %w", source, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * silence)); err != nil {
		return err
	}
	if protocol == "udp" {
		if _, err := c.Write([]byte("there?\n")); err != nil {
			return err
		}
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		return fmt.Errorf("from port %d no answer of %s %s: %w", source, protocol, to, err)
	}
	return nil
}

// beside wants what the gateway's addresses do beside forwards: ping, and source NAT for pods' own connections, also of
// those from the very ports that are forwarded. The host answers on the port.
func (w *outsideWorld) beside(p *lab.Pod, port string) {
	w.T.Helper()
	w.MustReach(w.host, gatewayAddresses...)
	w.Eventually(func() error { return w.sees(w.host, p, gatewayAddresses) })
	for _, source := range []uint16{0, 80, 53} {
		w.answersFrom(p, source, port, "192.0.2.9", "2001:db8::9")
	}
}

// TestServiceForwards: Services share the gateway's own addresses, by their ports. Outside hosts and pods reach them
// there. Ping and source NAT of these addresses go on, and limited sources of one Service limit no other traffic. The
// forwards follow the gateway to other addresses and to another node, and end with the grant.
func TestServiceForwards(t *testing.T) {
	t.Parallel()
	w := configuredOutsideWorld(t, forwardsConfig)
	w.network("hidden", outOf(1, ""))
	web := w.labelled(2, "web-0", "hidden", map[string]string{"app": "web"})
	api := w.labelled(1, "api-0", "hidden", map[string]string{"app": "api"})
	client := w.labelled(2, "client", "hidden", nil)
	webCount, apiCount := w.answer(web, 8080, 90), w.answer(api, 8443)
	w.answer(w.host, 9000, 9001, 9002)
	w.beside(client, "9000")
	w.forward("web", "", outsidePorts)
	w.Must(w.WriteManifest(serviceManifest("api"), typedServiceYAML("api", "hidden", "gateway", "", "{port: 8443}")))
	w.outsideAre("web", gatewayAddresses)
	w.outsideAre("api", gatewayAddresses)
	if list := w.Multinet("service", "list", "-n", "shop"); strings.Count(list, " 192.0.2.10,2001:db8::10 ") != 2 {
		t.Errorf("kubectl multinet service list:\n%s", list)
	}
	w.answersBoth(gatewayAddresses, w.host, client, web)
	if webCount.of("tcp/8080") == 0 || webCount.of("udp/90") == 0 || apiCount.of("tcp/8443") == 0 {
		t.Errorf("web has %v, api %v", webCount.packets, apiCount.packets)
	}
	w.closed(w.host, gatewayAddresses[0], "tcp/9000")
	for i, a := range []string{"192.0.2.9", "2001:db8::9"} {
		seen, err := w.clientSeen(w.host, web, gatewayAddresses[i])
		w.Must(err)
		equal(t, "client that the backend sees", seen.String(), a)
	}
	w.beside(client, "9001")

	w.step("one holder", func(_ *testing.T, w *outsideWorld) { w.oneHolder(client) })
	w.step("sources", func(_ *testing.T, w *outsideWorld) { w.forwardSources(client) })
	w.step("other addresses", func(_ *testing.T, w *outsideWorld) { w.otherAddresses(client) })
	w.step("the gateway's node fails", func(_ *testing.T, w *outsideWorld) { w.otherGatewayNode(client) })
	controllerConfig(t, w.Lab, gatewayConfig) // the operator takes the ports back
	w.serviceRefused("web", "outside address: ports of the gateway of router /core are not granted to namespace shop")
	w.closed(w.host, gatewayAddresses[0], "tcp/80")
	equal(t, "outside load balancers", w.NBCtl("--bare", "--columns=name", "list", "Load_Balancer"), "")
	w.MustReach(w.host, gatewayAddresses...)
	for _, name := range []string{"web", "api"} {
		w.Must(w.RemoveManifest(serviceManifest(name)))
	}
	w.End(web, api, client)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}

// answersBoth wants Services web and api to answer at the addresses, from everywhere.
func (w *outsideWorld) answersBoth(addresses []string, from ...place) {
	w.T.Helper()
	w.answersOutside(addresses, from...)
	for _, p := range from {
		w.allowed(p, addresses[0], "tcp/8443")
		w.allowed(p, addresses[1], "tcp/8443")
	}
}

// oneHolder: a port has one holder, and the next one is told who. It gets the port when the holder is gone.
func (w *outsideWorld) oneHolder(client *lab.Pod) {
	w.T.Helper()
	for ports, why := range map[string]string{
		"{port: 8443}": "tcp/8443 of address 192.0.2.10 on physical network provider, VLAN 42 is in use by service shop/api by router /core (port forward)",
		"{name: a, port: 82}, {name: b, port: 83}": "namespace shop has 4 IPv4 ports of the gateway of router /core, at most 4 are allowed",
		"{port: 40000}": "tcp/40000: the gateway needs the ports from 32768 on",
	} {
		w.forward("late", "", ports)
		w.serviceRefused("late", why)
	}
	w.forward("late", "", "{port: 8443, targetPort: 8081}")
	w.serviceRefused("late", "is in use by service shop/api")
	w.Must(w.RemoveManifest(serviceManifest("api")))
	w.outsideAre("late", gatewayAddresses)
	w.Must(w.WriteManifest(serviceManifest("api"), typedServiceYAML("api", "hidden", "gateway", "", "{port: 8443}")))
	w.serviceRefused("api", "is in use by service shop/late by router /core (port forward)")
	w.Must(w.RemoveManifest(serviceManifest("late")))
	w.outsideAre("api", gatewayAddresses)
	w.answersBoth(gatewayAddresses, w.host, client)
}

// forwardSources: limited sources of one Service limit neither the other Service at the address nor source NAT.
func (w *outsideWorld) forwardSources(client *lab.Pod) {
	w.T.Helper()
	stranger := w.outside("stranger", 42, "192.0.2.7/24", "2001:db8::7/64")
	w.answer(stranger, 9000)
	w.forward("web", "192.0.2.8/31,2001:db8::8/126", outsidePorts)
	for _, a := range gatewayAddresses {
		w.closed(stranger, a, "tcp/80")
		w.closed(stranger, a, "udp/53")
		w.allowed(stranger, a, "tcp/8443") // another Service at the address
	}
	w.answersBoth(gatewayAddresses, w.host, client)
	w.MustReach(stranger, gatewayAddresses...)
	for _, source := range []uint16{0, 80, 53} {
		w.answersFrom(client, source, "9000", "192.0.2.7", "2001:db8::7")
	}
	w.forward("web", "", outsidePorts)
	w.answersOutside(gatewayAddresses, stranger)
}

// otherAddresses: the Services follow the gateway to other addresses, and back.
func (w *outsideWorld) otherAddresses(client *lab.Pod) {
	w.T.Helper()
	others := []string{"192.0.2.11", "2001:db8::11"}
	controllerConfig(w.T, w.Lab, strings.NewReplacer("192.0.2.10", others[0], "2001:db8::10", others[1]).Replace(forwardsConfig))
	w.outsideAre("web", others)
	w.outsideAre("api", others)
	w.answersBoth(others, w.host, client)
	w.closed(w.host, gatewayAddresses[0], "tcp/80")
	controllerConfig(w.T, w.Lab, forwardsConfig)
	w.outsideAre("web", gatewayAddresses)
	w.outsideAre("api", gatewayAddresses)
	w.answersBoth(gatewayAddresses, w.host, client)
}

// otherGatewayNode: the next node of the gateway goes on.
func (w *outsideWorld) otherGatewayNode(client *lab.Pod) {
	w.T.Helper()
	w.watched(0, 1, 2)
	first := w.gatewayComesTo(0, 1)
	w.Must(w.Nodes[first].PowerOff(w.Ctx))
	w.gatewayComesTo(1 - first)
	w.answersOutside(gatewayAddresses, w.host, client)
	w.beside(client, "9002")
	w.Must(w.Nodes[first].PowerOn(w.Ctx))
	w.watched(0, 1, 2)
}
