package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// socket is a UDP socket of a place.
type socket struct {
	net.PacketConn
	w *world
}

func (w *world) socket(p place, port int) socket {
	w.T.Helper()
	s := socket{w: w}
	w.Must(p.Do(func() (err error) {
		s.PacketConn, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
		return err
	}))
	w.T.Cleanup(func() { _ = s.Close() })
	return s
}

func (s socket) send(to net.Addr) {
	s.w.T.Helper()
	_, err := s.WriteTo([]byte("word"), to)
	s.w.Must(err)
}

// gets reports whether a datagram comes.
func (s socket) gets() bool {
	s.w.T.Helper()
	s.w.Must(s.SetReadDeadline(time.Now().Add(silence)))
	_, _, err := s.ReadFrom(make([]byte, 64))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.w.Must(err)
	}
	return err == nil
}

// answered sends to a place until its answer comes.
func (s socket) answered(from socket, to, back net.Addr) {
	s.w.T.Helper()
	s.w.Eventually(func() error {
		s.send(to)
		if !from.gets() {
			return errors.New("the question does not arrive")
		}
		from.send(back)
		if !s.gets() {
			return errors.New("the reply does not arrive")
		}
		return nil
	})
}

// TestBoundaryFormerSandbox: a pod that nobody may reach has asked a peer. Its successor with the same address gets no
// replies that were meant for it: not the next sandbox of the same pod, which may come before the DEL of the first one,
// and not another pod. The successor's own questions are answered.
func TestBoundaryFormerSandbox(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.policy("none", "green", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: []}`)
	const request = `[{"name":"green","ips":["10.2.0.77","fd02::77"]}]`
	pod := func(w *world, name string) *lab.Pod {
		p := w.Pod(0, name, request)
		p.Labels = map[string]string{"app": "db"}
		w.Must(p.WriteManifest())
		w.Add(p)
		return p
	}
	for node, of := range []string{"the same node", "another node"} {
		peer := w.labelled(node, fmt.Sprint("peer-", node), "green", nil)
		asked := w.socket(peer, 5000)
		to := &net.UDPAddr{IP: net.ParseIP(w.Links(peer)["net1"].IPs()[0]), Port: 5000}
		back := &net.UDPAddr{IP: net.IPv4(10, 2, 0, 77), Port: 4000}
		for _, c := range []struct {
			name string
			next func(w *world, p *lab.Pod) *lab.Pod
		}{
			{"the next sandbox, before the DEL", func(w *world, p *lab.Pod) *lab.Pod {
				next := w.NewSandbox(p)
				w.Add(next)
				w.Del(p)
				w.Must(p.RemoveNetNS())
				return next
			}},
			{"the next sandbox, after the DEL", func(w *world, p *lab.Pod) *lab.Pod {
				w.Del(p)
				w.Must(p.RemoveNetNS())
				next := w.NewSandbox(p)
				w.Add(next)
				return next
			}},
			{"another pod", func(w *world, p *lab.Pod) *lab.Pod {
				w.End(p)
				return pod(w, "db-1")
			}},
		} {
			w.part(c.name+", peer on "+of, func(t *testing.T, w *world) {
				first := pod(w, "db-0")
				w.NBCtl("--wait=hv", "sync")
				w.socket(first, 4000).answered(asked, to, back)
				next := c.next(w, first)
				own := w.socket(next, 4000)
				w.NBCtl("--wait=hv", "sync")
				for range 3 {
					asked.send(back)
					if own.gets() {
						t.Error("the successor gets a reply that was meant for the former sandbox")
					}
				}
				own.answered(asked, to, back)
				w.End(next)
			})
		}
	}
}
