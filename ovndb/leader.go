package ovndb

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// libovsdb tries the endpoints in one order and has one deadline for all of them. A member that does not answer would
// use up the whole time at each attempt, and no other member would be tried. A leader that is paused, or whose node has
// lost its power, would be left after the probe only. So a DB asks all members of a raft itself, and names to libovsdb
// only those that answer, the leader first.

// answerDue is the time for an answer before a DB asks the other members of a raft whether one of them leads. OVN's
// raft has a new leader after 1 to 3 s. A leader that is only busy is not left: no other member says that it leads.
const answerDue = time.Second

// send sends a transaction and waits for its answer, until the session ends or another member of the raft leads.
func (d *DB) send(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	session := d.currentSession()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(session, cancel)()
	if d.endpoints.several() {
		// Only now: libovsdb needs a lock to tell the endpoint, and a transaction without an answer may keep the lock.
		current := d.client.CurrentEndpoint()
		defer time.AfterFunc(answerDue, func() { d.watchLeader(ctx, session, current) }).Stop()
	}
	return d.client.Transact(ctx, ops...)
}

// watchLeader ends the session when another member of the raft leads, as long as an answer is missing. It asks rarely
// when that takes long: the leader may be busy, and every node asks then.
func (d *DB) watchLeader(ctx, session context.Context, current string) {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(answerDue), backoff.WithMaxInterval(answerDue*16),
		backoff.WithMaxElapsedTime(0)) // 0: without end
	for ctx.Err() == nil {
		if d.asking.TryLock() { // one transaction asks for all
			order := d.endpoints.otherLeader(ctx, current)
			d.asking.Unlock()
			if order != nil {
				d.endSession(session, order)
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// preferLeader has the next connection go to the raft's leader, if a check since that time finds one.
func (d *DB) preferLeader(since time.Time) {
	if !d.endpoints.several() || !d.preferring.TryLock() {
		return
	}
	defer d.preferring.Unlock()
	session := d.currentSession()
	if order := d.endpoints.byLeader(since); order != nil && !d.client.Connected() {
		d.endSession(session, order)
	}
}

func (p *endpoints) several() bool { return len(p.all) > 1 }

// followersTime is the time for the answers of the other members after the leader has answered.
const followersTime = 500 * time.Millisecond

// byLeader returns the endpoints that answered in a check that began after that time, the leader first; nil: none
// leads.
func (p *endpoints) byLeader(since time.Time) []string {
	p.check(since)
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order) // libovsdb keeps the slice
}

// otherLeader asks all endpoints but one whether they lead. It returns those that answered, the leader first; nil: none
// leads.
func (p *endpoints) otherLeader(ctx context.Context, current string) []string {
	_, order := p.ask(ctx, slices.DeleteFunc(slices.Clone(p.all), func(e string) bool { return e == current }))
	return order
}

// ask connects to endpoints at once. It returns their failures. If one of them leads, it also returns those that
// answered, the leader first.
func (p *endpoints) ask(ctx context.Context, all []string) (failures []Failure, order []string) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	failures, leads := make([]Failure, len(all)), make([]bool, len(all))
	var tries sync.WaitGroup
	for i, endpoint := range all {
		tries.Go(func() {
			if failures[i], leads[i] = p.try(ctx, endpoint); leads[i] {
				time.AfterFunc(followersTime, cancel)
			}
		})
	}
	tries.Wait()
	if !slices.Contains(leads, true) {
		return failures, nil
	}
	for _, wanted := range []bool{true, false} {
		for i, endpoint := range all {
			if leads[i] == wanted && failures[i].Err == nil {
				order = append(order, endpoint)
			}
		}
	}
	return failures, order
}
