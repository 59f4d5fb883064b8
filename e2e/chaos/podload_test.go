//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// The load on a lab.
const (
	podWorkers = 3 // pods that start and end at once, on each node
	// podStep is step for the lab, where an operation is a call of the real plugin.
	podStep = 6
)

// podLoad is a lab of two nodes with pods that the real plugin attaches and detaches.
type podLoad struct {
	*labtest.World
	load
	history History
	over    chan struct{} // closed: no pod has to start any more
	done    chan struct{} // closed: none is starting or ending

	mu   sync.Mutex
	live map[string]*livePod // by the sandbox
}

// livePod is a pod that the plugin has attached.
type livePod struct {
	*lab.Pod
	hold  *Hold
	ports [][]string // their addresses
}

func newPodLoad(t *testing.T, o lab.Options) *podLoad {
	t.Helper()
	o.Nodes = 2
	w := &labtest.World{Test: labtest.New(t, time.Hour), Lab: lab.Start(t, o)}
	s := &podLoad{World: w, live: map[string]*livePod{}}
	for _, n := range s.Nodes {
		n.AgentArgs = append(n.AgentArgs, "--reconcile-period=1s")
	}
	s.ControllerArgs = append(s.ControllerArgs, "--orphan-period=1s")
	s.Start()
	s.NAD("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/27,fd01::/64"}`)
	s.NAD("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16"}`)
	first := []*lab.Pod{s.Pod(0, "first-0", "blue,green"), s.Pod(1, "first-1", "blue,green")}
	for _, p := range first {
		s.AddInTheEnd(p) // the networks are there
	}
	ended(s.World, first...)
	return s
}

// begin has pods start and end on both nodes, beside other work.
func (s *podLoad) begin(name string, others ...func()) {
	s.over, s.done = make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for node := range s.Nodes {
		for i := range podWorkers {
			all.Go(func() { s.pods(node, fmt.Sprintf("%s-%d-%d", name, node, i)) })
		}
	}
	for _, work := range others {
		all.Go(work)
	}
	go func() {
		defer close(s.done)
		all.Wait()
	}()
}

// step waits until some operations more have ended.
func (s *podLoad) step() { s.progress(s.done, podStep) }

// stop waits until no pod starts or ends any more. Some run on.
func (s *podLoad) stop() {
	close(s.over)
	<-s.done
}

// compare compares NB with the pods that run.
func (s *podLoad) compare(server *ovndbtest.Server) (lost, residue int, words []string) {
	acknowledged := map[string][][]string{}
	for sandbox, p := range s.live {
		acknowledged[sandbox] = p.ports
	}
	return comparePorts(s.T, server, acknowledged)
}

// comesBack waits until NB has what the pods have, and counts what is different in the end. Pending releases and
// repairs take a moment.
func (s *podLoad) comesBack(leader func() *ovndbtest.Server) (lost, residue int) {
	var words []string
	ctx, cancel := context.WithTimeout(s.Ctx, patience)
	defer cancel()
	if err := lab.Eventually(ctx, func() error {
		if lost, residue, words = s.compare(leader()); len(words) > 0 {
			return errors.New(strings.Join(words, "\n"))
		}
		return nil
	}); err != nil {
		s.T.Errorf("NB does not have what the pods have: %v", err)
	}
	return lost, residue
}

// nb is the lab's own NB.
func (s *podLoad) nb() *ovndbtest.Server { return ovndbtest.AttachNB(s.T, s.NBSocket()) }

// finish ends all pods, completes the row, and begins to count anew.
func (s *podLoad) finish(row Row) Row {
	for _, p := range s.live {
		s.end(p)
	}
	row.Residue += residue(s.World, row.Fault)
	for _, d := range s.history.Duplicates() {
		s.T.Errorf("two pods had one address: %s", d)
		row.Duplicates++
	}
	row.Tries, row.Failed = int(s.ended.Swap(0)), row.Failed+int(s.failed.Swap(0))
	row.Stall = max(row.Stall, time.Duration(s.stall.Swap(0)))
	return row
}

// start starts a pod as a kubelet does; nil: it did not start within the kubelet's patience.
func (s *podLoad) start(node int, name, networks string) *livePod {
	defer s.operation(time.Now())
	p := &livePod{Pod: s.Pod(node, name, networks)}
	ctx, cancel := context.WithTimeout(s.Ctx, patience)
	defer cancel()
	if err := s.AddWithin(ctx, p.Pod); err != nil {
		s.failed.Add(1)
		s.T.Errorf("%s did not start within %v: %v", p, patience, err)
		s.End(p.Pod)
		return nil
	}
	var all []string
	for ifName, link := range s.Links(p.Pod) {
		if strings.HasPrefix(ifName, "net") {
			addresses := append(link.IPs(), link.MAC)
			p.ports, all = append(p.ports, addresses), append(all, addresses...)
		}
	}
	p.hold = s.history.Attached(p.Sandbox, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[p.Sandbox] = p
	return p
}

// end ends a pod.
func (s *podLoad) end(p *livePod) {
	defer s.operation(time.Now())
	s.mu.Lock()
	delete(s.live, p.Sandbox)
	s.mu.Unlock()
	s.history.Releasing(p.hold)
	s.End(p.Pod)
}

// going reports whether pods still have to start.
func (s *podLoad) going() bool {
	select {
	case <-s.over:
		return false
	default:
		return true
	}
}

// pods has pods of two networks start, and end when the next one has started. The last ones go on.
func (s *podLoad) pods(node int, name string) {
	var before *livePod
	for i := 0; s.going(); i++ {
		p := s.start(node, fmt.Sprintf("%s-%d", name, i), "blue,green")
		if p == nil {
			return
		}
		if before != nil {
			s.end(before)
		}
		before = p
	}
}
