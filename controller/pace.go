package controller

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

// Each change of a network's rows is a recompute of northd, 0.5 to 1 s at 10,000 ports, during which every pod
// waits. But changes that come together are one recompute. So a namespace changes its networks in rounds: many
// changes within a short time, and then none until its next round. In the long run a namespace takes a fifth of
// northd's time at most.
const (
	// roundLasts is how long a round takes, and roundWrites how many changes it has: so many are made in that time.
	roundLasts  = 2 * time.Second
	roundWrites = 100
	// roundEvery is the time for each further round. roundsAtOnce rounds may follow each other without a pause: a
	// person who edits, and a rollout of a thousand networks, do not wait.
	roundEvery   = 10 * time.Second
	roundsAtOnce = 10
)

// pace counts the rounds of namespaces. Only the controller's worker uses it.
type pace struct {
	log     *slog.Logger
	now     func() time.Time
	tenants map[string]*rounds
}

type rounds struct {
	budget *rate.Limiter
	ends   time.Time // of the round that is open
	left   int       // changes in it
	told   time.Time // until when the log says that the namespace waits
}

func newPace(log *slog.Logger) *pace {
	return &pace{log: log, now: time.Now, tenants: map[string]*rounds{}}
}

func (r *rounds) open(now time.Time) bool { return r.left > 0 && now.Before(r.ends) }

// wait is how long a tenant's next change of a network has to wait.
func (p *pace) wait(tenant string) time.Duration {
	r, now := p.tenants[tenant], p.now()
	if r == nil || r.open(now) {
		return 0
	}
	missing := 1 - r.budget.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	wait := time.Duration(missing*float64(roundEvery)) + time.Millisecond // the budget counts in floats
	if now.After(r.told) {
		r.told = now.Add(wait)
		p.log.Info("namespace changes its networks too often; its next changes wait", "namespace", tenant, "wait", wait)
	}
	return wait
}

// wrote counts one change.
func (p *pace) wrote(tenant string) {
	if tenant == operators {
		return
	}
	r, now := p.tenants[tenant], p.now()
	if r == nil {
		r = &rounds{budget: rate.NewLimiter(rate.Every(roundEvery), roundsAtOnce)}
		p.tenants[tenant] = r
	}
	if !r.open(now) {
		r.budget.AllowN(now, 1)
		r.ends, r.left = now.Add(roundLasts), roundWrites
	}
	r.left--
}

// prune drops the tenants whose budget is whole again.
func (p *pace) prune() {
	now := p.now()
	for tenant, r := range p.tenants {
		if !r.open(now) && r.budget.TokensAt(now) >= roundsAtOnce {
			delete(p.tenants, tenant)
		}
	}
}
