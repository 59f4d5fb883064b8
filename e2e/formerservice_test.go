package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// namesTCP answers each line of a TCP connection with the place's name.
func (w *world) namesTCP(p place, port int) {
	w.T.Helper()
	var listener net.Listener
	w.Must(p.Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}))
	w.T.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					_, _ = fmt.Fprintln(c, p)
				}
			}()
		}
	}()
}

// tcpConnection is a connection that is kept up.
type tcpConnection struct{ net.Conn }

func (w *world) tcpConnection(from place, to string, port int) *tcpConnection {
	w.T.Helper()
	c := &tcpConnection{}
	w.Eventually(func() error {
		return from.Do(func() (err error) {
			c.Conn, err = net.DialTimeout("tcp", net.JoinHostPort(to, fmt.Sprint(port)), 10*silence)
			return err
		})
	})
	w.T.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends one line more, and returns who answers; "": nobody.
func (c *tcpConnection) ask() string {
	if err := c.SetDeadline(time.Now().Add(10 * silence)); err != nil {
		return ""
	}
	if _, err := fmt.Fprintln(c); err != nil {
		return ""
	}
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

// kept are connections to a Service that are kept up: one of TCP and one of UDP to each address.
type kept struct {
	tcp []*tcpConnection
	udp []*udpFlow
}

// keeps opens connections to ports 80 of TCP and 53 of UDP. They are answered by one of the pods.
func (w *world) keeps(from place, addresses ...string) *kept {
	w.T.Helper()
	k := &kept{}
	for _, a := range addresses {
		k.tcp = append(k.tcp, w.tcpConnection(from, a, 80))
		k.udp = append(k.udp, w.udpFlow(from, a, 53))
	}
	return k
}

// answered wants all TCP connections to be answered by one place, and all UDP flows by another one; nil: by nobody.
func (k *kept) answered(tcp, udp place) error {
	var errs []error
	for _, f := range k.udp {
		errs = append(errs, f.answeredBy(udp)())
	}
	want := ""
	if tcp != nil {
		want = tcp.String()
	}
	for _, c := range k.tcp {
		if got := c.ask(); got != want {
			errs = append(errs, fmt.Errorf("connection from %s to %s is answered by %q, want %q",
				c.LocalAddr(), c.RemoteAddr(), got, want))
		}
	}
	return errors.Join(errs...)
}

// endings is a world with Service web and pods that are its backends, one after the other, and a pod of Service late.
type endings struct {
	*world
	a, b, late *lab.Pod
	addresses  []string
	from       []place
	manifest   func(service string) string
	// silent are the places whose connections of TCP to a backend that leaves have no answer any more.
	silent map[place]bool
}

func (e *endings) ready(p *lab.Pod, is string) {
	e.T.Helper()
	p.Ready = is
	e.Must(p.WriteManifest())
}

// keepUp begins connections that one place answers. NB has the Service before the nodes have its flows: until then the
// Service that had the address before may still take a connection, which ends then.
func (e *endings) keepUp(backend place) (all []*kept) {
	e.T.Helper()
	for _, from := range e.from {
		var k *kept
		e.Eventually(func() error {
			k = e.keeps(from, e.addresses...)
			return k.answered(backend, backend)
		})
		all = append(all, k)
	}
	return all
}

// becomeAnswered waits until all flows of UDP are answered by one place, and the connections of TCP by another one, which
// depends on the client.
func (e *endings) becomeAnswered(all []*kept, udp place, tcp func(from place) place) {
	e.T.Helper()
	e.Eventually(func() error {
		var errs []error
		for i, k := range all {
			errs = append(errs, k.answered(tcp(e.from[i]), udp))
		}
		return errors.Join(errs...)
	})
}

// leaves: the backend stops being ready, and another one is. UDP goes on with this one, and TCP with the former one.
// away does the change while something is away, and brings it back.
func (e *endings) leaves(away func(change func())) {
	e.T.Helper()
	defer e.endServices()
	all := e.begin()
	away(func() {
		e.ready(e.a, "False")
		e.ready(e.b, "True")
		e.serves("web", e.b)
	})
	e.becomeAnswered(all, e.b, func(from place) place {
		if e.silent[from] {
			return nil
		}
		return e.a
	})
}

// begin makes Service web with backend a, and keeps up connections to it.
func (e *endings) begin() []*kept {
	e.T.Helper()
	e.ready(e.a, "True")
	e.ready(e.b, "False")
	e.Must(e.WriteManifest(serviceManifest("web"), e.manifest("web")))
	e.serves("web", e.a)
	return e.keepUp(e.a)
}

func (e *endings) endServices() {
	for _, name := range []string{"web", "late"} {
		if err := e.RemoveManifest(serviceManifest(name)); err == nil {
			e.serves(name)
		}
	}
}

// passes: the Service is deleted, and its address and port are another one's. All its connections end.
func (e *endings) passes(away func(change func())) {
	e.T.Helper()
	defer e.endServices()
	all := e.begin()
	away(func() {
		e.Must(e.RemoveManifest(serviceManifest("web")))
		e.serves("web")
		e.Must(e.WriteManifest(serviceManifest("late"), e.manifest("late")))
		e.serves("late", e.late)
	})
	e.becomeAnswered(all, e.late, func(place) place { return nil })
}

// serves waits until NB has one backend for each port of a Service; none: it has nothing of the Service.
func (e *endings) serves(service string, backends ...*lab.Pod) {
	e.T.Helper()
	e.Eventually(func() error {
		out := e.NBCtl("--bare", "--columns=name,vips", "list", "Load_Balancer")
		text := ""
		for row := range strings.SplitSeq(out, "\n\n") {
			if name, vips, _ := strings.Cut(row, "\n"); strings.Contains(name, "shop/"+service+":") {
				text += vips + " "
			}
		}
		if (text == "") != (len(backends) == 0) {
			return fmt.Errorf("service %s has %q in NB", service, text)
		}
		for _, p := range backends {
			for vip := range strings.FieldsSeq(text) {
				_, backend, _ := strings.Cut(vip, "=")
				host, _, err := net.SplitHostPort(strings.Trim(backend, `"`))
				if err != nil || !strings.Contains(" "+strings.Join(e.Links(p)["net1"].IPs(), " ")+" ", " "+host+" ") {
					return fmt.Errorf("service %s has %q in NB, want only %s", service, text, p)
				}
			}
		}
		return nil
	})
}

func (e *endings) pods(node int, network string) {
	e.T.Helper()
	e.a = e.labelled(node, "a", network, map[string]string{"app": "web"})
	e.b = e.labelled(node, "b", network, map[string]string{"app": "web"})
	e.late = e.labelled(node, "late-0", network, map[string]string{"app": "late"})
	for _, p := range []*lab.Pod{e.a, e.b, e.late} {
		e.names(p, 90)
		e.namesTCP(p, 8080)
	}
}

func nothingAway(change func()) { change() }

// ovnAway does a change while ovn-controller of a node is away.
func (e *endings) ovnAway(n *lab.Node) func(func()) {
	return func(change func()) { e.Must(n.WithoutOVNController(e.Ctx, change)) }
}

// agentAway does a change while the agent of a node is away.
func (e *endings) agentAway(n *lab.Node) func(func()) {
	return func(change func()) {
		e.Must(n.KillAgent())
		change()
		e.Must(n.StartAgent(e.Ctx))
	}
}

// TestBoundaryFormerVirtual: connections to the virtual address of a Service that are kept up. UDP leaves a backend that
// is not ready any more, and TCP stays. If the Service is deleted, all end: the address may be another Service's next.
// This is also so if ovn-controller or the agent of the client's node was away. Connections to other Services go on.
func TestBoundaryFormerVirtual(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	e := &endings{world: w, addresses: []string{"10.2.200.1", "fd02::c801"}}
	e.manifest = func(service string) string {
		return serviceYAML(service, "green", strings.Join(e.addresses, ","), webPorts, "")
	}
	e.pods(0, "green")
	other := w.labelled(0, "other", "green", map[string]string{"app": "other"})
	w.names(other, 90)
	w.namesTCP(other, 8080)
	client := w.labelled(1, "client", "green", nil)
	e.from = []place{client}
	w.service("other", serviceYAML("other", "green", "10.2.200.2,fd02::c802", webPorts, ""))
	beside := w.keeps(client, "10.2.200.2", "fd02::c802")
	w.Eventually(func() error { return beside.answered(other, other) })
	for _, away := range []struct {
		name string
		from func(func())
	}{{"nothing", nothingAway}, {"ovn-controller", e.ovnAway(w.Nodes[1])}, {"agent", e.agentAway(w.Nodes[1])}} {
		e.step(away.name+" is away: a backend leaves", func(e *endings) { e.leaves(away.from) })
		e.step(away.name+" is away: the address passes", func(e *endings) { e.passes(away.from) })
	}
	w.Must(beside.answered(other, other))
}

// step runs a subtest in the same world.
func (e *endings) step(name string, step func(e *endings)) {
	e.part(name, func(_ *testing.T, w *world) {
		sub := *e
		sub.world = w
		step(&sub)
	})
}

// TestBoundaryFormerOutside: as TestBoundaryFormerVirtual, of an outside address of a Service, and of ports of the gateway's own
// address. An outside host and a pod on another node than the gateway keep up connections.
func TestBoundaryFormerOutside(t *testing.T) {
	t.Parallel()
	w := configuredOutsideWorld(t, strings.Replace(poolsConfig, "    addressPools:", "    portForwards: {shop: 4}\n    addressPools:", 1))
	w.network("hidden", outOf(1, ""))
	w.before = w.settled()
	e := &endings{world: w.world}
	e.pods(2, "hidden")
	client := w.labelled(2, "client", "hidden", nil)
	e.from = []place{w.host, client}
	if w.ovnSince(2309) { // the gateway translates the replies of present backends alone
		e.silent = map[place]bool{w.host: true}
	}
	active := w.gatewayComesTo(0, 1)
	for _, c := range []struct {
		name, address string
		addresses     []string
	}{
		{"an outside address", "192.0.2.17,2001:db8::111", []string{"192.0.2.17", "2001:db8::111"}},
		{"port forwards", "gateway", gatewayAddresses},
	} {
		e.addresses = c.addresses
		e.manifest = func(service string) string {
			return outsideServiceYAML(service, "hidden", c.address, "",
				`{name: http, port: 80, targetPort: 8080}, {name: dns, protocol: UDP, port: 53, targetPort: 90}`)
		}
		e.step(c.name+": a backend leaves", func(e *endings) { e.leaves(nothingAway) })
		e.step(c.name+": it passes", func(e *endings) { e.passes(nothingAway) })
		e.step(c.name+": it passes, ovn-controller is away", func(e *endings) { e.passes(e.ovnAway(e.Nodes[active])) })
	}
	w.End(e.a, e.b, e.late, client)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}
