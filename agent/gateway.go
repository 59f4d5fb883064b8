package agent

import (
	"context"
	"errors"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const (
	// announceEvery is how often the agent looks whether NB knows this node's chassis still.
	announceEvery = time.Minute
	// memberEvery is how often it looks whether this node may have a gateway, turnEvery, when it may, whether it has taken
	// one over.
	memberEvery = 10 * time.Second
	turnEvery   = 2 * time.Second
	// tookOverFor is in how many looks in a row it must have: tunnels are watched anew when a node starts.
	tookOverFor = 3
)

// gateways is what the agent remembers of them from one look to the next.
type gateways struct {
	looks     map[string]int // by router: in how many looks in a row this node has had its gateway in another's place
	known     string         // the chassis that NB knows
	said      string         // the one that the log knows
	owner     string         // the log knows that NB belongs to this other cluster
	announced time.Time
}

// serveGateways says in NB which chassis this node is, for who chooses the nodes of a gateway, and makes this node the first
// of them when it has taken the gateway over. Nobody else could: NB does not say where a gateway is, and only OVN's own agent on
// a node knows whom it reaches.
func (a *Agent) serveGateways(ctx context.Context) {
	g := &gateways{}
	for {
		wait := a.lookAtGateways(ctx, g, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// lookAtGateways does what is due now, and says how long it has time until the next look.
func (a *Agent) lookAtGateways(ctx context.Context, g *gateways, now time.Time) (wait time.Duration) {
	chassis, member, err := "", false, error(nil)
	if now.Sub(g.announced) >= announceEvery {
		if chassis, err = a.announce(ctx); err == nil {
			g.known, g.announced, g.owner = chassis, now, "" // NB is this cluster's
		}
	}
	if err == nil {
		member, err = a.lookAtTurns(ctx, g)
	}
	if err != nil {
		a.log.Debug("tell NB of this node, and look at its gateways", "err", err)
		a.sayOwner(g, err)
		g.looks = nil
		return turnEvery
	}
	if g.known != g.said {
		g.said = g.known
		a.log.Info("NB knows this node's chassis", "node", a.conf.NodeName, "chassis", g.said)
	}
	if !member {
		return memberEvery
	}
	return turnEvery
}

// sayOwner logs once that NB belongs to another cluster: no pod of this node gets a port then.
func (a *Agent) sayOwner(g *gateways, err error) {
	if no, ok := errors.AsType[*ovndb.NotOwner](err); ok && no.Owner != g.owner {
		g.owner = no.Owner
		a.log.Warn("no pod of this node gets a port on an OVN network", "err", ovnport.ExplainNotOwner(err))
	}
}

func (a *Agent) announce(ctx context.Context) (chassis string, err error) {
	settings, err := a.ovs.Settings(ctx)
	if err != nil {
		return "", err
	}
	return settings.Chassis, a.blocks.networks.Announce(ctx, a.conf.NodeName, settings.Chassis)
}

// lookAtTurns counts for each gateway in how many looks in a row this node has had it in another's place. What this look
// does not find begins anew.
func (a *Agent) lookAtTurns(ctx context.Context, g *gateways) (member bool, err error) {
	before := g.looks
	g.looks = map[string]int{}
	settings, err := a.ovs.Settings(ctx)
	if err != nil {
		return false, err
	}
	turns, err := a.blocks.networks.TurnsOf(ctx, settings.Chassis)
	if err != nil || len(turns) == 0 {
		return false, err
	}
	alive, err := a.ovs.Alive(ctx)
	if err != nil {
		return true, err
	}
	for i := range turns {
		t := &turns[i]
		if !t.TookOver(settings.Chassis, alive) {
			continue
		}
		if looks := before[t.Router] + 1; looks < tookOverFor {
			g.looks[t.Router] = looks
			continue
		}
		made, err := a.blocks.networks.MakeFirst(ctx, t, settings.Chassis)
		if err != nil {
			return true, err
		}
		if made {
			a.log.Info("this node took a gateway over and keeps it", "router", t.Router, "node", a.conf.NodeName)
		}
	}
	return true, nil
}
