//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// The load on the lab's raft.
const (
	labWorkers = 3  // pods that start and end at once, on each node
	labStep    = 6  // operations between the beginning of a fault and its end, and before the next fault
	labMoves   = 20 // of the leadership
)

// labRaft is a real OVN on a raft over TLS, with two controllers, and two nodes whose pods come and go.
type labRaft struct {
	*labtest.World
	load
	raft     *raft // its members alone: the nodes are the lab's
	programs map[string]*lab.Process
	pids     map[string]int
	history  History
	over     chan struct{} // closed: no pod has to start any more

	mu   sync.Mutex
	live map[string]*livePod // by the sandbox
}

// livePod is a pod that the plugin has attached.
type livePod struct {
	*lab.Pod
	hold  *Hold
	ports [][]string // their addresses
}

func newLabRaft(t *testing.T) *labRaft {
	t.Helper()
	server, client := certificates(t, lab.CentralIP)
	s := &labRaft{raft: &raft{t: t}, over: make(chan struct{}), live: map[string]*livePod{}, pids: map[string]int{}}
	s.World = &labtest.World{Test: labtest.New(t, time.Hour), Lab: lab.Start(t, lab.Options{Nodes: 2, NB: func(l *lab.Lab) lab.NB {
		s.raft.Cluster = ovndbtest.StartNBClusterAt(t, ovndbtest.Place{IP: lab.CentralIP, In: l.OnCentral}, server, 3)
		file := func(name string) string { return filepath.Join(client, name) }
		return lab.NB{Endpoints: s.raft.Endpoints(), Sockets: s.raft.Sockets(),
			PrivateKey: file("key.pem"), Certificate: file("cert.pem"), CACert: file("ca.pem")}
	}})}
	s.Start()
	second, err := s.RunController(s.Ctx, "second")
	s.Must(err)
	s.programs = map[string]*lab.Process{"controller": s.Controller, "second controller": second,
		"first agent": s.Nodes[0].Agent, "second agent": s.Nodes[1].Agent}
	for name, p := range s.programs {
		s.pids[name] = p.Pid()
	}
	s.NAD("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24,fd01::/64"}`)
	s.NAD("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16"}`)
	first := []*lab.Pod{s.Pod(0, "first-0", "blue,green"), s.Pod(1, "first-1", "blue,green")}
	for _, p := range first {
		s.AddInTheEnd(p) // the networks are there
	}
	ended(s.World, first...)
	return s
}

// start starts a pod as a kubelet does; nil: it did not start within the kubelet's patience.
func (s *labRaft) start(node int, name, networks string) *livePod {
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
func (s *labRaft) end(p *livePod) {
	defer s.operation(time.Now())
	s.mu.Lock()
	delete(s.live, p.Sandbox)
	s.mu.Unlock()
	s.history.Releasing(p.hold)
	s.End(p.Pod)
}

// going tells whether pods still have to start.
func (s *labRaft) going() bool {
	select {
	case <-s.over:
		return false
	default:
		return true
	}
}

// pods has pods of two networks start, and end when the next one has started. The last ones go on.
func (s *labRaft) pods(node int, name string) {
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

// networks has the controller make a network, edit it and delete it. A pod gets an address of each configuration.
func (s *labRaft) networks() {
	for i := 0; s.going(); i++ {
		for edit := range 2 {
			prefix := fmt.Sprintf("10.3.%d.", edit)
			config := fmt.Sprintf(`{"type":"ovn-multinet","subnets":"%s0/24"}`, prefix)
			s.NAD("red", config)
			s.controlled("accepted", func() error { return s.accepted("red", config) })
			p := s.start(i%2, fmt.Sprintf("red-%d-%d", i, edit), "red")
			if p == nil {
				return
			}
			if ip := p.ports[0][0]; !strings.HasPrefix(ip, prefix) {
				s.T.Errorf("%s has %s, want an address of %s0/24", p, ip, prefix)
			}
			s.end(p)
		}
		s.Must(s.RemoveManifest(labtest.NADFile("red")))
		s.controlled("deleted", func() error {
			if ids, err := s.switchOf("red"); err != nil || ids != "" {
				return fmt.Errorf("there is a switch: %s, %v", ids, err)
			}
			return nil
		})
	}
}

// controlled waits until the controller has done what it has to do with the network.
func (s *labRaft) controlled(what string, done func() error) {
	defer s.operation(time.Now())
	ctx, cancel := context.WithTimeout(s.Ctx, patience)
	defer cancel()
	if err := lab.Eventually(ctx, done); err != nil {
		s.failed.Add(1)
		s.T.Errorf("network red was not %s within %v: %v", what, patience, err)
	}
}

// accepted returns an error unless NB has the configuration of a NAD as the accepted one.
func (s *labRaft) accepted(nad, config string) error {
	n, err := netmodel.ParseNetwork("shop", nad, []byte(config))
	if err != nil {
		return err
	}
	ids, err := s.switchOf(nad)
	if want := ovndb.AcceptedPrefix + n.NAD() + "=" + n.Revision(); err == nil && !strings.Contains(ids, want) {
		err = fmt.Errorf("the switch has %q, want %s", ids, want)
	}
	return err
}

// switchOf reads the external_ids of a network's switch; "": there is no switch. A member that does not answer is left
// soon.
func (s *labRaft) switchOf(nad string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Ctx, 5*time.Second)
	defer cancel()
	return s.Lab.NBCtl(ctx, "--bare", "--columns=external_ids", "find", "Logical_Switch", "name=shop/"+nad)
}

// moveLeadership moves the leadership to another member.
func (s *labRaft) moveLeadership() {
	before := s.raft.Leader()
	before.MoveLeadership()
	s.Eventually(func() error {
		if s.raft.Leader() == before {
			return fmt.Errorf("the leadership has not moved")
		}
		return nil
	})
}

// goOn counts the programs that have ended or were started again.
func (s *labRaft) goOn() (failed int) {
	for name, p := range s.programs {
		if !p.Running() || p.Pid() != s.pids[name] {
			s.T.Errorf("the %s did not go on:\n%s", name, p.LastLines(20))
			failed++
		}
	}
	return failed
}

// TestLabOnRaft has the plugin attach and detach pods on two nodes of a real OVN whose NB is a raft over TLS, while the
// leadership moves and the leader is killed and paused. A network is made, edited and deleted all the time. Agents and
// controllers go on as they are.
func TestLabOnRaft(t *testing.T) {
	s := newLabRaft(t)
	var all sync.WaitGroup
	for node := range s.Nodes {
		for i := range labWorkers {
			all.Go(func() { s.pods(node, fmt.Sprintf("web-%d-%d", node, i)) })
		}
	}
	all.Go(s.networks)
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	for range labMoves {
		s.progress(done, labStep)
		s.moveLeadership()
	}
	for _, f := range []fault{leaderKilled, leaderPaused} {
		s.progress(done, labStep)
		end := f.begin(s.raft)
		s.progress(done, labStep)
		end()
	}
	s.progress(done, labStep)
	close(s.over)
	<-done

	row := Row{Fault: fmt.Sprintf("lab on a raft: leadership moved %d times, leader killed, paused", labMoves)}
	acknowledged := map[string][][]string{}
	for sandbox, p := range s.live {
		acknowledged[sandbox] = p.ports
	}
	t.Logf("%d pods run at the end", len(acknowledged))
	row.Lost, row.Residue = comparePorts(t, s.raft.Leader(), acknowledged)
	for _, p := range s.live {
		s.end(p)
	}
	row.Residue += residue(s.World, "the end")
	for _, d := range s.history.Duplicates() {
		t.Errorf("two pods had one address: %s", d)
		row.Duplicates++
	}
	row.Tries, row.Stall = int(s.ended.Load()), time.Duration(s.stall.Load())
	row.Failed = int(s.failed.Load()) + s.goOn()
	report(t, row)
}
