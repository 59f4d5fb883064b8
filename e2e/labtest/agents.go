package labtest

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
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// NBOverTLS is the configuration of a client with cert.pem, key.pem and ca.pem of a folder.
func NBOverTLS(client string, endpoints ...string) conf.NB {
	file := func(name string) string { return filepath.Join(client, name) }
	return conf.NB{
		Endpoints: endpoints, Certificate: file("cert.pem"), PrivateKey: file("key.pem"), CACert: file("ca.pem"),
	}
}

// OpenNB opens NB as an agent of a cluster does, until the end of the test. "" is an agent that does not ask whose NB
// it is.
func OpenNB(t testing.TB, c conf.NB, cluster string) *ovndb.DB {
	t.Helper()
	var identity func(context.Context) (string, error)
	if cluster != "" {
		identity = func(context.Context) (string, error) { return cluster, nil }
	}
	db, err := daemon.OpenNB(c, identity, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// StartOVS starts an Open vSwitch's database for agents, with OVN's bridge and the name of a chassis.
func StartOVS(t testing.TB) *ovndbtest.Server {
	t.Helper()
	ovs := ovndbtest.StartOVS(t)
	ovs.VSCtl("--no-wait", "add-br", "br-int", "--", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1")
	return ovs
}

// StartAgents runs the agents with the numbers from..to of a cluster in this process until the end of the test, and
// returns their connections to NB. nb is how each connects. They have one Open vSwitch together, and no pods; all else
// of them is real.
func StartAgents(t testing.TB, from, to int, cluster string, nb func(i int) conf.NB) (all []*ovndb.DB) {
	t.Helper()
	ovs := StartOVS(t)
	src, err := source.NewManifests(t.TempDir(), source.Changes{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := src.Run(t.Context()); err != nil {
			t.Errorf("the source has ended: %v", err)
		}
	}()
	for i := from; i < to; i++ {
		all = append(all, startAgent(t, fmt.Sprint("idle-", i), ovs.Socket, cluster, nb(i), running{src}))
	}
	return all
}

// running is a source that runs already: the kernel does not have enough watches for one per agent.
type running struct{ agent.Source }

func (running) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func startAgent(t testing.TB, node, ovsSocket, cluster string, c conf.NB, src agent.Source) *ovndb.DB {
	t.Helper()
	dir := ovndbtest.TempDir(t)
	db := OpenNB(t, c, cluster)
	a, err := agent.New(conf.Agent{NodeName: node, Socket: filepath.Join(dir, "agent.sock"),
		StateDir: filepath.Join(dir, "state"), NB: c, OVSSocket: ovsSocket, Bridge: "br-int",
		ReconcilePeriod: time.Minute}, src, db, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("agent of %s: %v", node, err)
		}
		a.Close()
	})
	return db
}
