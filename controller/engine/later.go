package engine

import (
	"maps"
	"slices"
	"time"
)

// Nothing tells the controller when an obstacle is gone, for example when a pod releases an address that a Service
// wants. So it tries again, and the time between two attempts grows up to LaterLast. But all attempts of a tenant
// together get at most latersPerSecond passes a second, as far as each of them comes once in laterMost.
const (
	LaterLast       = 15 * time.Second
	latersPerSecond = 10
	laterMost       = 5 * time.Minute
)

const (
	// RefusedEvery is the time until what rows in NB are in the way of is first tried again.
	RefusedEvery = 5 * time.Second
	// NotReadyEvery is the time until an object is first tried again that waits for a port or a gateway.
	NotReadyEvery = time.Second
)

// Obstacle is what is in the way of an item. An item may have several obstacles, which are tried independently of each
// other.
type Obstacle struct {
	Name string
	// Text describes the obstacle. If the text changes, the times between attempts begin with First again.
	Text  string
	First time.Duration // until the first attempt
	Last  time.Duration // until the last attempts, at most; 0: LaterLast, or more if the tenant has many
}

// subject identifies an item, whichever tenant requests its pass.
type subject struct{ kind, key string }

// attempts are the attempts at one obstacle of an item.
type attempts struct {
	tenant string
	text   string
	last   time.Time
	times  int
}

// later remembers what is tried again. Only the worker uses it.
type later struct {
	of      map[subject]map[string]*attempts // by the name of the obstacle
	waiting map[string]int                   // by tenant: how many obstacles
}

func newLater() *later { return &later{map[subject]map[string]*attempts{}, map[string]int{}} }

// count adds to the obstacles of a tenant.
func (l *later) count(tenant string, more int) {
	if l.waiting[tenant] += more; l.waiting[tenant] == 0 {
		delete(l.waiting, tenant)
	}
}

// remove removes an obstacle of an item.
func (l *later) remove(s subject, obstacle string) {
	if a := l.of[s][obstacle]; a != nil {
		l.count(a.tenant, -1)
		delete(l.of[s], obstacle)
	}
}

// TryLater queues another attempt at an item. The time until then doubles with each attempt at the same obstacle.
func (e *Engine) TryLater(i Item, o Obstacle) (first bool) {
	s := subject{i.Kind, i.Key}
	a := e.later.of[s][o.Name]
	e.later.remove(s, o.Name)
	if first = a == nil || a.text != o.Text; first {
		a = &attempts{text: o.Text}
	}
	if e.later.of[s] == nil {
		e.later.of[s] = map[string]*attempts{}
	}
	a.tenant, a.last = i.Tenant, e.Now()
	e.later.of[s][o.Name] = a
	e.later.count(a.tenant, 1)
	last := o.Last
	if last == 0 {
		last = e.longest(i.Tenant)
	}
	e.AddAfter(i, growing(o.First, a.times, last))
	a.times++
	return first
}

// longest returns the longest time between two attempts at one obstacle of the tenant.
func (e *Engine) longest(tenant string) time.Duration {
	return min(max(LaterLast, time.Duration(e.later.waiting[tenant])*time.Second/latersPerSecond), laterMost)
}

// TrySoon queues an attempt at an item, because its obstacle may be gone. It comes no earlier than least after the last
// one. It does nothing if the item does not have the obstacle.
func (e *Engine) TrySoon(i Item, obstacle string, least time.Duration) {
	if a := e.later.of[subject{i.Kind, i.Key}][obstacle]; a != nil {
		i.Tenant = a.tenant
		e.AddAfter(i, max(0, least-e.Now().Sub(a.last)))
	}
}

// Tried forgets obstacles of an item that are gone; without names, all of them. An attempt that is queued already comes
// all the same.
func (e *Engine) Tried(i Item, obstacles ...string) {
	s := subject{i.Kind, i.Key}
	if len(obstacles) == 0 {
		obstacles = slices.Collect(maps.Keys(e.later.of[s]))
	}
	for _, name := range obstacles {
		e.later.remove(s, name)
	}
	if len(e.later.of[s]) == 0 {
		delete(e.later.of, s)
	}
}

// Later returns the items that are tried again, in any order.
func (e *Engine) Later() (all []Item) {
	for s, obstacles := range e.later.of {
		for _, a := range obstacles {
			all = append(all, Item{s.kind, s.key, a.tenant})
		}
	}
	return all
}

// growing returns the time until the next attempt: first, doubled with each earlier attempt, and at most last.
func growing(first time.Duration, times int, last time.Duration) time.Duration {
	wait := first
	for ; times > 0 && wait < last; times-- {
		wait *= 2
	}
	return min(wait, last)
}
