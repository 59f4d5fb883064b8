package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// place is where a probe comes from or goes to: a pod or a machine outside.
type place interface {
	endpoint
	Do(f func() error) error // in its network namespace
}

// answerer answers on some ports until the end of the test.
type answerer struct {
	mu      sync.Mutex
	packets map[string]int // that came, by "protocol/port"
	sockets []io.Closer
}

// answer has a pod or a machine answer on TCP and UDP ports, of both families.
func (w *world) answer(p place, ports ...int) *answerer {
	a := &answerer{packets: map[string]int{}}
	w.T.Cleanup(a.close)
	for _, port := range ports {
		var tcp net.Listener
		var udp net.PacketConn
		w.Must(p.Do(func() (err error) {
			if tcp, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err != nil {
				return err
			}
			udp, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
			return err
		}))
		a.sockets = append(a.sockets, tcp, udp)
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				a.count(fmt.Sprintf("tcp/%d", port))
				_, _ = c.Write([]byte("here\n"))
				c.Close()
			}
		}()
		go func() {
			buffer := make([]byte, 2048)
			for {
				n, from, err := udp.ReadFrom(buffer)
				if err != nil {
					return
				}
				a.count(fmt.Sprintf("udp/%d", port))
				_, _ = udp.WriteTo(buffer[:n], from)
			}
		}()
	}
	return a
}

// close ends the answers, as the end of a process does.
func (a *answerer) close() {
	for _, socket := range a.sockets {
		_ = socket.Close()
	}
}

func (a *answerer) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.packets[what]++
}

// of is how many packets (UDP) or connections (TCP) came.
func (a *answerer) of(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.packets[what]
}

// silence is how long a probe waits for an answer that must not come. A longer time would find no more: it is the time
// in which an answer that does come is seen in nearly all cases, and a flood tests the rest.
const silence = 400 * time.Millisecond

// probe sends to an address, "tcp/80" or "udp/80", and reports whether it was answered.
func probe(from place, to, what string) (answered bool, err error) {
	protocol, port, _ := strings.Cut(what, "/")
	addr, err := netip.ParseAddr(to)
	if err != nil {
		return false, err
	}
	target := net.JoinHostPort(addr.String(), port)
	err = from.Do(func() error {
		c, err := net.DialTimeout(protocol, target, silence)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		if protocol == "udp" {
			if _, err := c.Write([]byte("there?")); err != nil {
				return err
			}
		}
		_, err = c.Read(make([]byte, 64))
		return err
	})
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return false, nil
	}
	return err == nil, err
}

// allowed waits until a probe is answered.
func (w *world) allowed(from place, to, what string) {
	w.T.Helper()
	const patience = 3 * time.Minute // the rest of the test's time is for whySilent
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	refreshed := time.Now()
	err := lab.Eventually(ctx, func() error {
		answered, err := probe(from, to, what)
		if err == nil && !answered {
			err = fmt.Errorf("%s gets no answer from %s %s", from, to, what)
			if time.Since(refreshed) > staleAfter {
				w.endsStaleFlows("a probe", err)
				refreshed = time.Now()
			}
		}
		return err
	})
	if err != nil {
		w.T.Error(err)
		w.whySilent(from, to, what)
	}
}

// staleAfter is how long a probe is silent before the datapaths are asked for their flows anew.
const staleAfter = 15 * time.Second

// endsStaleFlows ends the flows that Open vSwitch 3.1 has failed to change, and says so. It reports whether the nodes have
// such a datapath.
func (w *world) endsStaleFlows(what string, err error) bool {
	w.T.Helper()
	is, flowErr := w.Lab.EndStaleFlows(w.Ctx)
	if is {
		w.T.Logf("%s: %v; asking Open vSwitch for all flows anew: %v", what, err, flowErr)
	}
	return is
}

// whySilent logs what is left of a connection that should have been answered: the neighbours of its client, what the
// nodes track of its address, and whether ovn-controller has lost a flow, which it makes again when it is asked.
func (w *world) whySilent(from place, to, what string) {
	w.T.Helper()
	w.T.Logf("neighbours of %s: %s", from, w.Exec(from, "ip", "neigh"))
	for _, n := range w.Nodes {
		tracked, err := n.AppCtl(w.Ctx, "dpctl/dump-conntrack")
		for line := range strings.Lines(tracked) {
			if strings.Contains(line, "="+to+",") {
				w.T.Logf("%s tracks %s", n.Name, strings.TrimSpace(line))
			}
		}
		err = errors.Join(err, n.RecomputeFlows(w.Ctx))
		answered, probeErr := probe(from, to, what)
		w.T.Logf("after ovn-controller of %s has computed all flows again: answered %t, %v", n.Name, answered, errors.Join(err, probeErr))
	}
}

// closed waits until a probe is not answered.
func (w *world) closed(from place, to, what string) {
	w.T.Helper()
	err := lab.Eventually(w.Ctx, func() error {
		answered, err := probe(from, to, what)
		if err == nil && answered {
			err = fmt.Errorf("%s still gets answers from %s %s", from, to, what)
		}
		return err
	})
	if err != nil {
		w.T.Error(err)
	}
}

// denied wants no answer to a probe.
func (w *world) denied(from place, to, what string) {
	w.T.Helper()
	if answered, err := probe(from, to, what); err != nil || answered {
		w.T.Errorf("%s to %s %s: answered %t, %v; want no answer", from, to, what, answered, err)
	}
}
