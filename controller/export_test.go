package controller

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/paths"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
)

// SpendBudget has namespaces spend their budgets, and stops the clock just before the next budget is due. goOn
// lets the clock pass that. It is for a controller that does not run yet.
func (c *Controller) SpendBudget(namespaces ...string) (goOn func()) {
	var now atomic.Pointer[time.Time]
	set := func(t time.Time) { now.Store(&t) }
	start := time.Now()
	set(start)
	c.engine.Budgets.Now = func() time.Time { return *now.Load() }
	for _, namespace := range namespaces {
		for range engine.MaxBudgets * engine.BudgetWrites {
			c.engine.Charge(namespace, 1)
		}
	}
	set(start.Add(engine.BudgetEvery - 500*time.Millisecond))
	return func() { set(start.Add(engine.BudgetEvery)) }
}

// WaitForCopiesBy has the controller wait for newer copies by a clock, in seconds, that only the caller moves.
func (c *Controller) WaitForCopiesBy() *atomic.Int64 {
	var clock atomic.Int64
	c.engine.Now = func() time.Time { return time.Unix(clock.Load(), 0) }
	return &clock
}

// Activity is what a controller does, and what waits. It is asked of a controller that does not run yet.
type Activity struct {
	mu       sync.Mutex
	networks *watched[engine.Item]
	states   *watched[string]
	retries  map[engine.Item]bool // of networks that something is in the way of, or that are in use
}

// Watch has the activity of the controller noted.
func (c *Controller) Watch() *Activity {
	a := &Activity{}
	a.networks = watch(&a.mu, c.engine.Queue, func() {
		a.retries = map[engine.Item]bool{}
		for _, i := range c.engine.Later() {
			a.retries[i] = true
		}
	})
	a.states = watch(&a.mu, c.nets.States.Queue, func() {})
	c.engine.Queue, c.changes.Queue, c.nets.States.Queue = a.networks, a.networks, a.states
	return a
}

// Settled reports whether the controller runs and has worked off everything, and whether nothing waits but the next full pass,
// the next pass over a gateway, the next announcement, and the next attempts at networks that something is in the way of.
func (a *Activity) Settled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.networks.later {
		if i != everything && i != paths.Item && i != newsItem && i.Kind != kindGateway && !a.retries[i] {
			return false
		}
	}
	return a.networks.begun && a.networks.idle() && a.states.idle() && len(a.states.later) == 0
}

// Waiting lists the networks that are looked at later, each with the namespace whose turn that is.
func (a *Activity) Waiting() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.networks.later {
		if i.Kind == "network" {
			list = append(list, i.Key+" for "+i.Tenant)
		}
	}
	slices.Sort(list)
	return list
}

// watched notes what a queue holds, and what is under way.
type watched[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	mu      *sync.Mutex
	queued  map[T]bool
	later   map[T]time.Time // when at the latest; zero: not known
	begun   bool
	working bool
	done    func() // called by the worker when it is done with an item
}

func watch[T comparable](mu *sync.Mutex, queue workqueue.TypedRateLimitingInterface[T], done func()) *watched[T] {
	return &watched[T]{TypedRateLimitingInterface: queue, mu: mu, queued: map[T]bool{}, later: map[T]time.Time{}, done: done}
}

func (w *watched[T]) idle() bool { return len(w.queued) == 0 && !w.working }

func (w *watched[T]) Add(i T) {
	w.mu.Lock()
	w.queued[i] = true
	w.mu.Unlock()
	w.TypedRateLimitingInterface.Add(i)
}

func (w *watched[T]) AddAfter(i T, d time.Duration) {
	w.mu.Lock()
	if due, ok := w.later[i]; !ok || time.Now().Add(d).Before(due) {
		w.later[i] = time.Now().Add(d)
	}
	w.mu.Unlock()
	w.TypedRateLimitingInterface.AddAfter(i, d)
}

func (w *watched[T]) AddRateLimited(i T) {
	w.mu.Lock()
	w.later[i] = time.Time{}
	w.mu.Unlock()
	w.TypedRateLimitingInterface.AddRateLimited(i)
}

func (w *watched[T]) Get() (T, bool) {
	i, shutdown := w.TypedRateLimitingInterface.Get()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.queued, i)
	if due, ok := w.later[i]; ok && !time.Now().Before(due) { // an earlier one was asked for by somebody else
		delete(w.later, i)
	}
	w.begun, w.working = true, true
	return i, shutdown
}

func (w *watched[T]) Done(i T) {
	w.TypedRateLimitingInterface.Done(i)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.working = false
	w.done()
}

// LookEvery sets the time between two looks at the owner of NB.
func (o *NBOwner) LookEvery(d time.Duration) { o.every = d }

// ForgetPorts has the controller know the network of no port, as one that begins to lead. It must be idle.
func (c *Controller) ForgetPorts() { c.kinds.portNetworks = pods.Networks{} }

// TellEvery sets the shortest time between two announcements to the agents.
func (c *Controller) TellEvery(every time.Duration) { c.newsEvery = every }
