package engine

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

// Each change of a network's rows makes northd compute everything again. This takes 0.5 to 1 s at 10,000 ports, and
// every pod waits meanwhile. But changes that come together cost only one recompute. So a namespace gets budgets. A
// budget allows many changes within a short time; after it the namespace waits for its next budget. In the long run a
// namespace uses at most a fifth of northd's time.
const (
	// One budget allows `BudgetWrites` changes within `budgetLasts`. The controller needs about this time for them.
	budgetLasts  = 2 * time.Second
	BudgetWrites = 100
	// A change of more bytes counts as several ones: NB, northd and ovn-controller need time for each byte.
	changeBytes = 8 << 10
	// The same is true of flows that ovn-controller computes again. It needs some 70 µs for each.
	changeFlows = 100
	// A namespace gets one budget every `BudgetEvery`, and can save up to `MaxBudgets` budgets. So a person who edits
	// does not wait, and neither does a rollout of a thousand networks.
	BudgetEvery = 10 * time.Second
	MaxBudgets  = 10
)

// Budgets stores the budgets of the namespaces. Only the controller's worker uses it.
type Budgets struct {
	log     *slog.Logger
	Now     func() time.Time
	tenants map[string]*account
}

// account has the budgets of one namespace.
type account struct {
	saved     *rate.Limiter // the saved budgets, one token each
	begins    time.Time     // the next change has to wait until then
	ends      time.Time     // the end of the open budget
	remaining int           // how many changes the open budget still allows
	logAgain  time.Time     // when the log may say again that the namespace waits
}

// NewBudgets makes the budgets of namespaces that have changed nothing yet.
func NewBudgets(log *slog.Logger) *Budgets {
	return &Budgets{log: log, Now: time.Now, tenants: map[string]*account{}}
}

// open reports whether the namespace has begun a budget that still allows a change. It allows none if the namespace
// does not have all budgets yet that its last changes took.
func (r *account) open(now time.Time) bool {
	return r.remaining > 0 && now.Before(r.ends) && r.saved.TokensAt(now) >= 0
}

// Wait returns how long a tenant's next change of a network has to wait. It logs that the tenant waits, once for each
// wait.
func (b *Budgets) Wait(tenant string) time.Duration {
	r, now := b.tenants[tenant], b.Now()
	if r == nil {
		return 0
	}
	wait := max(0, r.begins.Sub(now))
	if missing := 1 - r.saved.TokensAt(now); missing > 0 && !r.open(now) {
		wait = max(wait, time.Duration(missing*float64(BudgetEvery))+time.Millisecond) // the budget counts in floats
	}
	if wait == 0 {
		return 0
	}
	if now.After(r.logAgain) {
		r.logAgain = now.Add(wait)
		b.log.Info("namespace changes its networks too often; its next changes wait", "namespace", tenant, "wait", wait)
	}
	return wait
}

// Charge charges changes to the tenant, and begins a new budget if none is open. Changes beyond the budget take the
// next ones, too, also those that the tenant does not have yet. The next change waits until these have lasted: what a
// namespace edits meanwhile is written together, by one pass, and does not use up its saved budgets one edit at a time.
// The operator has no limit.
func (b *Budgets) Charge(tenant string, changes int) {
	if tenant == Operators {
		return
	}
	r, now := b.tenants[tenant], b.Now()
	if r == nil {
		r = &account{saved: rate.NewLimiter(rate.Every(BudgetEvery), MaxBudgets)}
		b.tenants[tenant] = r
	}
	if !r.open(now) {
		r.saved.ReserveN(now, 1)
		r.begins, r.ends, r.remaining = now, now.Add(budgetLasts), BudgetWrites
	}
	r.remaining -= changes
	for r.remaining < 0 {
		r.saved.ReserveN(now, 1)
		r.remaining += BudgetWrites
		r.begins, r.ends = r.begins.Add(budgetLasts), r.ends.Add(budgetLasts)
	}
}

// Prune deletes the tenants that have saved all their budgets again: a new entry would be equal.
func (b *Budgets) Prune() {
	now := b.Now()
	for tenant, r := range b.tenants {
		if !r.open(now) && r.saved.TokensAt(now) >= MaxBudgets {
			delete(b.tenants, tenant)
		}
	}
}
