//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/agent"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// herd is how many agents lose their connections to NB at the same moment.
const herd = 200

// TestHerdOfAgents kills the leader of NB's raft again and again, while agents without pods are connected besides the
// nodes whose pods come and go. The agents have one Open vSwitch together, and no pods of their own; all else of them is
// real.
func TestHerdOfAgents(t *testing.T) {
	r := newRaft(t)
	ovs := ovndbtest.StartOVS(t)
	ovs.VSCtl("--no-wait", "add-br", "br-int", "--", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1")
	src, err := source.NewManifests(t.TempDir(), source.Changes{}, slog.New(slog.DiscardHandler))
	must(t, err)
	go func() {
		if err := src.Run(t.Context()); err != nil {
			t.Errorf("the source has ended: %v", err)
		}
	}()
	var all []*ovndb.DB
	for i := range herd {
		all = append(all, r.agent(fmt.Sprint("idle-", i), ovs.Socket, running{src}))
	}
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

// running is a source that runs already: the kernel does not have enough watches for one per agent.
type running struct{ agent.Source }

func (running) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// agent runs an agent until the end of the test.
func (r *raft) agent(node, ovsSocket string, src agent.Source) *ovndb.DB {
	dir := ovndbtest.TempDir(r.t)
	db := r.open()
	a, err := agent.New(conf.Agent{NodeName: node, Socket: filepath.Join(dir, "agent.sock"),
		StateDir: filepath.Join(dir, "state"), NB: conf.NB{Endpoints: r.Endpoints()}, OVSSocket: ovsSocket, Bridge: "br-int",
		ReconcilePeriod: time.Minute}, src, db, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	must(r.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			r.t.Errorf("agent of %s: %v", node, err)
		}
		a.Close()
	})
	return db
}
