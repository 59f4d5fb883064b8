// Package engine owns what the objects of all kinds share in the controller: the items of its queue, the turns and
// budgets of their tenants, the passes over them, and the writing of their states. It knows no kind and no row.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// A failed pass is repeated after retryFirst. The time doubles with each failure, up to RetryLast.
	retryFirst = 50 * time.Millisecond
	RetryLast  = 10 * time.Second
	// OneChange is the deadline of one pass, and of one write of a state.
	OneChange = 30 * time.Second
)

// Item is the subject of one reconcile pass. Tenant is the namespace whose object requests the pass, Operators or
// Nobodys. Key identifies the subject among those of its kind.
type Item struct{ Kind, Key, Tenant string }

// Of returns the item of an object "<namespace>/<name>". Its namespace is the tenant.
func Of(kind, id string) Item { return Item{kind, id, NamespaceOf(id)} }

// OfNamespace returns the item of what a namespace has of a kind.
func OfNamespace(kind, namespace string) Item { return Item{kind, namespace, namespace} }

// Queue stores items. Their tenants take turns.
type Queue = workqueue.TypedRateLimitingInterface[Item]

// NewQueue makes an empty queue.
func NewQueue() Queue { return newFairQueue(func(i Item) string { return i.Tenant }) }

// Pass makes the pass over one item. The item is queued again if the pass fails.
type Pass func(ctx context.Context, i Item) error

// Engine makes the passes over the items of its queue, one after the other. Only its worker uses the rest.
type Engine struct {
	Queue
	*Budgets
	*Quota
	later   *later
	passes  map[string]Pass
	wrote   spent // what all passes have written
	metrics *Metrics
	// Leading is called before each write. It returns an error if this controller does not lead.
	Leading func() error
	// Now is the clock by which kinds wait. Budgets have their own one.
	Now func() time.Time
	Log *slog.Logger
}

// New makes an engine without kinds.
func New(queue Queue, metrics *Metrics, leading func() error, log *slog.Logger) *Engine {
	return &Engine{
		Queue: queue, Budgets: NewBudgets(log), Quota: newQuota(queue.Add, metrics), later: newLater(),
		passes: map[string]Pass{}, metrics: metrics, Leading: leading, Now: time.Now, Log: log,
	}
}

// Register sets how the passes over items of a kind are made. A kind has one pass.
func (e *Engine) Register(kind string, pass Pass) {
	if e.passes[kind] != nil {
		panic("engine: kind " + kind + " is registered twice")
	}
	e.passes[kind] = pass
}

// Run works off the queue until the end of ctx.
func (e *Engine) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, e.ShutDown)()
	for {
		i, shutdown := e.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		e.Log.Debug("reconcile pass", "kind", i.Kind, "id", i.Key, "namespace", i.Tenant)
		e.pass(ctx, i)
		e.Done(i)
	}
}

// pass makes the pass over one item, and queues the item again if the pass fails.
func (e *Engine) pass(ctx context.Context, i Item) {
	ctx, cancel := context.WithTimeout(ctx, OneChange)
	defer cancel()
	before, begin := e.wrote, time.Now()
	err := fmt.Errorf("no kind %q is registered", i.Kind)
	if pass := e.passes[i.Kind]; pass != nil {
		err = pass(ctx, i)
	}
	wrote := e.wrote
	e.metrics.pass(i, err, spent{
		time: time.Since(begin), transactions: wrote.transactions - before.transactions, rows: wrote.rows - before.rows,
		bytes: wrote.bytes - before.bytes,
	})
	if err == nil {
		e.Forget(i)
		return
	}
	e.Log.Warn("not in sync yet", i.Kind, i.Key, "err", err)
	e.AddRateLimited(i)
}

// Prune forgets the budgets and the costs of namespaces that have been idle.
func (e *Engine) Prune() {
	e.Budgets.Prune()
	e.metrics.prune()
}

// Wrote counts a committed transaction of the present pass, with its rows and bytes.
func (e *Engine) Wrote(rows, bytes int) {
	e.wrote.transactions++
	e.wrote.rows += rows
	e.wrote.bytes += bytes
}

// Counted makes a part of a pass, and reports whether that has written anything.
func (e *Engine) Counted(part func() error) (wrote bool, err error) {
	before := e.wrote.transactions
	err = part()
	return e.wrote.transactions > before, err
}

// Charged is Counted, and charges what is written to the budget of the tenant: one change for each changeBytes, and for
// each changeFlows that OVN has to compute again.
func (e *Engine) Charged(tenant string, part func() error) (wrote bool, err error) {
	before := e.wrote
	if wrote, err = e.Counted(part); wrote {
		e.Charge(tenant, 1+(e.wrote.bytes-before.bytes)/changeBytes+(e.wrote.flows-before.flows)/changeFlows)
	}
	return wrote, err
}

// Recomputes counts flows that ovn-controller computes again because of what the present pass has written.
func (e *Engine) Recomputes(flows int) { e.wrote.flows += flows }

// Paced makes a pass if the tenant of the item has a budget, and charges what the pass writes to it. Otherwise it
// queues the item for the time of the next budget.
func (e *Engine) Paced(i Item, pass func() error) error {
	if wait := e.Wait(i.Tenant); wait > 0 {
		e.AddAfter(i, wait)
		return nil
	}
	_, err := e.Charged(i.Tenant, pass)
	return err
}
