package ovnrun

import (
	"fmt"
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
	leader := w.wantRaft(a, b, c)
	w.wantTimer(testTimer, a, b, c)
	var other *node
	for _, n := range []*node{a, b, c} {
		s := Status(t.Context(), n.RunDir)
		want := members.Follower
		if n == leader {
			want = members.Leader
		} else {
			other = n
		}
		if s.NB.State != want || s.NB.Servers != 3 || len(s.NB.Silent) > 0 {
			t.Fatalf("%s says %+v, want %s", n.Node, s.NB, want)
		}
		if !strings.Contains(s.SB.State, "sb.ctl") || !strings.Contains(s.Northd, "northd.ctl") {
			t.Errorf("%s says %+v of daemons that do not run", n.Node, s)
		}
	}
	w.end(other)
	want := members.Endpoint(other.ip, NB.RaftPort)
	w.eventually("a silent server", func() error {
		if s := Status(t.Context(), leader.RunDir); fmt.Sprint(s.NB.Silent) != fmt.Sprint([]string{want}) {
			return fmt.Errorf("the leader says %+v, want %s to be silent", s.NB, want)
		}
		return nil
	})
}
