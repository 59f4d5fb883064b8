package ovnnet

import (
	"sync/atomic"
	"time"
)

// SpendBudget has namespaces spend their rounds, and stops the clock of the budget just before the next round is due. goOn
// lets the clock pass that. It is for a controller that does not run yet.
func (c *Controller) SpendBudget(namespaces ...string) (goOn func()) {
	var now atomic.Pointer[time.Time]
	set := func(t time.Time) { now.Store(&t) }
	start := time.Now()
	set(start)
	c.pace.now = func() time.Time { return *now.Load() }
	for _, namespace := range namespaces {
		for range roundsAtOnce {
			c.pace.wrote(namespace)
			c.pace.tenants[namespace].left = 0
		}
	}
	set(start.Add(roundEvery - 500*time.Millisecond))
	return func() { set(start.Add(roundEvery)) }
}

// StopClock stops the clock of everything but the budgets. It is for a controller that does not run yet.
func (c *Controller) StopClock() {
	now := time.Now()
	c.now = func() time.Time { return now }
}
