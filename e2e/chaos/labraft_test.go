//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// labMoves is how often the leadership moves.
const labMoves = 20

// labRaft is a lab whose NB is a raft over TLS, with two controllers.
type labRaft struct {
	*podLoad
	raft     *raft // its members alone: the nodes are the lab's
	programs map[string]*lab.Process
	pids     map[string]int
}

func newLabRaft(t *testing.T) *labRaft {
	t.Helper()
	server, client := ovndbtest.Certificates(t, lab.CentralIP)
	s := &labRaft{raft: &raft{t: t}, pids: map[string]int{}}
	s.podLoad = newPodLoad(t, lab.Options{NB: func(l *lab.Lab) lab.NB {
		s.raft.Cluster = ovndbtest.StartNBClusterAt(t, ovndbtest.Place{IP: lab.CentralIP, In: l.OnCentral}, server, 3)
		file := func(name string) string { return filepath.Join(client, name) }
		return lab.NB{Endpoints: s.raft.Endpoints(), Sockets: s.raft.Sockets(),
			PrivateKey: file("key.pem"), Certificate: file("cert.pem"), CACert: file("ca.pem")}
	}})
	second, err := s.RunController(s.Ctx, "second")
	s.Must(err)
	s.programs = map[string]*lab.Process{"controller": s.Controller, "second controller": second,
		"first agent": s.Nodes[0].Agent, "second agent": s.Nodes[1].Agent}
	for name, p := range s.programs {
		s.pids[name] = p.Pid()
	}
	return s
}

// networks has the controller make a network, edit it and delete it. A pod gets an address of each configuration.
func (s *labRaft) networks() {
	for i := 0; s.going(); i++ {
		for edit := range 2 {
			prefix := fmt.Sprintf("10.3.%d.", edit)
			config := fmt.Sprintf(`{"type":"ovn-multinet","subnets":"%s0/24"}`, prefix)
			s.NAD("red", config)
			if !s.controlled("accepted", func() error { return s.accepted("red", config) }) {
				return
			}
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
			if ids, err := s.idsOf("Logical_Switch", "shop/red"); err != nil || ids != "" {
				return fmt.Errorf("there is a switch: %s, %v", ids, err)
			}
			return nil
		})
	}
}

// controlled waits until the controller has done what it has to do with the network.
func (s *labRaft) controlled(what string, done func() error) bool {
	defer s.operation(time.Now())
	ctx, cancel := context.WithTimeout(s.Ctx, patience)
	defer cancel()
	err := lab.Eventually(ctx, done)
	if err != nil {
		s.failed.Add(1)
		s.T.Errorf("network red was not %s within %v: %v", what, patience, err)
	}
	return err == nil
}

// accepted returns an error unless NB has the configuration of a NAD as the accepted one.
func (s *labRaft) accepted(nad, config string) error {
	n, err := netmodel.ParseNetwork("shop", nad, []byte(config))
	if err != nil {
		return err
	}
	ids, err := s.idsOf("Copp", "ovn-multinet "+n.ID()+" accepted")
	if want := ovndb.AcceptedPrefix + n.NAD() + "=" + n.Revision(); err == nil && !strings.Contains(ids, want) {
		err = fmt.Errorf("NB has %q, want %s", ids, want)
	}
	return err
}

// idsOf reads the external_ids of a row; "": there is no row of that name. A member that does not answer is left soon.
func (s *labRaft) idsOf(table, name string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Ctx, 5*time.Second)
	defer cancel()
	return s.Lab.NBCtl(ctx, "--bare", "--columns=external_ids", "find", table, `name="`+name+`"`)
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
	s.begin("web", s.networks)
	for range labMoves {
		s.step()
		s.moveLeadership()
	}
	for _, f := range []fault{leaderKilled, leaderPaused} {
		s.step()
		end := f.begin(s.raft)
		s.step()
		end()
	}
	s.step()
	s.stop()
	row := Row{Fault: fmt.Sprintf("lab on a raft: leadership moved %d times, leader killed, paused", labMoves)}
	row.Lost, row.Residue = s.comesBack(s.raft.Leader)
	row.Failed = s.goOn()
	report(t, s.finish(row))
}
