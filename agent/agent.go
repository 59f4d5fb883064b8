package agent

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/journal"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
	"github.com/ovn-multinet/ovn-multinet/sriov"
)

// Source is where the agent's pods and networks come from.
type Source interface {
	// Pod returns the pod that the runtime calls by uid; if another one of the name is there, that one.
	Pod(ctx context.Context, namespace, name, uid string) (*source.Pod, error)
	// LivePod asks where the truth is and not a copy.
	LivePod(ctx context.Context, namespace, name string) (*source.Pod, error)
	// WhenGone has call called, once, when the copy loses the pod. call must neither block nor ask the source. A pod that
	// has gone before is not told of.
	WhenGone(p *source.Pod, call func()) (stop func())
	NAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
	// LiveNAD asks where the truth is, and answers with the text of a configuration that NAD omits.
	LiveNAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
	SetStatus(ctx context.Context, p *source.Pod, status []byte) error
	// Pods returns this node's pods, from the copy; it fails while that is not whole.
	Pods(ctx context.Context) ([]*source.Pod, error)
	// Event tells the pod's owner something. It must not block.
	Event(p *source.Pod, kind source.EventKind, reason, message string)
	// Run keeps it up to date until the end of ctx.
	Run(ctx context.Context) error
}

// Agent serves the plugin calls of one node.
type Agent struct {
	conf    conf.Agent
	source  Source
	nbdb    *ovndb.DB
	nb      *ovnport.NB
	blocks  *blocks
	kubelet *sriov.Kubelet
	infoDir string // of the device plugins' files
	ovs     *ovnport.OVS
	journal journal.Dir
	log     *slog.Logger
	metrics *metrics

	sandboxes locks
	large     *semaphore.Weighted // plans with large configurations that are made now
	// planTimeout is planTimeout but in a test.
	planTimeout time.Duration
	remaining   reconciler
	repairing   repairer
	replaced    chan struct{} // a token: NB may be another database than before
	scrubbed    chan struct{} // closed when nothing stale is plugged any more
	pending     chan struct{} // a token: something is left in release/

	// undeletable are the files of release/ whose ports are released and which the disk would not delete, at the last
	// sweep; stuckReleases counts them.
	undeletable   map[string]fs.FileInfo
	stuckReleases atomic.Int64
}

// New begins to connect to the databases. Close must follow.
func New(cfg conf.Agent, src Source, nbdb *ovndb.DB, registry prometheus.Registerer, log *slog.Logger) (*Agent, error) {
	ovs, err := ovnport.OpenOVS(cfg.OVSSocket, cfg.Bridge, log)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		conf: cfg, source: src, nbdb: nbdb, nb: ovnport.NewNB(nbdb), ovs: ovs, journal: journal.Dir(cfg.StateDir), log: log,
		kubelet:     &sriov.Kubelet{Socket: cfg.PodResources},
		infoDir:     sriov.InfoDir,
		planTimeout: planTimeout,
		blocks:      newBlocks(ovnnet.New(nbdb, nil), cfg.NodeName),
		sandboxes:   locks{held: map[string]*entry{}}, pending: make(chan struct{}, 1),
		scrubbed: make(chan struct{}), replaced: make(chan struct{}, 1), large: semaphore.NewWeighted(maxLarge),
	}
	a.remaining.agent, a.repairing.agent = a, a
	a.repairing.told = map[string]map[string]string{}
	a.metrics = newMetrics(registry, a)
	return a, nil
}

// Close ends the connection to Open vSwitch; that to NB is the caller's.
func (a *Agent) Close() { a.ovs.Close() }

// Run serves until the end of ctx.
func (a *Agent) Run(ctx context.Context) error {
	// Who made it, the plugin, the agent or its pod's mount, is all the same.
	if err := a.journal.PrepareReleases(); err != nil {
		return err
	}
	listener, err := listen(a.conf.Socket)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.source.Run(ctx) })
	g.Go(func() error { return a.serve(ctx, listener) })
	g.Go(func() error { a.markReady(ctx); return nil })
	g.Go(func() error { a.sweep(ctx); return nil })
	g.Go(func() error { a.serveGateways(ctx); return nil })
	g.Go(func() error { a.reconcile(ctx); return nil })
	return g.Wait()
}

// markReady makes the file that STATUS looks for, once the node can take ports. NB is no part of it: pods without
// further networks start without NB too.
func (a *Agent) markReady(ctx context.Context) {
	for said := false; ; said = true {
		_, err := a.ovs.Settings(ctx)
		if err == nil {
			break
		}
		if !said {
			a.log.Warn("not ready yet", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	marker := agentapi.ReadyMarker(a.conf.Socket)
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		a.log.Error("mark this node as ready", "err", err)
		return
	}
	a.log.Info("ready", "node", a.conf.NodeName, "socket", a.conf.Socket)
}

// locks is one lock per sandbox: a late release must not run into a plan of the same sandbox.
type locks struct {
	mu   sync.Mutex
	held map[string]*entry
}

type entry struct {
	token chan struct{}
	users int
}

// take waits for the sandbox's lock.
func (l *locks) take(ctx context.Context, sandbox string) (release func(), err error) {
	l.mu.Lock()
	e := l.held[sandbox]
	if e == nil {
		e = &entry{token: make(chan struct{}, 1)}
		l.held[sandbox] = e
	}
	e.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(l.held, sandbox)
		}
	}
	select {
	case e.token <- struct{}{}:
		return func() { <-e.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("another call for this sandbox is still running: %w", ctx.Err())
	}
}
