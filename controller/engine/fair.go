package engine

import (
	"strings"

	"k8s.io/client-go/util/workqueue"
)

// Operators is the tenant of the items that the operator's configuration requests, such as gateways. No namespace can
// add such items, and they have every second turn. They do not have every turn, because each pass over a gateway queues
// the next one, and a pass may take a second while the nodes cannot be listed.
const Operators = ""

// Nobodys is the tenant of objects that have no NAD any more and no namespace in their name.
const Nobodys = "(none)"

// fairQueue stores the items of a work queue by tenant. A tenant is a namespace, Operators or Nobodys. Tenants take
// turns, with one item in each turn. So if one tenant adds a thousand items, every other tenant waits for one of them
// only.
type fairQueue[T comparable] struct {
	tenant func(T) string
	turns  []string // the tenants that have items, in the order of their turns, without Operators
	items  map[string][]T
	count  int
	others bool // the next turn belongs to the tenants in turns, if there are any
}

// newFairQueue makes a work queue whose tenants take turns. tenant returns the tenant of an item. AddRateLimited adds
// an item after a time that doubles with each failure, from retryFirst to RetryLast.
func newFairQueue[T comparable](tenant func(T) string) workqueue.TypedRateLimitingInterface[T] {
	store := &fairQueue[T]{tenant: tenant, items: map[string][]T{}}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: store})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: queue})
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, RetryLast)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limits,
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying})
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
		t, q.turns = q.turns[0], q.turns[1:]
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
