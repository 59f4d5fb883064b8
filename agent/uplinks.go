package agent

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/uplinks"
	"github.com/ovn-multinet/ovn-multinet/ovnport/uplink"
)

const (
	// uplinksEvery is how often the agent checks that the node has its bridges: other programs write into Open vSwitch,
	// too.
	uplinksEvery = 5 * time.Second
	// uplinksAgain is when it checks what has become of a change.
	uplinksAgain = 500 * time.Millisecond
)

// nodeUplinks makes the node's bridges to physical networks. gateways reads what is wanted, and announces the report.
type nodeUplinks struct {
	bridges *uplink.Bridges
	log     *slog.Logger
	due     chan struct{} // has a token: something else is wanted
	news    chan struct{} // has a token: the report has changed

	mu     sync.Mutex
	wanted uplinks.Wanted // nil: nothing is known
	report uplinks.Report // nil: no pass yet
	unread string         // why what NB has cannot be read; "": it can
}

func newNodeUplinks(bridges *uplink.Bridges, log *slog.Logger) *nodeUplinks {
	return &nodeUplinks{bridges: bridges, log: log, due: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// read takes the uplinks that NB has for this node. nil changes nothing. A row that cannot be read changes nothing,
// either, and stops nothing else of the node: not the controller may have written it.
func (u *nodeUplinks) read(wanted uplinks.Wanted, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != u.unread {
		u.log.Warn("the node's uplinks in NB cannot be read; its bridges stay as they are", "err", err)
	}
	u.unread = why
	if wanted != nil && (u.wanted == nil || !maps.Equal(wanted, u.wanted)) {
		u.wanted = wanted
		signal(u.due)
	}
}

// last returns the last report. The caller may not change it.
func (u *nodeUplinks) last() uplinks.Report {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.report
}

// problem says what is missing for the uplink to a physical network. wanted is false if no uplink fits this node.
func (u *nodeUplinks) problem(physical string) (problem string, wanted bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, wanted = u.wanted[physical]
	return u.report[physical].Problem, wanted
}

// run makes passes until the end of ctx.
func (u *nodeUplinks) run(ctx context.Context) {
	wait := uplinksEvery
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-u.due:
		case <-time.After(wait):
		}
		changed, err := u.pass(ctx)
		wait = uplinksEvery
		if changed {
			wait = uplinksAgain
		}
		if err == nil {
			said = ""
		} else if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			u.log.Warn("cannot make the bridges to physical networks yet", "err", err)
		}
	}
}

// pass makes the bridges, and reports whether something has changed. A node that never had one costs nothing.
func (u *nodeUplinks) pass(ctx context.Context) (changed bool, err error) {
	u.mu.Lock()
	wanted, before := u.wanted, u.report
	u.mu.Unlock()
	if wanted == nil || before != nil && len(wanted) == 0 && len(before) == 0 {
		return false, nil
	}
	states, changed, err := u.bridges.Apply(ctx, wanted)
	if err != nil {
		return false, err
	}
	report := uplinks.Report{}
	for physical, is := range states {
		report[physical] = uplinks.Said{Of: wanted[physical], Problem: is.Problem, Pending: is.Pending}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.report == nil || !maps.Equal(report, u.report) {
		u.report = report
		signal(u.news)
	}
	return changed, nil
}
