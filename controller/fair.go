package controller

import (
	"strings"

	"k8s.io/client-go/util/workqueue"
)

// operators is the tenant of what the operator's configuration asks for, such as gateways: every other turn is theirs, and
// no namespace can add any. They do not have every turn, for gateways come back by themselves, and where nodes cannot be
// listed each look at one takes its time.
const operators = ""

// nobodys is the tenant of networks whose last NAD is gone and whose name holds no namespace.
const nobodys = "(none)"

// fairQueue stores the items of a work queue by tenant, which is a namespace. Tenants take turns, one item a turn:
// of a tenant that adds a thousand items, any other tenant waits for one.
type fairQueue[T comparable] struct {
	tenant func(T) string
	turns  []string // tenants that have items, but for operators
	items  map[string][]T
	count  int
	others bool // the next turn is not the operators', if others have items
}

// newFairQueue makes a work queue whose tenants take turns. What fails is tried again after growing times.
func newFairQueue[T comparable](tenant func(T) string) workqueue.TypedRateLimitingInterface[T] {
	store := &fairQueue[T]{tenant: tenant, items: map[string][]T{}}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: store})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: queue})
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, retryLast)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limits, workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying})
}

// Touch is called for an item that is in the queue already; its turn stays as it is.
func (q *fairQueue[T]) Touch(T) {}

// Push adds an item behind those of its tenant.
func (q *fairQueue[T]) Push(i T) {
	t := q.tenant(i)
	if len(q.items[t]) == 0 && t != operators {
		q.turns = append(q.turns, t)
	}
	q.items[t] = append(q.items[t], i)
	q.count++
}

// Len is the number of items of all tenants.
func (q *fairQueue[T]) Len() int { return q.count }

// Pop takes the first item of the tenant whose turn it is.
func (q *fairQueue[T]) Pop() T {
	t := operators
	if len(q.turns) > 0 && (q.others || len(q.items[operators]) == 0) {
		t, q.turns = q.turns[0], q.turns[1:]
	}
	q.others = t == operators
	i, rest := q.items[t][0], q.items[t][1:]
	q.count--
	if len(rest) == 0 {
		delete(q.items, t)
		return i
	}
	q.items[t] = rest
	if t != operators {
		q.turns = append(q.turns, t)
	}
	return i
}

// namespaceOf is the tenant of a NAD.
func namespaceOf(nad string) string {
	namespace, _, _ := strings.Cut(nad, "/")
	return namespace
}
