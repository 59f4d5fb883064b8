package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/stale"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// reconciler deletes what no DEL ever comes for (runtimes are known to skip DELs, and a node's journal may be lost),
// restores what the databases have lost of running pods, and tells the owners of pods that have no networks.
type reconciler struct {
	*node
	repairer   *repairer
	unattached *unattached
	// compare compares what pods have with their annotations.
	compare  func(context.Context, []*sandboxState)
	beside   func()        // has the agent read from NB what else is due, in the message of a pass
	replaced chan struct{} // a token: NB may be another database than before
	cleaned  chan struct{} // closed when Open vSwitch has no port of before a reboot any more

	passing sync.Mutex // one pass at a time
	stale   stale.Tracker[string]

	mu        sync.Mutex
	forPlugin []agentapi.Garbage // what only the plugin can delete
}

// tickSlack is by how much two ticks of a clock may be nearer to each other than its period.
const tickSlack = 100 * time.Millisecond

func newReconciler(n *node) *reconciler {
	return &reconciler{
		node: n, repairer: newRepairer(n), unattached: newUnattached(n),
		replaced: make(chan struct{}, 1), cleaned: make(chan struct{}),
		stale: stale.Tracker[string]{Period: n.conf.ReconcilePeriod - tickSlack},
	}
}

// run deletes what a reboot left in Open vSwitch, and then makes one pass in each period until the end of ctx.
func (r *reconciler) run(ctx context.Context) {
	if !r.cleanOVS(ctx) {
		return
	}
	soon := backoff.NewExponentialBackOff(
		backoff.WithMaxInterval(r.conf.ReconcilePeriod), backoff.WithMaxElapsedTime(0))
	for {
		next := r.conf.ReconcilePeriod
		if r.passAll(ctx) {
			next = soon.NextBackOff()
		} else {
			soon.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-r.replaced:
			soon.Reset()
		case <-time.After(min(next, r.conf.ReconcilePeriod)):
		}
	}
}

// passAll makes one pass of everything. pending says that another pass soon may do more.
func (r *reconciler) passAll(ctx context.Context) (pending bool) {
	warn := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			r.log.Warn(what, "err", err)
		}
	}
	replacements := r.newPorts.replacements()
	r.beside()
	all, err := r.pass(ctx, false)
	warn("delete what is stale", err)
	pending = all == nil // without a list, no sandbox is known to have all of its ports
	if !pending {
		pending, err = r.repairer.pass(ctx, all)
		warn("restore what the databases have lost of running pods", err)
		if !pending && err == nil {
			r.newPorts.restored(replacements)
		}
		r.compare(ctx, all)
	}
	warn("look for pods without their networks", r.unattached.pass(ctx))
	return pending
}

// NBReplaced says that NB's database was wiped, or that a backup of it was restored: rows may be lost. The next
// reconcile pass comes at once.
func (a *Agent) NBReplaced() {
	a.log.Warn("OVN's Northbound database was wiped or restored from a backup: looking for ports that it lost")
	a.ports.Rescan()
	a.reconciler.repairer.all.Store(true)
	a.newPorts.pause()
	a.gateways.replaced.Store(true)
	select {
	case a.reconciler.replaced <- struct{}{}:
	default:
	}
}

// pass deletes what is confirmed: every pass of a whole period saw it as stale. If a list cannot be read in full, the
// pass deletes nothing and returns no list, and what earlier passes saw has to be seen anew. A dry pass only lists;
// it confirms nothing.
func (r *reconciler) pass(ctx context.Context, dry bool) ([]*sandboxState, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	r.passing.Lock()
	defer r.passing.Unlock()
	if dry {
		return r.listSandboxes(ctx)
	}
	pass := r.stale.Begin()
	all, err := r.listSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	defer pass.End()
	r.metrics.lastPass.SetToCurrentTime()
	r.subnets.keep(networksOf(all))
	r.policies.keep(networksOf(all))
	var errs []error
	for _, m := range all {
		if m.why == "" || !pass.Saw(m.ContainerID) {
			continue
		}
		if m.deleted, err = r.deleteStale(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("sandbox %.12s: %w", m.ContainerID, err))
		}
	}
	r.setForPlugin(all)
	return all, errors.Join(errs...)
}

// networksOf are the networks of the ports.
func networksOf(all []*sandboxState) map[string]bool {
	used := map[string]bool{}
	for _, m := range all {
		for _, p := range m.ports {
			used[p.Network] = true
		}
	}
	return used
}

// deleteStale deletes the OVS ports of a sandbox and releases its ports, each on the condition that it still belongs
// to the sandbox. It leaves a sandbox alone that a call of the plugin has begun with meanwhile.
func (n *node) deleteStale(ctx context.Context, m *sandboxState) (deleted bool, err error) {
	unlock, err := n.sandboxes.take(ctx, m.ContainerID)
	if err != nil {
		return false, err
	}
	defer unlock()
	if n.busy(m.ContainerID) || n.releasing(m.ContainerID) {
		return false, nil
	}
	if len(m.ovsPorts) > 0 {
		if err := n.ovs.Delete(ctx, m.ContainerID); err != nil {
			return false, fmt.Errorf("delete OVS ports: %w", err)
		}
	}
	var keys []string
	for _, p := range m.ports {
		keys = append(keys, p.UUID)
	}
	owner := ovnport.Owner{Node: n.conf.NodeName, Sandbox: m.ContainerID}
	if err := n.nb.ReleaseListed(ctx, owner, keys); err != nil {
		return false, fmt.Errorf("release ports: %w", err)
	}
	if len(m.ovsPorts)+len(m.ports) > 0 {
		n.metrics.stale.Inc()
		n.logDeleted(m)
	}
	return true, nil
}

func (n *node) logDeleted(m *sandboxState) {
	write := n.log.Info
	message := "deleted the ports of a stale sandbox"
	if len(m.entries)+len(m.damaged) == 0 && !isEarly(m.ContainerID) {
		write = n.log.Warn
		message += "; the plugin's journal has lost this sandbox: what other plugins gave it must be deleted by hand"
	}
	write(message, "pod", m.Namespace+"/"+m.Pod, "containerID", m.ContainerID, "reason", m.why,
		"ovsPorts", len(m.ovsPorts), "ports", len(m.ports))
}

// setForPlugin notes what only the plugin can delete of the sandboxes whose ports are deleted. What an earlier pass
// noted of a sandbox stays if no list has this sandbox any more. It goes if the sandbox is not stale any more.
func (r *reconciler) setForPlugin(all []*sandboxState) {
	var now []agentapi.Garbage
	for _, m := range all {
		if m.deleted {
			now = append(now, m.forPlugin()...)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.forPlugin {
		listed := func(m *sandboxState) bool { return m.ContainerID == d.ContainerID && !m.absent() }
		if !slices.ContainsFunc(all, listed) {
			now = append(now, d)
		}
	}
	r.forPlugin = now
}

// maxForPlugin is how many stale sandboxes one answer names: the plugin deletes one in a call.
const maxForPlugin = 4

// staleForPlugin returns the first stale sandboxes of which only the plugin can delete what is left. It leaves out
// those whose failed DELs the plugin has marked: the plugin finds them by itself.
func (r *reconciler) staleForPlugin() []agentapi.Garbage {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forPlugin = slices.DeleteFunc(r.forPlugin, func(d agentapi.Garbage) bool {
		if len(d.HostVeths) == 0 {
			return !r.journal.HasEntry(&d.Sandbox) || r.journal.HasFailedMark(&d.Sandbox)
		}
		return !slices.ContainsFunc(d.HostVeths, func(name string) bool {
			is, err := linkThere(name)
			return is && err == nil
		})
	})
	return slices.Clone(r.forPlugin[:min(len(r.forPlugin), maxForPlugin)])
}

// gc answers an operator: which sandboxes are stale, and what of them is deleted now.
func (a *Agent) gc(ctx context.Context, r *agentapi.GCRequest, send deliver) error {
	all, err := a.reconciler.pass(ctx, r.DryRun)
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "an incomplete list deletes nothing; "+
			"do OVN's Northbound database, Open vSwitch and the source of pods answer?", "%w", err)
	}
	answer := agentapi.GCResult{Sandboxes: []agentapi.StaleSandbox{}}
	for _, m := range all {
		if m.why != "" {
			answer.Sandboxes = append(answer.Sandboxes, m.answer())
		}
	}
	return send(answer)
}
