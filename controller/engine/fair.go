package engine

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Operators is the tenant of the items that the operator's configuration requests, such as gateways. No namespace can
// add such items, and they have every second turn. They do not have every turn, because each pass over a gateway queues
// the next one, and a pass may take a second while the nodes cannot be listed.
const Operators = ""

// Nobodys is the tenant of objects that have no NAD any more and no namespace in their name.
const Nobodys = "(none)"

// restsFrom is the shortest time of a pass after which its tenant rests. Most passes take some milliseconds.
const restsFrom = 20 * time.Millisecond

// fairQueue stores the items of a work queue by tenant. A tenant is a namespace, Operators or Nobodys. Tenants take
// turns, with one item in each turn. So if one tenant adds a thousand items, every other tenant waits for one of them
// only. After a pass that took long, its tenant rests for the same time while others have items. So a namespace has at
// most half of the worker's time while others wait.
type fairQueue[T comparable] struct {
	tenant func(T) string
	turns  []string // the tenants that have items, in the order of their turns, without Operators
	items  map[string][]T
	count  int
	others bool // the next turn belongs to the tenants in turns, if there are any
	now    func() time.Time

	mu    sync.Mutex
	rests map[string]time.Time // by tenant: the end of its rest
	began map[T]time.Time      // by item that is worked on
}

// newFairQueue makes a work queue whose tenants take turns. tenant returns the tenant of an item. AddRateLimited adds
// an item after a time that doubles with each failure, from retryFirst to RetryLast.
func newFairQueue[T comparable](tenant func(T) string) workqueue.TypedRateLimitingInterface[T] {
	store := &fairQueue[T]{
		tenant: tenant, items: map[string][]T{}, now: time.Now, rests: map[string]time.Time{}, began: map[T]time.Time{},
	}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: store})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: queue})
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, RetryLast)
	return &timedQueue[T]{workqueue.NewTypedRateLimitingQueueWithConfig(limits,
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying}), store}
}

// timedQueue measures how long each item is worked on.
type timedQueue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	store *fairQueue[T]
}

// Get returns the next item, as workqueue.TypedInterface says.
func (q *timedQueue[T]) Get() (T, bool) {
	i, shutdown := q.TypedRateLimitingInterface.Get()
	if !shutdown {
		q.store.begin(i)
	}
	return i, shutdown
}

// Done ends the work on an item.
func (q *timedQueue[T]) Done(i T) {
	q.store.end(i)
	q.TypedRateLimitingInterface.Done(i)
}

// begin notes that the work on an item begins.
func (q *fairQueue[T]) begin(i T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.began[i] = q.now()
}

// end has the tenant of an item rest if the work took long.
func (q *fairQueue[T]) end(i T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	maps.DeleteFunc(q.rests, func(_ string, end time.Time) bool { return !now.Before(end) })
	if took := now.Sub(q.began[i]); took >= restsFrom && q.tenant(i) != Operators {
		q.rests[q.tenant(i)] = now.Add(took)
	}
	delete(q.began, i)
}

// turn returns the place in turns of the tenant that has the turn: the first one that does not rest, if there is one.
func (q *fairQueue[T]) turn() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	return max(0, slices.IndexFunc(q.turns, func(t string) bool { return !now.Before(q.rests[t]) }))
}

// Touch does nothing: an item that is added again while it is in the queue keeps its turn.
func (q *fairQueue[T]) Touch(T) {}

// Push adds an item behind the other items of its tenant.
func (q *fairQueue[T]) Push(i T) {
	t := q.tenant(i)
	if len(q.items[t]) == 0 && t != Operators {
		q.turns = append(q.turns, t)
	}
	q.items[t] = append(q.items[t], i)
	q.count++
}

// Len is the number of items of all tenants.
func (q *fairQueue[T]) Len() int { return q.count }

// Pop removes and returns the first item of the tenant that has the turn.
func (q *fairQueue[T]) Pop() T {
	t := Operators
	if len(q.turns) > 0 && (q.others || len(q.items[Operators]) == 0) {
		at := q.turn()
		t = q.turns[at]
		q.turns = slices.Delete(q.turns, at, at+1)
	}
	q.others = t == Operators
	i, rest := q.items[t][0], q.items[t][1:]
	q.count--
	if len(rest) == 0 {
		delete(q.items, t)
		return i
	}
	q.items[t] = rest
	if t != Operators {
		q.turns = append(q.turns, t)
	}
	return i
}

// NamespaceOf returns the namespace of an object "<namespace>/<name>", which is also its tenant.
func NamespaceOf(id string) string {
	namespace, _, ok := strings.Cut(id, "/")
	if !ok {
		return ""
	}
	return namespace
}
