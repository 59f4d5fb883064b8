package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// reconciler takes away what no DEL ever came for: runtimes are known to skip it, and a node's journal may be lost.
type reconciler struct {
	agent *Agent

	looked  atomic.Int64         // when all could be listed last, in seconds since 1970; 0: never
	looking sync.Mutex           // one look at a time
	seen    map[string]time.Time // since when a container is seen dead in every look
	missing missing              // running pods without their networks

	mu   sync.Mutex
	left []agentapi.Garbage // what only the plugin can take away
}

// reconcile unplugs what a reboot left in Open vSwitch, and then looks once a period until the end of ctx.
func (a *Agent) reconcile(ctx context.Context) {
	for try := backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0)); ; {
		err := a.scrub(ctx)
		if err == nil {
			break
		}
		a.log.Warn("unplug what the kernel has no more", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(try.NextBackOff()):
		}
	}
	close(a.scrubbed)
	soon := backoff.NewExponentialBackOff(backoff.WithMaxInterval(a.conf.ReconcilePeriod), backoff.WithMaxElapsedTime(0))
	for {
		next := a.conf.ReconcilePeriod
		all, err := a.remaining.round(ctx, false)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("look for what is left of containers that are gone", "err", err)
		}
		pending := all == nil // without a list nothing is known to be whole
		if !pending {
			if pending, err = a.repairing.pass(ctx, all); err != nil && ctx.Err() == nil {
				a.log.Warn("restore what the databases have lost of running pods", "err", err)
			}
		}
		if pending {
			next = soon.NextBackOff()
		} else {
			soon.Reset()
		}
		if err := a.remaining.missing.look(ctx, a); err != nil && ctx.Err() == nil {
			a.log.Warn("look for pods without their networks", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.replaced:
			soon.Reset()
		case <-time.After(min(next, a.conf.ReconcilePeriod)):
		}
	}
}

// NBReplaced says that NB's database was wiped, or that a backup of it was restored: rows may be lost. The next reconcile pass
// comes at once.
func (a *Agent) NBReplaced() {
	a.log.Warn("OVN's Northbound database was wiped or restored from a backup: looking for ports that it lost")
	select {
	case a.replaced <- struct{}{}:
	default:
	}
}

// round looks once, and takes away what is seen dead for a period: by every look since then, of which there was one at
// its beginning. What could not be listed in full takes nothing away, and what was seen before has to be seen anew;
// the list is nil then. A dry one only tells; it does not count as a look.
func (r *reconciler) round(ctx context.Context, dry bool) ([]*remains, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	r.looking.Lock()
	defer r.looking.Unlock()
	now := time.Now()
	all, err := r.agent.remains(ctx)
	if dry {
		return all, err
	}
	before := r.seen
	r.seen = map[string]time.Time{}
	if err != nil {
		return nil, err
	}
	r.looked.Store(now.Unix())
	used := map[string]bool{} // networks
	for _, m := range all {
		for _, l := range m.leases {
			used[l.Network] = true
		}
	}
	r.agent.blocks.keep(used)
	var left []agentapi.Garbage // anew: who is not dead any more is not the plugin's to undo
	var errs []error
	for _, m := range all {
		if m.why == "" {
			continue
		}
		since, again := before[m.ContainerID]
		if !again {
			since = now
		}
		r.seen[m.ContainerID] = since
		if !again || now.Sub(since) < r.agent.conf.ReconcilePeriod-tickSlack {
			continue
		}
		if m.taken, err = r.agent.takeAway(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("container %.12s: %w", m.ContainerID, err))
		}
		if m.taken {
			left = append(left, m.left()...)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.left {
		if !slices.ContainsFunc(all, func(m *remains) bool { return m.ContainerID == d.ContainerID && !m.bare() }) {
			left = append(left, d) // its rows are gone, so no list has it any more
		}
	}
	r.left = left
	return all, errors.Join(errs...)
}

// tickSlack is by how much two ticks of a clock may be nearer to each other than its period.
const tickSlack = 100 * time.Millisecond

// maxDead is how many the plugin is told at once: it takes up one at a call.
const maxDead = 4

// dead returns the first containers of which only the plugin can take away what is left, but for those that it has tried and
// marked: those it takes up by itself.
func (r *reconciler) dead() []agentapi.Garbage {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = slices.DeleteFunc(r.left, func(d agentapi.Garbage) bool {
		if len(d.HostVeths) == 0 {
			return !r.agent.journal.HasEntry(&d.Sandbox) || r.agent.journal.HasFailedMark(&d.Sandbox)
		}
		return !slices.ContainsFunc(d.HostVeths, func(name string) bool {
			is, err := linkThere(name)
			return is && err == nil
		})
	})
	return slices.Clone(r.left[:min(len(r.left), maxDead)])
}

// takeAway unplugs what is left of a container and releases its leases, each under the condition that it is still the
// container's. It leaves one alone that the plugin has taken up meanwhile.
func (a *Agent) takeAway(ctx context.Context, m *remains) (taken bool, err error) {
	unlock, err := a.sandboxes.take(ctx, m.ContainerID)
	if err != nil {
		return false, err
	}
	defer unlock()
	if a.busy(m.ContainerID) || a.releasing(m.ContainerID) {
		return false, nil
	}
	if len(m.plugged) > 0 {
		if err := a.ovs.Delete(ctx, m.ContainerID); err != nil {
			return false, fmt.Errorf("unplug: %w", err)
		}
	}
	held := make([]ovnport.Keys, 0, len(m.leases))
	for _, l := range m.leases {
		held = append(held, l.Keys)
	}
	if err := a.nb.Release(ctx, m.ContainerID, held); err != nil {
		return false, fmt.Errorf("release ports: %w", err)
	}
	if len(m.plugged) > 0 || len(m.leases) > 0 {
		a.metrics.taken.Inc()
		say := a.log.Info
		message := "took away what no DEL came for"
		if len(m.entries)+len(m.damaged) == 0 {
			say, message = a.log.Warn, message+"; the plugin's journal has lost this container: if other plugins gave it something, only you can take that away"
		}
		say(message, "pod", m.Namespace+"/"+m.Pod, "containerID", m.ContainerID, "reason", m.why, "plugs", len(m.plugged), "ports", len(m.leases))
	}
	return true, nil
}

// scrub unplugs host ends that the kernel does not have: after a reboot, Open vSwitch's database remembers them.
func (a *Agent) scrub(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	plugged, err := a.ovs.Ports(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{} // by container: whether one of its host ends is
	for _, p := range plugged {
		is, err := linkThere(p.HostVeth)
		if err != nil {
			return err
		}
		there[p.Sandbox] = there[p.Sandbox] || is
	}
	for _, sandbox := range slices.Sorted(maps.Keys(there)) {
		if there[sandbox] || a.busy(sandbox) {
			continue
		}
		if err := a.ovs.Delete(ctx, sandbox); err != nil {
			return fmt.Errorf("unplug container %.12s: %w", sandbox, err)
		}
		a.log.Info("unplugged what the kernel has no more", "containerID", sandbox)
	}
	return nil
}

// gc answers an operator: what is left of containers that are gone, and what of it goes now.
func (a *Agent) gc(ctx context.Context, r *agentapi.GCRequest, send deliver) error {
	all, err := a.remaining.round(ctx, r.DryRun)
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "nothing is taken away by a list with gaps; do OVN's Northbound database, Open vSwitch and the source of pods answer?", "%w", err)
	}
	answer := agentapi.GCResult{Sandboxes: []agentapi.StaleSandbox{}}
	for _, m := range all {
		if m.why != "" {
			answer.Sandboxes = append(answer.Sandboxes, m.answer())
		}
	}
	return send(answer)
}
