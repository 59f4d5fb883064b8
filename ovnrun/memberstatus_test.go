package ovnrun

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// TestMemberStatus: each member says whether it leads; the leader names a server that has stopped; and of a daemon that
// does not answer there is a reason.
func TestMemberStatus(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.node("a"), w.node("b"), w.node("c")
	w.members(false, "a=1")
	w.start(a)
	w.wantRaft(a)
	w.members(true, "a=1", "b=1", "c=1")
	w.start(b)
	w.start(c)
	w.wantRaft(a, b, c)
	w.wantTimer(testTimer, a, b, c)
	nodes := []*node{a, b, c}
	// The raft of a busy machine may choose another leader at any moment, and hear late.
	says := func(silent string) (follower *node) {
		w.eventually("one leader", func() error {
			states, all := []string{}, ""
			for _, n := range nodes {
				s := Status(t.Context(), n.RunDir)
				states, all = append(states, s.NB.State), all+fmt.Sprintf("%s: %+v; ", n.Node, s)
				if s.NB.State == members.Follower {
					follower = n
				}
				if s.NB.Servers != 3 || s.NB.State == members.Leader && strings.Join(s.NB.Silent, " ") != silent ||
					!strings.Contains(s.SB.State, "sb.ctl") || !strings.Contains(s.Northd, "northd.ctl") {
					return errors.New(all)
				}
			}
			slices.Sort(states)
			want := append(slices.Repeat([]string{members.Follower}, len(nodes)-1), members.Leader)
			if !slices.Equal(states, want) {
				return errors.New(all)
			}
			return nil
		})
		return follower
	}
	stops := says("")
	w.end(stops)
	nodes = slices.DeleteFunc(nodes, func(n *node) bool { return n == stops })
	says(members.Endpoint(stops.ip, NB.RaftPort))
}
