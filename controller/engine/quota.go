package engine

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// Quota has what the accepted objects of each namespace need in OVN, and how much they may need together. Only the
// worker uses it.
type Quota struct {
	limits  cost.Limits
	add     func(Item)
	of      map[Item]share // of accepted objects
	sums    map[string]cost.Cost
	refused map[string][]Item // by namespace: the objects that wait for room, the first one longest
	waits   map[Item]string   // their namespaces
	metrics *Metrics
}

// share is what an object needs. It counts for a namespace.
type share struct {
	namespace string
	needs     cost.Cost
}

// nearly is the part of a limit, in percent, from which a namespace is warned.
const nearly = 80

func newQuota(add func(Item), m *Metrics) *Quota {
	m.needed.Reset() // an earlier engine of the process may have set some
	m.limits.Reset()
	return &Quota{
		add: add, of: map[Item]share{}, sums: map[string]cost.Cost{}, refused: map[string][]Item{},
		waits: map[Item]string{}, metrics: m,
	}
}

// Limit replaces the limits. The caller queues everything.
func (q *Quota) Limit(limits cost.Limits) {
	q.limits = limits
	for namespace := range q.sums {
		q.show(namespace)
	}
}

// Limits returns how much the objects of a namespace may need together.
func (q *Quota) Limits(namespace string) cost.Cost { return q.limits.Of(namespace) }

// owner is the key of an object: it is the same one, whoever requests its pass.
func owner(i Item) Item { return Item{Kind: i.Kind, Key: i.Key} }

// Room returns how much an object may need: what the other objects of the namespace leave, and at least what it has.
func (q *Quota) Room(namespace string, i Item) cost.Cost {
	room := q.limits.Of(namespace).Less(q.Others(namespace, i))
	if s := q.of[owner(i)]; s.namespace == namespace {
		for r := range room {
			room[r] = max(room[r], s.needs[r])
		}
	}
	return room
}

// Others returns what the other objects of a namespace need.
func (q *Quota) Others(namespace string, i Item) cost.Cost {
	others := q.sums[namespace]
	if s, ok := q.of[owner(i)]; ok && s.namespace == namespace {
		others = others.Less(s.needs)
	}
	return others
}

// Check returns why an object does not fit into what its namespace may need; nil: it does. The object is queued when
// there is more room.
func (q *Quota) Check(namespace string, i Item, needs cost.Cost) error {
	r, beyond := needs.Beyond(q.Room(namespace, i))
	if !beyond {
		q.Await(namespace, i, false)
		return nil
	}
	q.Await(namespace, i, true)
	return cost.Refusal(namespace, r, needs, q.Others(namespace, i), q.limits.Of(namespace))
}

// Await notes whether an object waits for room. It is queued when its namespace needs less, or may need more.
func (q *Quota) Await(namespace string, i Item, waits bool) {
	former, did := q.waits[owner(i)]
	if did && (!waits || former != namespace) {
		delete(q.waits, owner(i))
		q.refused[former] = slices.DeleteFunc(q.refused[former], func(other Item) bool { return owner(other) == owner(i) })
		if len(q.refused[former]) == 0 {
			delete(q.refused, former)
		}
		did = false
	}
	if waits && !did {
		q.waits[owner(i)] = namespace
		q.refused[namespace] = append(q.refused[namespace], i)
	}
}

// Has reports whether it is known what an object needs.
func (q *Quota) Has(i Item) bool { _, ok := q.of[owner(i)]; return ok }

// Use notes what an accepted object needs. warning says that its namespace begins to come near to a limit.
func (q *Quota) Use(namespace string, i Item, needs cost.Cost) (warning string) {
	if !slices.Contains(cost.Kinds, i.Kind) {
		panic("engine: kind " + i.Kind + " is not among cost.Kinds, so no test fills a namespace with its objects")
	}
	former := q.of[owner(i)]
	if former == (share{namespace, needs}) {
		return ""
	}
	if former.namespace != namespace {
		q.Free(i)
		former = share{}
	}
	limit, before := q.limits.Of(namespace), q.sums[namespace]
	q.of[owner(i)] = share{namespace, needs}
	now := before.Less(former.needs).Plus(needs)
	q.sums[namespace] = now
	q.show(namespace)
	isLess := false
	for _, r := range cost.All() {
		isLess = isLess || now[r] < before[r]
		if warning == "" && 100*before[r] < nearly*limit[r] && 100*now[r] >= nearly*limit[r] && limit[r] > 0 {
			warning = fmt.Sprintf("the objects of namespace %s need %d %s in OVN, and %d is the limit: soon new ones are "+
				"refused; delete some, or ask the operator for more (limits)", namespace, now[r], r, limit[r])
		}
	}
	if isLess {
		q.retry(namespace)
	}
	return warning
}

// Free notes that an object is not accepted any more, and that it waits for no room.
func (q *Quota) Free(i Item) {
	q.Await("", i, false)
	former, ok := q.of[owner(i)]
	if !ok {
		return
	}
	namespace := former.namespace
	delete(q.of, owner(i))
	q.sums[namespace] = q.sums[namespace].Less(former.needs)
	if q.sums[namespace] == (cost.Cost{}) {
		delete(q.sums, namespace)
	}
	q.show(namespace)
	q.retry(namespace)
}

// retriesAtOnce is how many objects are tried again when there is more room. A namespace may have thousands that are
// refused, and each try reads NB.
const retriesAtOnce = 16

// retry queues objects of a namespace that wait for room. Those that wait longest come first, and are the last ones at
// the next time.
func (q *Quota) retry(namespace string) {
	all := q.refused[namespace]
	n := min(len(all), retriesAtOnce)
	for _, i := range all[:n] {
		q.add(i)
	}
	if n > 0 {
		q.refused[namespace] = slices.Concat(all[n:], all[:n])
	}
}

// show sets the metrics of a namespace.
func (q *Quota) show(namespace string) {
	sum, ok := q.sums[namespace]
	limit := q.limits.Of(namespace)
	for _, r := range cost.All() {
		labels := prometheus.Labels{"namespace": namespace, "resource": r.String()}
		if !ok {
			q.metrics.needed.Delete(labels)
			q.metrics.limits.Delete(labels)
			continue
		}
		q.metrics.needed.With(labels).Set(float64(sum[r]))
		q.metrics.limits.With(labels).Set(float64(limit[r]))
	}
}
