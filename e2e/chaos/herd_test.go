//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// herd is how many agents lose their connections to NB at the same moment.
const herd = 200

// TestHerdOfAgents kills the leader of NB's raft again and again, while agents without pods are connected besides the
// nodes whose pods come and go.
func TestHerdOfAgents(t *testing.T) {
	r := newRaft(t)
	all := labtest.StartAgents(t, 0, herd, "", func(int) conf.NB { return r.conf() })
	for _, db := range all {
		r.connected(db)
	}
	row := r.underFire(leaderKilled, *operations/len(raftFaults))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, db := range all {
		if err := db.Answers(ctx); err != nil {
			t.Errorf("agent %d has not come back: %v", i, err)
			row.Failed++
		}
	}
	row.Fault += fmt.Sprintf(", with %d agents", herd)
	report(t, row)
}
