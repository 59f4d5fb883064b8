package agent

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
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
	// announceEvery is the shortest time after which the agent announces its node again, because NB has lost it.
	announceEvery = time.Minute
	// memberEvery is how often the agent makes a pass. A pass reads from NB whether this node may have a gateway, and what
	// is read beside that, if a controller has announced news, if readEvery is over, and, always, if NB has no controller
	// that announces news.
	memberEvery = 10 * time.Second
	// readEvery is longer than the period of reconcile passes: each of them has the agent read at the same moment, in the
	// same message.
	readEvery = 90 * time.Second
	// newsSpread is the time over which the agents of all nodes divide their reads after news.
	newsSpread = 5 * time.Second
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

	active    map[string]int    // by router: in how many passes in a row this node was the active one
	member    bool              // the last reading said that this node may have a gateway
	looked    time.Time         // when that was
	due       atomic.Bool       // there may be something to read
	beside    atomic.Bool       // a reconcile pass reads now
	spread    atomic.Bool       // a reading after news waits for its moment
	wake      chan struct{}     // has a token: due or beside was set
	said      map[string]string // what NB had in the first reading after the announcement
	lost      bool              // NB does not have it any more
	known     string            // the chassis that NB knows
	logged    string            // the chassis that the log says that NB knows
	owner     string            // the other cluster that the log says that NB belongs to
	announced time.Time
	sizes     pathmtu.Sizes // the MTUs that NB knows of this node
	report    uplinks.Report
	mtuEvents *mtuEvents
	replaced  atomic.Bool // NB was wiped or restored: the next pass announces the node again
}

func newGateways(n *node, failover *gateway.Node) *gateways {
	g := &gateways{
		node: n, failover: failover, ended: newEndedConnections(n, failover.Store), active: map[string]int{},
		mtuEvents: newMTUEvents(n), wake: make(chan struct{}, 1),
	}
	failover.Beside = func(ctx context.Context) []ovsdb.Operation {
		node := g.conf.NodeName
		return append(g.ended.beside(ctx), gateway.SelectSaid(node), pathmtu.Select(), uplinks.Select(node))
	}
	failover.Results = g.readBeside
	return g
}

// readBeside takes what is read with the rows of gateways.
func (g *gateways) readBeside(ctx context.Context, results []ovsdb.OperationResult) error {
	last := len(results) - 3
	said, unread := gateway.ReadSaid(g.nbdb, results[last])
	if unread == nil && g.said == nil {
		g.said = said
	}
	g.lost = unread == nil && (said == nil || !maps.Equal(said, g.said))
	smallest, err := pathmtu.Read(g.nbdb, results[last+1])
	if err == nil && g.paths.set(smallest) {
		g.mtuEvents.due = true
	}
	g.uplinks.read(uplinks.Read(g.nbdb, results[last+2]))
	return errors.Join(unread, err, g.ended.read(ctx, results[:last]))
}

// news has the next pass read, at a moment of the next seconds: other nodes have the same news. Without the row of
// news, each pass reads.
func (g *gateways) news() {
	if g.nbdb.HasNews() && g.spread.CompareAndSwap(false, true) {
		time.AfterFunc(rand.N(newsSpread), func() {
			g.spread.Store(false) // before the reading: news that come now are not in it
			g.due.Store(true)
			signal(g.wake)
		})
	}
}

// reconciling has the next pass come now, and read if the last reading was long ago: a reconcile pass reads at this
// moment, and the two are one message.
func (g *gateways) reconciling() {
	if g.nbdb.HasNews() {
		g.beside.Store(true)
		signal(g.wake)
	}
}

// mustRead reports whether a pass has to read from NB.
func (g *gateways) mustRead(ctx context.Context, now time.Time) bool {
	beside := g.beside.Swap(false) && now.Sub(g.looked) >= readEvery/3
	due := g.due.Swap(false) || beside
	return due || !g.nbdb.HasNews() || g.member || g.ended.listed() || now.Sub(g.looked) >= readEvery ||
		g.ended.hasNewPorts(ctx)
}

// run makes passes until the end of ctx.
func (g *gateways) run(ctx context.Context) {
	for {
		wait := g.pass(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-g.uplinks.news:
		case <-g.wake:
		case <-time.After(wait):
		}
	}
}

// pass does what is due now, and returns the time until the next pass.
func (g *gateways) pass(ctx context.Context, now time.Time) (wait time.Duration) {
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
	if err == nil && (g.announced.IsZero() || !same || g.lost && now.Sub(g.announced) >= announceEvery) {
		if err = g.announce(ctx, settings, sizes, report); err == nil {
			g.mtuEvents.due = g.mtuEvents.due || !maps.Equal(sizes, g.sizes)
			g.known, g.announced, g.sizes, g.owner = settings.Chassis, now, sizes, "" // NB is this cluster's
			g.report, g.said, g.lost = report, nil, false
		}
	}
	if err == nil && g.mustRead(ctx, now) {
		if g.member, err = g.passActive(ctx, settings); err == nil {
			g.looked = now
		}
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
		g.due.Store(true)
		return activeEvery
	}
	if g.known != g.logged {
		g.logged = g.known
		g.log.Info("NB knows this node's chassis", "node", g.conf.NodeName, "chassis", g.logged)
	}
	if !g.member && !g.ended.listed() {
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
