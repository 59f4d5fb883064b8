package agent

import (
	"context"
	"time"
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

// serveGateways says in NB which chassis this node is, for who chooses the nodes of a gateway, and makes this node the first
// of them when it has taken the gateway over. Nobody else could: NB does not say where a gateway is, and only OVN's own agent on
// a node knows whom it reaches.
func (a *Agent) serveGateways(ctx context.Context) {
	looks := map[string]int{}
	said, announced := "", time.Time{}
	for {
		wait := turnEvery
		chassis, member, err := said, false, error(nil)
		if time.Since(announced) >= announceEvery {
			if chassis, err = a.announce(ctx); err == nil {
				announced = time.Now()
			}
		}
		if err == nil {
			member, err = a.lookAtTurns(ctx, looks)
		}
		switch {
		case err != nil:
			a.log.Debug("tell NB of this node, and look at its gateways", "err", err)
			clear(looks)
		case chassis != said:
			said = chassis
			a.log.Info("NB knows this node's chassis", "node", a.conf.NodeName, "chassis", said)
		}
		if err == nil && !member {
			wait = memberEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (a *Agent) announce(ctx context.Context) (chassis string, err error) {
	settings, err := a.ovs.Settings(ctx)
	if err != nil {
		return "", err
	}
	return settings.Chassis, a.blocks.networks.Announce(ctx, a.conf.NodeName, settings.Chassis)
}

// lookAtTurns counts for each gateway in how many looks in a row this node has had it in another's place.
func (a *Agent) lookAtTurns(ctx context.Context, looks map[string]int) (member bool, err error) {
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
			delete(looks, t.Router)
			continue
		}
		if looks[t.Router]++; looks[t.Router] < tookOverFor {
			continue
		}
		delete(looks, t.Router)
		if err := a.blocks.networks.MakeFirst(ctx, t, settings.Chassis); err != nil {
			return true, err
		}
		a.log.Info("this node took a gateway over and keeps it", "router", t.Router, "node", a.conf.NodeName)
	}
	return true, nil
}
