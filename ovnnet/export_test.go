package ovnnet

import (
	"sync/atomic"
	"time"
)

// SpendBudget has a namespace spend its rounds, and stops the clock of the budget just before the next round is due. goOn
// lets the clock pass that. It is for a controller that does not run yet.
func (c *Controller) SpendBudget(namespace string) (goOn func()) {
	var now atomic.Pointer[time.Time]
	set := func(t time.Time) { now.Store(&t) }
	start := time.Now()
	set(start)
	c.pace.now = func() time.Time { return *now.Load() }
	for range roundsAtOnce {
		c.pace.wrote(namespace)
		c.pace.tenants[namespace].left = 0
	}
	set(start.Add(roundEvery - 500*time.Millisecond))
	return func() { set(start.Add(roundEvery)) }
}
