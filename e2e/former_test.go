package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// names answers each datagram on a UDP port with the place's name.
func (w *world) names(p place, port int) {
	w.T.Helper()
	w.datagrams(p, port, func(net.Addr) string { return p.String() })
}

// datagrams answers each datagram on a UDP port with a word and what the datagram has.
func (w *world) datagrams(p place, port int, word func(from net.Addr) string) {
	w.T.Helper()
	var udp net.PacketConn
	w.Must(p.Do(func() (err error) {
		udp, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		return err
	}))
	w.T.Cleanup(func() { _ = udp.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(append([]byte(word(from)+" "), buffer[:n]...), from)
		}
	}()
}

// mirrors answers each datagram on a UDP port with the address that it came from.
func (w *world) mirrors(p place, port int) {
	w.T.Helper()
	w.datagrams(p, port, func(from net.Addr) string { return from.(*net.UDPAddr).IP.String() })
}

// udpFlow is a flow from one port of a place to one port of an address, as long as the test goes on.
type udpFlow struct {
	conn net.Conn
	sent int
}

func (w *world) udpFlow(from place, to string, port int) *udpFlow {
	w.T.Helper()
	f := &udpFlow{}
	w.Must(from.Do(func() (err error) {
		f.conn, err = net.Dial("udp", net.JoinHostPort(to, fmt.Sprint(port)))
		return err
	}))
	w.T.Cleanup(func() { _ = f.conn.Close() })
	return f
}

// ask sends one datagram more, and returns who answers this one; "": nobody.
func (f *udpFlow) ask() (who string, err error) {
	f.sent++
	word := fmt.Sprint(f.sent)
	if _, err := f.conn.Write([]byte(word)); err != nil {
		return "", nil //nolint:nilerr // an ICMP error that came before: nobody
	}
	if err := f.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return "", err
	}
	for buffer := make([]byte, 2048); ; {
		n, err := f.conn.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) || err != nil {
			return "", nil
		}
		if name, answered, _ := strings.Cut(string(buffer[:n]), " "); answered == word {
			return name, nil
		}
	}
}

// answeredBy wants the next datagram of the flow to be answered by a place; nil: by nobody.
func (f *udpFlow) answeredBy(p place) func() error {
	want := ""
	if p != nil {
		want = p.String()
	}
	return func() error {
		who, err := f.ask()
		if err == nil && who != want {
			err = fmt.Errorf("the flow from %s to %s is answered by %q, want %q", f.conn.LocalAddr(), f.conn.RemoteAddr(), who, want)
		}
		return err
	}
}

// seenAs wants the flow to come from an address, as its end sees it.
func (f *udpFlow) seenAs(want string) error {
	who, err := f.ask()
	if err == nil && who != want {
		err = fmt.Errorf("the flow from %s is seen as %q, want %q", f.conn.LocalAddr(), who, want)
	}
	return err
}

// becomeAnsweredBy keeps flows up until all of them are answered by a place; nil: by nobody.
func (w *world) becomeAnsweredBy(p place, flows ...*udpFlow) {
	w.T.Helper()
	w.becomes(func() error {
		var errs []error
		for _, f := range flows {
			errs = append(errs, f.answeredBy(p)())
		}
		return errors.Join(errs...)
	})
}

const floatingPair = `[{"interface":"net1","floating":"192.0.2.20,2001:db8::114"}]`

// passes gives the outside addresses of pod a, which outside flows and flows of a itself use, to pod b. meanwhile runs
// while nobody has them.
func (w *outsideWorld) passes(a, b *lab.Pod, meanwhile func()) {
	w.T.Helper()
	fixed := []string{"192.0.2.20", "2001:db8::114"}
	w.requests(a, floatingPair)
	w.floats(a, fixed)
	in := []*udpFlow{w.udpFlow(w.host, fixed[0], 5000), w.udpFlow(w.host, fixed[1], 5000)}
	w.becomeAnsweredBy(a, in...)
	w.requests(a, "")
	w.becomeAnsweredBy(nil, in...)
	meanwhile()
	w.requests(b, floatingPair)
	w.becomeAnsweredBy(b, in...)
	w.requests(b, "")
	w.becomeAnsweredBy(nil, in...)
}

// TestBoundaryFormerFloating: a floating address passes between two pods of one node. A flow that an outside host keeps up goes
// to the pod that has the address, and to nobody while no pod has it, also if the agent of the node that translates was
// away. Flows to other addresses go on.
func TestBoundaryFormerFloating(t *testing.T) {
	t.Parallel()
	w := newOutsideWorld(t)
	w.network("hidden", outOf(1, ""))
	w.before = w.settled()
	a, b, other := w.Attached(2, "a", "hidden"), w.Attached(2, "b", "hidden"), w.Attached(2, "other", "hidden")
	w.requests(other, `[{"interface":"net1","floating":"192.0.2.21,2001:db8::115"}]`)
	for _, p := range []*lab.Pod{a, b, other} {
		w.names(p, 5000)
	}
	kept := []*udpFlow{w.udpFlow(w.host, "192.0.2.21", 5000), w.udpFlow(w.host, "2001:db8::115", 5000)}
	w.becomeAnsweredBy(other, kept...)
	w.step("the pods' node translates", func(_ *testing.T, w *outsideWorld) { w.passes(a, b, func() {}) })
	w.step("the agent was away", func(_ *testing.T, w *outsideWorld) {
		w.Must(w.Nodes[2].KillAgent())
		w.passes(a, b, func() { w.Must(w.Nodes[2].StartAgent(w.Ctx)) })
	})
	w.Must(errors.Join(kept[0].answeredBy(other)(), kept[1].answeredBy(other)()))
	w.End(a, b, other)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}

// TestBoundaryFormerGateway: as TestBoundaryFormerFloating, where the gateway's node translates because the pods' node has no way to the
// physical network; and a pod's own flow leaves a former egress address.
func TestBoundaryFormerGateway(t *testing.T) {
	t.Parallel()
	w := newOutsideWorld(t)
	w.network("hidden", outOf(1, ""))
	w.before = w.settled()
	a, b := w.Attached(2, "a", "hidden"), w.Attached(2, "b", "hidden")
	w.names(a, 5000)
	w.names(b, 5000)
	w.VSCtl(w.Nodes[2], "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	w.Must(w.Nodes[2].KillAgent()) // it announces what it finds at its start
	w.Must(w.Nodes[2].StartAgent(w.Ctx))
	w.notAnnounced(w.Nodes[2])
	w.step("floating", func(_ *testing.T, w *outsideWorld) { w.passes(a, b, func() {}) })
	w.step("egress", func(_ *testing.T, w *outsideWorld) {
		w.mirrors(w.host, 5001)
		flow := w.udpFlow(a, "192.0.2.9", 5001)
		w.requests(a, `[{"interface":"net1","egress":"192.0.2.22"}]`)
		w.Eventually(func() error { // a flow that begins before keeps the gateway's address
			if out := w.NBCtl("--bare", "--columns=type", "find", "NAT", "external_ip=192.0.2.22"); out != "snat" {
				return fmt.Errorf("NAT of the egress address: %q", out)
			}
			return nil
		})
		w.becomes(func() error { return flow.seenAs("192.0.2.22") })
		w.requests(a, "")
		w.becomes(func() error { return flow.seenAs("192.0.2.10") })
	})
	w.VSCtl(w.Nodes[2], "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=provider:br-ex")
	w.End(a, b)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}

// notAnnounced waits until NB knows that a node has no way to a physical network.
func (w *outsideWorld) notAnnounced(n *lab.Node) {
	w.T.Helper()
	w.Eventually(func() error {
		ids := w.NBCtl("--bare", "--columns=external_ids", "list", "Copp", ovndb.NodeKey(n.Name))
		if strings.Contains(ids, "physical-networks") {
			return fmt.Errorf("NB has %s", ids)
		}
		return nil
	})
}
