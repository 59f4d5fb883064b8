//go:build bench

package bench

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// TestPacket counts the first echoes that are lost between a pod whose ADD has just returned and a pod of another node.
func TestPacket(t *testing.T) {
	w := Here(t.Context())
	// An OVN that gives its tunnels a local_ip needs the kernel's routes: Open vSwitch's own ones are never local.
	ownRoutes := strings.HasPrefix(w.OVN, "23.")
	p := report(t, "57-packet-"+w.OVN, "The first packet, OVN "+w.OVN, `Two nodes, one network, one old pod on each node.
A new pod is attached to the first node. At the moment at which its ADD returns, one ICMP echo request is sent, by a
socket that was open before: by the new pod to the old pod of the other node, or by that pod to the new one. Further
requests follow 1 ms apart until one is answered: the gap. On busy nodes another pod comes and goes on each node all
the time. There are no early ports. The agents use NB over TLS. A lost echo was sent before the other node had the flows to the new pod, or the
lab's userspace datapath has lost it: ovs-vswitchd reads all routes of the kernel again whenever a link or a route
of the node changes, and loses packets of all tunnels meanwhile. The last row shows that between two old pods, while
no pod comes or goes.`)
	t.Run("flows", func(t *testing.T) {
		s := startWays(t, lab.Options{Nodes: 2, OwnRoutes: ownRoutes})
		s.series(p, "idle nodes", *turns*25)
		stop := s.busy()
		s.series(p, "busy nodes", *turns*10)
		stop()
	})
	t.Run("datapath", func(t *testing.T) {
		s := startWays(t, lab.Options{Nodes: 2})
		if ownRoutes {
			p.Notes = append(p.Notes, "In the first series ovs-vswitchd has a route of its own, and reads none of the kernel.")
			s.series(p, "idle nodes, routes of the kernel", *turns*10)
		}
		s.oldPods(p, *turns*10)
	})
}

// ways are two nodes with an old pod each.
type ways struct {
	*labtest.World
	here, there *lab.Pod
	pods        int
}

const (
	wayNetwork = `{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.60.0.0/16"}`
	hereIP     = "10.60.0.11"
	thereIP    = "10.60.0.12"
)

func startWays(t *testing.T, o lab.Options) *ways {
	s := &ways{World: &labtest.World{Test: labtest.New(t, patience), Lab: lab.Start(t, o)}}
	overTLS(t, s.Lab)
	s.Start()
	s.NAD("blue", wayNetwork)
	s.here, s.there = s.Pod(0, "here", onBlue(hereIP)), s.Pod(1, "there", onBlue(thereIP))
	s.AddInTheEnd(s.here)
	s.AddInTheEnd(s.there)
	s.MustReach(s.here, thereIP)
	return s
}

func onBlue(ip string) string { return fmt.Sprintf(`[{"name":"blue","ips":["%s/16"]}]`, ip) }

// busy has a pod come and go on each node until stop is called.
func (s *ways) busy() (stop func()) {
	ended := make(chan struct{})
	var both errgroup.Group
	for i, node := range s.Nodes {
		both.Go(func() error {
			for n := 0; ; n++ {
				select {
				case <-ended:
					return nil
				default:
				}
				pod, err := node.NewPod(s.Ctx, "shop", fmt.Sprintf("busy-%d-%d", i, n),
					map[string]string{labtest.NetworksAnnotation: "blue"})
				if err != nil {
					return err
				}
				if _, err := pod.Add(s.Ctx); err != nil {
					return err
				}
				if err := pod.Close(s.Ctx); err != nil {
					return err
				}
			}
		})
	}
	return func() {
		close(ended)
		s.Must(both.Wait())
	}
}

// series attaches pods, and counts the lost first echoes of each direction, and those of them that were sent before the
// other node had the flows.
func (s *ways) series(p *Part, what string, pods int) {
	for _, out := range []bool{true, false} {
		direction := "to the new pod"
		if out {
			direction = "from the new pod"
		}
		lost, early := 0, 0
		var gaps []float64
		for range pods {
			pod, e := s.firstEcho(out)
			if e.lost {
				lost++
				gaps = append(gaps, ms(e.gap))
				if s.sentBeforeFlows(pod, e.sent) {
					early++
				}
			}
			s.End(pod)
		}
		what := what + ", " + direction
		p.Rows = append(p.Rows, count(what+": first echoes lost", lost, pods))
		if lost == 0 {
			continue
		}
		p.Rows = append(p.Rows, Number(what+": gap after a lost one", "ms", gaps, 0),
			Number(what+": shortest gap", "ms", []float64{slices.Min(gaps)}, 0),
			Number(what+": longest gap", "ms", []float64{slices.Max(gaps)}, 0),
			count(what+": lost before the other node had the flows", early, lost))
	}
}

func count(what string, n, of int) Row {
	r := Number(what, "", []float64{float64(n)}, 0)
	r.N = of
	return r
}

// firstEcho attaches a pod to the first node. Each pod has an address of its own, which no neighbour table knows.
func (s *ways) firstEcho(out bool) (*lab.Pod, echo) {
	s.pods++
	ip := netip.AddrFrom4([4]byte{10, 60, byte(128 + s.pods/250), byte(1 + s.pods%250)})
	pod := s.Pod(0, fmt.Sprint("web-", s.pods), onBlue(ip.String()))
	from, to := namespace(pod), netip.MustParseAddr(thereIP)
	if !out {
		from, to = s.there, ip
	}
	p, err := newPinger(from)
	s.Must(err)
	s.Add(pod)
	e, err := p.first(to)
	s.Must(err)
	return pod, e
}

// sentBeforeFlows reports whether the other node had no flows to the pod when a packet was sent. The age of the flows
// tells, to some milliseconds: the flows to a port have the first 32 bits of its row in the Southbound database as
// their cookie.
func (s *ways) sentBeforeFlows(pod *lab.Pod, sent time.Time) bool {
	row, err := s.SBCtl(s.Ctx, "--bare", "--columns=_uuid", "find", "Port_Binding", "logical_port="+pod.String()+"/net1")
	s.Must(err)
	first, _, _ := strings.Cut(row, "-")
	bridge := "unix:" + filepath.Join(filepath.Dir(s.Nodes[1].OVSSocket), "br-int.mgmt")
	out, err := exec.CommandContext(s.Ctx, "ovs-ofctl", "dump-flows", bridge, "cookie=0x"+first+"/-1").Output()
	now := time.Now()
	s.Must(err)
	ages := regexp.MustCompile(`duration=([0-9.]+s)`).FindAllStringSubmatch(string(out), -1)
	return !slices.ContainsFunc(ages, func(m []string) bool {
		age, err := time.ParseDuration(m[1])
		s.Must(err)
		return now.Add(-age).Before(sent)
	})
}

// oldPods counts what the datapath loses between two old pods while nothing changes but a route of the node, which none
// of them needs.
func (s *ways) oldPods(p *Part, echoes int) {
	lost := 0
	for i := range echoes {
		_, err := s.Nodes[0].Exec(s.Ctx, "ip", "route", []string{"add", "del"}[i%2], "192.0.2.0/24", "dev", "eth0")
		s.Must(err)
		ping, err := newPinger(s.here)
		s.Must(err)
		e, err := ping.first(netip.MustParseAddr(thereIP))
		s.Must(err)
		if e.lost {
			lost++
		}
	}
	p.Rows = append(p.Rows, count("two old pods, while a route of the node changes: echoes lost", lost, echoes))
}
