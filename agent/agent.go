package agent

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/ovn-multinet/ovn-multinet/agent/denied"
	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nodesubnet"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
	"github.com/ovn-multinet/ovn-multinet/sriov"
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

// Source is where the agent's pods and networks come from.
type Source interface {
	// Pod returns the pod that the runtime calls by uid; if another pod has the name now, it returns that one.
	Pod(ctx context.Context, namespace, name, uid string) (*netmodel.Pod, error)
	// LivePod reads the pod from the origin and not from a copy.
	LivePod(ctx context.Context, namespace, name string) (*netmodel.Pod, error)
	// WhenGone has call called, once, when the copy loses the pod. call must neither block nor use the source. A pod
	// that was gone before is not reported.
	WhenGone(p *netmodel.Pod, call func()) (stop func())
	NAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
	// LiveNAD reads the NAD from the origin, with the text of a configuration that NAD omits.
	LiveNAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
	// LiveIPAMClaim reads the IPAMClaim from the origin.
	LiveIPAMClaim(ctx context.Context, namespace, name string) (*netmodel.IPAMClaim, error)
	SetStatus(ctx context.Context, p *netmodel.Pod, status []byte) error
	// DeleteStatus deletes the pod's network-status if it is this one.
	DeleteStatus(ctx context.Context, p *netmodel.Pod, status []byte) error
	// Pods returns this node's pods, from the copy; it fails while the copy is incomplete.
	Pods(ctx context.Context) ([]*netmodel.Pod, error)
	// Event tells the pod's owner something. It must not block.
	Event(p *netmodel.Pod, kind source.EventKind, reason, message string)
	// Run keeps the source up to date until the end of ctx.
	Run(ctx context.Context) error
}

// Agent serves the plugin calls of one node.
type Agent struct {
	*node
	kubelet     *sriov.Kubelet
	infoDir     string              // of the device plugins' files
	large       *semaphore.Weighted // plans with large configurations that are made now
	planTimeout time.Duration       // planTimeout, except in a test
	flows       *flowQueue          // pods that wait for flows
	early       *earlyPorts
	faults      *faults // that CHECKs have found
	background  background
	releases    *pendingReleases
	reconciler  *reconciler
	gateways    *gateways
	changes     *changes
}

// New begins to connect to the databases. Close must follow.
func New(
	cfg conf.Agent, src Source, nbdb *ovndb.DB, registry prometheus.Registerer, log *slog.Logger,
) (*Agent, error) {
	ovs, err := ovnport.OpenOVS(cfg.OVSSocket, cfg.Bridge, log)
	if err != nil {
		return nil, err
	}
	nb, dir := ovnport.NewNB(nbdb), journal.Dir(cfg.StateDir)
	n := &node{
		conf: cfg, source: src, nbdb: nbdb, nb: nb, ports: nb.PortsOn(cfg.NodeName), ovs: ovs, journal: dir, log: log,
		subnets:   newNodeSubnets(nodesubnet.New(nbdb), nb, cfg.NodeName, log),
		policies:  newPolicies(nb),
		profiles:  newProfiles(nb),
		paths:     &pathMTU{},
		uplinks:   newNodeUplinks(ovs.Uplinks(log), log),
		used:      newUsedOutside(),
		sandboxes: newLocks(),
		gone:      &goneNetns{},
		metrics:   newMetrics(registry, dir, nbdb.Connected, ovs.Connected),
	}
	a := &Agent{
		node: n, faults: newFaults(),
		kubelet: &sriov.Kubelet{Socket: cfg.PodResources}, infoDir: deviceinfo.DevicePluginDir,
		large: semaphore.NewWeighted(maxLarge), planTimeout: planTimeout,
		flows:    newFlowQueue(maxPodsAtFlows, podsOfAWave, flowsTimeout),
		releases: newPendingReleases(n), reconciler: newReconciler(n), gateways: newGateways(n, gateway.NewNode(nbdb)),
	}
	a.early, a.changes = newEarlyPorts(a), newChanges(n)
	a.reconciler.compare = a.changes.compareAll
	if cfg.Attach {
		a.reconciler.unattached.heal = func(p *netmodel.Pod) { a.changes.compareSoon(p, nil) }
	}
	a.reconciler.beside = a.gateways.reconciling
	nbdb.OnNews(a.gateways.news)
	return a, nil
}

// Close ends the connection to Open vSwitch. The connection to NB is the caller's.
func (a *Agent) Close() { a.ovs.Close() }

// Run serves until the end of ctx.
func (a *Agent) Run(ctx context.Context) error {
	// The plugin, the agent or its pod's mount may have made this folder.
	if err := a.journal.PrepareReleases(); err != nil {
		return err
	}
	listener, err := listen(a.conf.Socket)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	defer a.background.begin(ctx)()
	g.Go(func() error { return a.source.Run(ctx) })
	g.Go(func() error { return a.serve(ctx, listener) })
	g.Go(func() error { a.markReady(ctx); return nil })
	g.Go(func() error { a.releases.run(ctx); return nil })
	g.Go(func() error { a.gateways.run(ctx); return nil })
	g.Go(func() error { a.uplinks.run(ctx); return nil })
	g.Go(func() error { a.gateways.ended.run(ctx); return nil })
	g.Go(func() error { a.reconciler.run(ctx); return nil })
	g.Go(func() error { a.changes.run(ctx); return nil })
	if path := a.conf.OVNControllerLog; path != "" {
		reader := denied.New(path, a.nb, a.metrics.denied, a.log)
		g.Go(func() error { reader.Run(ctx); return nil })
	}
	return g.Wait()
}

// markReady makes the file that STATUS looks for, once the node can take ports. It does not ask NB: pods without
// further networks start without NB too.
func (a *Agent) markReady(ctx context.Context) {
	for logged := false; ; logged = true {
		_, err := a.ovs.Settings(ctx)
		if err == nil {
			break
		}
		if !logged {
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
