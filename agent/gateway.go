package agent

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/uplinks"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const (
	// announceEvery is how often the agent checks whether NB still knows this node's chassis.
	announceEvery = time.Minute
	// memberEvery is how often the agent checks whether this node may have a gateway.
	memberEvery = 10 * time.Second
	// activeEvery is how often the agent of a node that may have a gateway checks whether its node is the active one.
	activeEvery = 2 * time.Second
	// activeFor is in how many passes in a row the node must be the active one: tunnels are watched anew when a node
	// starts.
	activeFor = 3
)

// gateways writes into NB which chassis this node is, for the controller, which chooses the nodes of a gateway. If
// this node has become the active node of a gateway, gateways makes it the first one. No other process could: NB does
// not say where a gateway is, and only a node's own OVN knows which nodes it reaches.
type gateways struct {
	*node
	failover *gateway.Node
	ended    *endedConnections

	active    map[string]int // by router: in how many passes in a row this node was the active one
	known     string         // the chassis that NB knows
	logged    string         // the chassis that the log says that NB knows
	owner     string         // the other cluster that the log says that NB belongs to
	announced time.Time
	sizes     pathmtu.Sizes // the MTUs that NB knows of this node
	report    uplinks.Report
	mtuEvents *mtuEvents
	replaced  atomic.Bool // NB was wiped or restored: the next pass announces the node again
}

func newGateways(n *node, failover *gateway.Node) *gateways {
	g := &gateways{
		node: n, failover: failover, ended: newEndedConnections(n, failover.Store), active: map[string]int{},
		mtuEvents: newMTUEvents(n),
	}
	failover.Beside = func(ctx context.Context) []ovsdb.Operation {
		return append(g.ended.beside(ctx), pathmtu.Select(), uplinks.Select(g.conf.NodeName))
	}
	failover.Results = g.readBeside
	return g
}

// readBeside takes what is read with the rows of gateways.
func (g *gateways) readBeside(ctx context.Context, results []ovsdb.OperationResult) error {
	last := len(results) - 2
	smallest, err := pathmtu.Read(g.nbdb, results[last])
	if err == nil && g.paths.set(smallest) {
		g.mtuEvents.due = true
	}
	g.uplinks.read(uplinks.Read(g.nbdb, results[last+1]))
	return errors.Join(err, g.ended.read(ctx, results[:last]))
}

// run makes passes until the end of ctx.
func (g *gateways) run(ctx context.Context) {
	for {
		wait := g.pass(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-g.uplinks.news:
		case <-time.After(wait):
		}
	}
}

// pass does what is due now, and returns the time until the next pass.
func (g *gateways) pass(ctx context.Context, now time.Time) (wait time.Duration) {
	member := false
	if g.replaced.Swap(false) {
		g.announced = time.Time{}
	}
	settings, err := g.ovs.Settings(ctx)
	var sizes pathmtu.Sizes
	if err == nil {
		sizes = sizesOf(settings)
	}
	report := g.uplinks.last()
	same := maps.Equal(sizes, g.sizes) && maps.Equal(report, g.report)
	if err == nil && (now.Sub(g.announced) >= announceEvery || !same) {
		if err = g.announce(ctx, settings, sizes, report); err == nil {
			g.mtuEvents.due = g.mtuEvents.due || !maps.Equal(sizes, g.sizes)
			g.known, g.announced, g.sizes, g.owner = settings.Chassis, now, sizes, "" // NB is this cluster's
			g.report = report
		}
	}
	if err == nil {
		member, err = g.passActive(ctx, settings)
	}
	if err == nil {
		if err := g.mtuEvents.pass(ctx, sizes); err != nil {
			g.log.Debug("tell which pods keep a larger MTU", "err", err)
		}
	}
	if err != nil {
		g.log.Debug("announce this node in NB, and read its gateways", "err", err)
		g.logOwner(err)
		g.active = map[string]int{}
		return activeEvery
	}
	if g.known != g.logged {
		g.logged = g.known
		g.log.Info("NB knows this node's chassis", "node", g.conf.NodeName, "chassis", g.logged)
	}
	if !member && !g.ended.listed() {
		return memberEvery
	}
	return activeEvery
}

// logOwner logs once that NB belongs to another cluster: then no pod of this node gets a port.
func (g *gateways) logOwner(err error) {
	if no, ok := errors.AsType[*ovndb.NotOwner](err); ok && no.Owner != g.owner {
		g.owner = no.Owner
		g.log.Warn("no pod of this node gets a port on an OVN network", "err", ovnport.ExplainNotOwner(err))
	}
}

func (g *gateways) announce(
	ctx context.Context, settings *ovnport.Settings, sizes pathmtu.Sizes, report uplinks.Report,
) error {
	var physical []string
	for name, bridge := range settings.Mappings {
		if settings.HasBridge(bridge) {
			physical = append(physical, name)
		}
	}
	return g.failover.Announce(ctx, gateway.Announcement{
		Node: g.conf.NodeName, Chassis: settings.Chassis, Sizes: sizes, Physical: physical, Uplinks: report,
	})
}

// passActive counts for each gateway in how many passes in a row this node was the active one without being the
// first. The count of a gateway that the pass does not find begins anew. member reports whether this node may have a
// gateway.
func (g *gateways) passActive(ctx context.Context, settings *ovnport.Settings) (member bool, err error) {
	before := g.active
	g.active = map[string]int{}
	turns, err := g.failover.FailoversOf(ctx, settings.Chassis)
	if err != nil {
		return false, err
	}
	if g.ended.gatewaysAre(turns); len(turns) == 0 {
		return false, nil
	}
	alive, err := g.ovs.Alive(ctx)
	if err != nil {
		return true, err
	}
	for i := range turns {
		t := &turns[i]
		if !t.TookOver(settings.Chassis, alive) {
			continue
		}
		if passes := before[t.Router] + 1; passes < activeFor {
			g.active[t.Router] = passes
			continue
		}
		made, err := g.failover.MakeFirst(ctx, t, settings.Chassis)
		if err != nil {
			return true, err
		}
		if made {
			g.log.Info("this node is the active node of a gateway and stays it", "router", t.Router, "node", g.conf.NodeName)
		}
	}
	return true, nil
}
