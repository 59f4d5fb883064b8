package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const (
	// forgetAgain is the time after which connections are forgotten a second time; it doubles each time. A row of NB
	// changes before the flows of the node do. A flow that goes on meanwhile is tracked again, as before the change.
	forgetAgain = 2 * time.Second
	// forgetTimes is how often: the last time is about four minutes after the first.
	forgetTimes = 8
	// forgetCalls bounds the calls of one pass: ovs-vswitchd walks through its connections for each, and does nothing
	// else meanwhile. A pass handles at least one entry.
	forgetCalls = 64
	// forgetTimeout is the time that ovs-vswitchd has for the calls of one entry.
	forgetTimeout = 10 * time.Second
)

// endedConnections makes this node's connection tracking forget the connections that a change in NB has ended. The
// controller lists them in a row of this node, and in rows of the scopes of Services. They are read with the rows of
// gateways, so this costs no message.
type endedConnections struct {
	*node
	store *nbrows.Store
	again chan struct{} // the lists were read
	known map[ending]*forgetting
	// unable is the last error that the log has.
	unable string

	take    []func(ovsdb.OperationResult) error // of the operations of beside
	changed map[string]string                   // the scopes whose lists have changed, with the new versions

	mu       sync.Mutex
	list     []ended.Entry
	exists   bool
	services endedServices
	open     bool // an entry of a scope has not had its last turn
}

// ending is an entry of the row of this node, or one of a scope.
type ending struct {
	nat    ended.Entry
	served ended.Served
}

// forgetting is how far an entry is.
type forgetting struct {
	times int
	due   time.Time
}

func newEndedConnections(n *node, store *nbrows.Store) *endedConnections {
	return &endedConnections{node: n, store: store, again: make(chan struct{}, 1), known: map[ending]*forgetting{},
		services: endedServices{node: n}}
}

// beside are the operations that read the lists.
func (e *endedConnections) beside(ctx context.Context) []ovsdb.Operation {
	ports, err := e.ovs.PodPorts(ctx)
	if err != nil {
		e.log.Debug("read the ports of this node", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changed = map[string]string{}
	ops := []ovsdb.Operation{ended.Select(e.conf.NodeName)}
	e.take = []func(ovsdb.OperationResult) error{func(r ovsdb.OperationResult) (err error) {
		e.list, e.exists, err = ended.Read(e.nbdb, r)
		return err
	}}
	for _, q := range e.services.queries(ports, e.changed) {
		ops, e.take = append(ops, q.op), append(e.take, q.take)
	}
	return ops
}

// read takes the results of beside, and reads the lists of Services that have changed.
func (e *endedConnections) read(ctx context.Context, results []ovsdb.OperationResult) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, take := range e.take {
		if err := take(results[i]); err != nil {
			return err
		}
	}
	e.services.scopes = e.services.next
	for scope, version := range e.changed {
		list, err := ended.ReadServed(ctx, e.nbdb, scope)
		if err != nil {
			return err
		}
		e.services.lists[scope] = servedList{version, list}
		e.open = e.open || len(list) > 0
	}
	if len(e.list) > 0 || e.open {
		select {
		case e.again <- struct{}{}:
		default: // the pass that has not begun yet takes these lists
		}
	}
	return nil
}

// listed reports whether the lists are read often: this node may have connections that a change ends, or forgets some.
func (e *endedConnections) listed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exists || e.open || e.services.learning()
}

// hasNewPorts reports whether pods of this node have ports whose networks were not read yet.
func (e *endedConnections) hasNewPorts(ctx context.Context) bool {
	ports, err := e.ovs.PodPorts(ctx)
	if err != nil {
		return true // the reading says why
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range ports {
		if e.services.networks[key] == "" {
			return true
		}
	}
	return false
}

// gatewaysAre says which routers may have their gateway on this node.
func (e *endedConnections) gatewaysAre(turns []gateway.Failover) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.services.gateways = nil
	for i := range turns {
		e.services.gateways = append(e.services.gateways, turns[i].Router)
	}
}

// run makes a pass after each reading of a row with entries, until the end of ctx. ovs-vswitchd may hang: nothing else
// waits for a pass.
func (e *endedConnections) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.again:
		}
		err := e.pass(ctx, time.Now())
		if err == nil {
			e.unable = ""
		} else if ctx.Err() == nil && err.Error() != e.unable {
			e.unable = err.Error()
			e.log.Warn("connections that have ended are not forgotten yet", "err", err)
		}
	}
}

// pass forgets the connections of the entries that are due, the longest due first, and deletes the entries of this
// node's row that have had their last turn. After an error, the next pass begins with the same entry.
func (e *endedConnections) pass(ctx context.Context, now time.Time) error {
	defer e.setOpen()
	list := e.due(now)
	if len(list) == 0 {
		return nil
	}
	zones, err := e.ovs.Zones(ctx)
	if err != nil {
		return err
	}
	var done []ended.Entry
	for calls := 0; len(list) > 0 && calls < forgetCalls; list = list[1:] {
		entry := list[0]
		n, err := e.forget(ctx, zones, entry)
		if err != nil {
			return err
		}
		calls += n
		f := e.known[entry]
		f.due = now.Add(forgetAgain << f.times)
		if f.times++; f.times == 1 {
			e.logEnded(entry)
		}
		if f.times >= forgetTimes && entry.served == (ended.Served{}) {
			done = append(done, entry.nat)
		}
	}
	if len(done) == 0 {
		return nil
	}
	return ended.Delete(ctx, e.store, e.conf.NodeName, done)
}

// setOpen notes whether an entry of a scope has not had its last turn.
func (e *endedConnections) setOpen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = false
	for entry, f := range e.known {
		e.open = e.open || entry.served != (ended.Served{}) && f.times < forgetTimes
	}
}

// due returns the entries that are due, the longest first. Those of a scope that have had their last turn never are.
// Entries that are in no list any more are forgotten.
func (e *endedConnections) due(now time.Time) (list []ending) {
	e.mu.Lock()
	for _, entry := range e.list {
		list = append(list, ending{nat: entry})
	}
	for _, entry := range e.services.entries() {
		list = append(list, ending{served: entry})
	}
	e.mu.Unlock()
	known := map[ending]*forgetting{}
	for _, entry := range list {
		if known[entry] = e.known[entry]; known[entry] == nil {
			known[entry] = &forgetting{due: now}
		}
	}
	e.known = known
	list = slices.DeleteFunc(list, func(entry ending) bool {
		f := known[entry]
		return f.due.After(now) || entry.served != (ended.Served{}) && f.times == forgetTimes
	})
	slices.SortStableFunc(list, func(a, b ending) int { return known[a].due.Compare(known[b].due) })
	return list
}

func (e *endedConnections) logEnded(entry ending) {
	if c := entry.served; c != (ended.Served{}) {
		e.log.Info("connections have ended",
			"scope", c.Scope, "protocol", c.Protocol, "service", c.Vip, "backend", c.Backend)
		return
	}
	c := entry.nat
	e.log.Info("connections have ended", "router", c.Router, "outside", c.Outside, "inside", c.Inside)
}

// forget forgets the connections of one entry, and returns how many calls this took.
func (e *endedConnections) forget(ctx context.Context, zones ovnport.Zones, entry ending) (calls int, err error) {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	if c := entry.served; c != (ended.Served{}) {
		e.mu.Lock()
		list := e.services.zonesOf(c.Scope, zones)
		e.mu.Unlock()
		for _, zone := range list {
			if err := e.ovs.ForgetServed(ctx, zone, c.Protocol, c.Vip, c.Backend); err != nil {
				return calls, err
			}
			calls++
		}
		return calls, nil
	}
	for _, zone := range zones.OfRouter(nbrows.GatewayPartName(entry.nat.Router, "gateway")) {
		n, err := e.ovs.ForgetTranslated(ctx, zone, entry.nat.Outside, entry.nat.Inside)
		if calls += n; err != nil {
			return calls, err
		}
	}
	return calls, nil
}
