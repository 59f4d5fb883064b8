package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// cleanOVS deletes the OVS ports of before a reboot, until that succeeds. It returns false at the end of ctx.
func (r *reconciler) cleanOVS(ctx context.Context) bool {
	try := backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		err := r.deleteRebooted(ctx)
		if err == nil {
			close(r.cleaned)
			return true
		}
		r.log.Warn("delete OVS ports without a link", "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(try.NextBackOff()):
		}
	}
}

// deleteRebooted deletes OVS ports of sandboxes of which the kernel has no link: after a reboot, Open vSwitch's
// database still has them.
func (n *node) deleteRebooted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	ports, err := n.ovs.Ports(ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{} // by container ID: whether the kernel has one of its links
	for _, p := range ports {
		is, err := linkThere(p.HostVeth)
		if err != nil {
			return err
		}
		there[p.Sandbox] = there[p.Sandbox] || is
	}
	for _, sandbox := range slices.Sorted(maps.Keys(there)) {
		if there[sandbox] || n.busy(sandbox) {
			continue
		}
		if err := n.ovs.Delete(ctx, sandbox); err != nil {
			return fmt.Errorf("delete OVS ports of sandbox %.12s: %w", sandbox, err)
		}
		n.log.Info("deleted OVS ports without a link", "containerID", sandbox)
	}
	return nil
}

// awaitCleaned waits until the OVS ports of before a reboot are deleted: an old OVS port would take the flows of a
// new one for the same port.
func (r *reconciler) awaitCleaned(ctx context.Context) error {
	select {
	case <-r.cleaned:
		return nil
	case <-ctx.Done():
		return conf.Errorf(conf.CodeTryAgain, "is Open vSwitch running on this node?",
			"OVS ports of before a reboot are not deleted yet: %w", ctx.Err())
	}
}
