package agent

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// followFor is how long the agent tries to make this node the only one of a virtual machine that has migrated here. The
// end of the source's pod does the same.
const followFor = 5 * time.Minute

// PodMigrated makes this node the only one of the ports of a virtual machine that has migrated into a pod. It does not
// block.
func (a *Agent) PodMigrated(pod *netmodel.Pod) {
	if pod.Node == a.conf.NodeName {
		a.background.start(func(ctx context.Context) { a.follow(ctx, pod) })
	}
}

func (n *node) follow(ctx context.Context, pod *netmodel.Pod) {
	ctx, cancel := context.WithTimeout(ctx, followFor)
	defer cancel()
	defer n.source.WhenGone(pod, cancel)()
	entries, _, err := n.journal.Summaries()
	if err != nil {
		n.log.Warn("read the journal for a migration", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
	for i := range entries {
		if e := &entries[i]; e.Sandbox.UID == pod.UID && e.Plan != nil {
			var keys []string
			for _, at := range e.Plan.Interfaces {
				if ovnport.IPAMClaimOf(at.Port.Name) != "" {
					keys = append(keys, at.Port.UUID)
				}
			}
			n.followPorts(ctx, pod, e.Sandbox.ContainerID, keys)
		}
	}
}

// followPorts does that for the ports of a sandbox, with these row keys.
func (n *node) followPorts(ctx context.Context, pod *netmodel.Pod, sandbox string, keys []string) {
	var arrived []string
	retry := func(do func() error) error {
		return backoff.Retry(do, backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(0)), ctx))
	}
	err := retry(func() (err error) {
		arrived, err = n.nb.Arrive(ctx, sandbox, keys)
		return err
	})
	if len(arrived) == 0 && err == nil {
		return
	}
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(ovnport.Settled):
	}
	if err == nil {
		err = retry(func() error { return n.nb.Follow(ctx, sandbox, arrived) })
	}
	if err != nil {
		n.log.Warn("a virtual machine has migrated here, but its ports are still of both nodes; the end of the other pod "+
			"mends that", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		return
	}
	n.log.Info("a virtual machine has migrated to this node", "pod", pod.Namespace+"/"+pod.Name, "ports", len(arrived))
}
