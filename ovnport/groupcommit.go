package ovnport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// maxGroupOperations bounds the operations of one group: the server serves no other client while it runs them. The
// ports of a pod with one network are about 8 operations.
const maxGroupOperations = 500

// groupCommit commits the writes of several pods as one transaction. While a transaction is at the database, the
// writes that come wait, and then form the next transaction. So a pod that is alone waits for nobody. In a raft this
// decides how many pods can start: the server begins with a commit when the commit before has ended.
type groupCommit struct {
	db   *ovndb.DB
	lost atomic.Int64 // how many answers were lost

	mu      sync.Mutex
	running bool
	waiting []*write
}

// write is what one pod writes: a transaction of its own, if no other pod writes at the same time.
type write struct {
	ctx  context.Context
	ops  []ovsdb.Operation
	keys []string   // of the ports and claims that the operations insert, change or delete
	done chan error // gets the outcome
}

// commit runs the operations, alone or together with those of other pods. Its errors are those of [ovndb.DB.Transact].
func (g *groupCommit) commit(ctx context.Context, ops []ovsdb.Operation, keys []string) error {
	if err := g.db.WaitUp(ctx); err != nil {
		return err
	}
	w := &write{ctx: ctx, ops: ops, keys: keys, done: make(chan error, 1)}
	g.push(w)
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		if g.remove(w) {
			return conf.Errorf(conf.CodeTryAgain, "why does OVN's Northbound database answer so slowly?",
				"the pod's ports were not written: earlier transactions of this node are not answered yet: %w", ctx.Err())
		}
		err := fmt.Errorf("NB database: %w: %w", ovndb.ErrUnknownOutcome, ctx.Err())
		g.noteLost(err)
		return err
	}
}

func (g *groupCommit) push(w *write) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, w)
	if !g.running {
		g.running = true
		go g.run()
	}
}

// remove removes a write that waits; false: it does not wait any more.
func (g *groupCommit) remove(w *write) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, w)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// run sends groups until no write waits.
func (g *groupCommit) run() {
	for group := g.next(); len(group) > 0; group = g.next() {
		g.send(group)
	}
}

// next takes the first writes that wait. Two writes with a key in common are never in one transaction: the database
// deletes a row that lost its last reference only at the commit, so a takeover of a port would succeed after a release
// of the same port, and the port would be gone.
func (g *groupCommit) next() (group []*write) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size, taken := 0, map[string]bool{}
	for _, w := range g.waiting {
		size += len(w.ops)
		common := slices.ContainsFunc(w.keys, func(key string) bool { return taken[key] })
		if len(group) > 0 && (common || size > maxGroupOperations) {
			break
		}
		for _, key := range w.keys {
			taken[key] = true
		}
		group = append(group, w)
	}
	g.waiting = g.waiting[len(group):]
	g.running = len(group) > 0
	return group
}

// send commits a group. If the database refuses it because of one write, this write gets the refusal, and the others
// are sent again without it.
func (g *groupCommit) send(group []*write) {
	for {
		// The caller of a write whose context has ended does not expect rows any more, and may have looked for them.
		group = slices.DeleteFunc(group, func(w *write) bool { return w.ctx.Err() != nil })
		if len(group) == 0 {
			return
		}
		err := g.transact(group)
		refused, ok := errors.AsType[*ovndb.Refused](err)
		if !ok || len(group) == 1 {
			for _, w := range group {
				w.done <- err
			}
			return
		}
		i, index := refusedWrite(group, refused.Index)
		if i == len(group) { // at the commit: the answer does not say which write is the reason
			half := slices.Clone(group[:len(group)/2])
			group = group[len(group)/2:]
			g.send(half)
			continue
		}
		group[i].done <- &ovndb.Refused{Index: index, Reason: refused.Reason, Details: refused.Details}
		group = slices.Delete(group, i, i+1)
	}
}

// refusedWrite finds the write that an operation of the group belongs to, and the operation's index in this write.
func refusedWrite(group []*write, index int) (i, within int) {
	for i, w := range group {
		if index < len(w.ops) {
			return i, index
		}
		index -= len(w.ops)
	}
	return len(group), 0
}

// transact runs a group as one transaction, until the contexts of all its writes have ended.
func (g *groupCommit) transact(group []*write) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running atomic.Int64
	running.Store(int64(len(group)))
	var ops []ovsdb.Operation
	for _, w := range group {
		ops = append(ops, w.ops...)
		defer context.AfterFunc(w.ctx, func() {
			if running.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	_, err := g.db.Transact(ctx, ops)
	g.noteLost(err)
	return err
}
