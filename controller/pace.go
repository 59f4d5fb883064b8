package controller

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
	// One budget allows `budgetWrites` changes within `budgetLasts`. The controller needs about this time for them.
	budgetLasts  = 2 * time.Second
	budgetWrites = 100
	// A namespace gets one budget every `budgetEvery`, and can save up to `maxBudgets` budgets. So a person who edits
	// does not wait, and neither does a rollout of a thousand networks.
	budgetEvery = 10 * time.Second
	maxBudgets  = 10
)

// pace stores the budgets of the namespaces. Only the controller's worker uses it.
type pace struct {
	log     *slog.Logger
	now     func() time.Time
	tenants map[string]*budgets
}

// budgets are the budgets of one namespace.
type budgets struct {
	saved     *rate.Limiter // the saved budgets, one token each
	ends      time.Time     // the end of the open budget
	remaining int           // how many changes the open budget still allows
	told      time.Time     // when the log may say again that the namespace waits
}

func newPace(log *slog.Logger) *pace {
	return &pace{log: log, now: time.Now, tenants: map[string]*budgets{}}
}

// open tells whether the namespace has begun a budget that still allows a change.
func (r *budgets) open(now time.Time) bool { return r.remaining > 0 && now.Before(r.ends) }

// wait returns how long a tenant's next change of a network has to wait. It logs that the tenant waits, once for each
// wait.
func (p *pace) wait(tenant string) time.Duration {
	r, now := p.tenants[tenant], p.now()
	if r == nil || r.open(now) {
		return 0
	}
	missing := 1 - r.saved.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	wait := time.Duration(missing*float64(budgetEvery)) + time.Millisecond // the budget counts in floats
	if now.After(r.told) {
		r.told = now.Add(wait)
		p.log.Info("namespace changes its networks too often; its next changes wait", "namespace", tenant, "wait", wait)
	}
	return wait
}

// wrote charges one change to the tenant, and begins a new budget if none is open. The operator has no limit.
func (p *pace) wrote(tenant string) {
	if tenant == operators {
		return
	}
	r, now := p.tenants[tenant], p.now()
	if r == nil {
		r = &budgets{saved: rate.NewLimiter(rate.Every(budgetEvery), maxBudgets)}
		p.tenants[tenant] = r
	}
	if !r.open(now) {
		r.saved.AllowN(now, 1)
		r.ends, r.remaining = now.Add(budgetLasts), budgetWrites
	}
	r.remaining--
}

// prune deletes the tenants that have saved all their budgets again: a new entry would be equal.
func (p *pace) prune() {
	now := p.now()
	for tenant, r := range p.tenants {
		if !r.open(now) && r.saved.TokensAt(now) >= maxBudgets {
			delete(p.tenants, tenant)
		}
	}
}
