package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const (
	// replyWithin is how long a DEL waits for a release; after that the DEL goes on, and the release too.
	replyWithin = 700 * time.Millisecond
	// releaseTimeout bounds one attempt of a release.
	releaseTimeout = 20 * time.Second
)

// release deletes a sandbox's OVS ports and releases its ports. If that takes longer than a DEL should, it goes on
// after the answer. A release that fails stays pending: its file stays in release/.
func (a *Agent) release(ctx context.Context, r *agentapi.Release, send deliver) error {
	for _, d := range r.Abandoned {
		a.log.Warn("the plugin dropped a delegate without a successful DEL",
			"pod", r.Namespace+"/"+r.Pod, "containerID", r.ContainerID, "err", d)
	}
	a.faults.forget(&r.Sandbox)
	if r.Planned && len(r.Ports) == 0 {
		return send(agentapi.Released{Done: true})
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		err := a.releaseLocked(ctx, r)
		if err != nil {
			a.releases.wake()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			a.log.Warn("the release is pending", "pod", r.Namespace+"/"+r.Pod, "containerID", r.ContainerID, "err", err)
		}
		return send(agentapi.Released{Done: err == nil})
	case <-time.After(replyWithin):
		return send(agentapi.Released{})
	}
}

// releaseLocked takes the sandbox's lock and releases the sandbox.
func (n *node) releaseLocked(ctx context.Context, r *agentapi.Release) error {
	unlock, err := n.sandboxes.take(ctx, r.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	return n.releaseNow(ctx, r)
}

// releaseNow releases a sandbox and then deletes the file of its pending release. Only the agent deletes this file,
// and only when both databases have committed. It needs the sandbox's lock.
func (n *node) releaseNow(ctx context.Context, r *agentapi.Release) error {
	var veths []string // of a pod that keeps its other interfaces
	for _, name := range r.Interfaces {
		veths = append(veths, agentapi.HostVeth(r.ContainerID, name))
	}
	if err := n.ovs.Delete(ctx, r.ContainerID, veths...); err != nil {
		return fmt.Errorf("delete OVS ports: %w", err)
	}
	failpoint.Hit("unplugged")
	var err error
	owner := ovnport.Owner{Node: n.conf.NodeName, Sandbox: r.ContainerID}
	switch {
	case r.Planned:
		err = n.nb.Release(ctx, owner, keysOf(r.Ports))
	case len(r.Interfaces) > 0:
		err = n.nb.ReleaseInterfaces(ctx, owner, r.Interfaces)
	default:
		err = n.nb.ReleaseSandbox(ctx, owner)
	}
	if err != nil {
		return fmt.Errorf("release ports: %w", err)
	}
	failpoint.Hit("released")
	if len(r.Interfaces) > 0 {
		return nil // the journal says until then that the release is due
	}
	return n.deletePending(r.ID())
}

func keysOf(ports []agentapi.Port) []ovnport.Keys {
	keys := make([]ovnport.Keys, 0, len(ports))
	for _, p := range ports {
		keys = append(keys, ovnport.Keys{
			UUID: p.UUID, Claims: p.Claims, Switch: p.Switch, OfIPAMClaim: ovnport.IPAMClaimOf(p.Name) != "",
		})
	}
	return keys
}

// deletePending deletes the file of a pending release.
func (n *node) deletePending(name string) error {
	if err := n.journal.DeleteRelease(name); err != nil {
		return &undeletable{err}
	}
	failpoint.Hit("pending-release-deleted")
	return nil
}

// undeletable says that everything is released, and that the file in release/ could not be deleted.
type undeletable struct{ error }

func (e *undeletable) Unwrap() error { return e.error }

// finishRelease finishes the pending release of this sandbox, if it has one. It needs the sandbox's lock.
func (n *node) finishRelease(ctx context.Context, s *agentapi.Sandbox) error {
	if r := n.readRelease(s.ID()); r != nil {
		return n.releaseNow(ctx, r)
	}
	return nil
}

// readRelease reads a file of release/; nil if there is none. The name of a damaged or unreadable file still names
// the sandbox: its ports are found by their owner.
func (n *node) readRelease(id string) *agentapi.Release {
	r, damaged, err := n.journal.ReadRelease(id)
	if damaged {
		n.log.Warn("a file in release/ is damaged, releasing by owner", "file", id, "err", err)
	}
	return r
}
