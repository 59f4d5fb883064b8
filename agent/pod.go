package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// podOf returns the pod that the sandbox is for.
func (n *node) podOf(ctx context.Context, s *agentapi.Sandbox) (*netmodel.Pod, error) {
	pod, err := n.source.Pod(ctx, s.Namespace, s.Pod, s.UID)
	if errors.Is(err, source.ErrNotFound) {
		return nil, conf.Errorf(conf.CodePodGone, "it was deleted meanwhile", "pod %s/%s is not found", s.Namespace, s.Pod)
	}
	if err != nil {
		return nil, unreadable(s.Namespace, s.Pod, err)
	}
	if !pod.Is(s.UID) {
		return nil, conf.Errorf(conf.CodePodGone, "it was deleted and made again meanwhile",
			"pod %s/%s is another one by now: UID %s, not %s", s.Namespace, s.Pod, pod.UID, s.UID)
	}
	return pod, nil
}

// mayTakeOver lets a pod's new sandbox take over the ports of the pod's old sandbox. An old sandbox takes nothing from
// a new one: its ADD may still run when the container runtime was killed meanwhile. A new pod takes over the ports of
// an old pod of the same name if the source says that the new pod is the live one. Pods of other names have the port of
// an IPAMClaim one after the other.
func (n *node) mayTakeOver(ctx context.Context, owner, older *ovnport.Owner) error {
	if older.Pod != owner.Pod {
		return n.mayFollow(ctx, owner, older)
	}
	if older.UID == owner.UID {
		if n.journal.BeganAfter(older.Sandbox, owner.Sandbox) {
			return conf.Errorf(conf.CodePodGone, "the pod has a newer sandbox",
				"pod %s/%s: sandbox %.12s is older than sandbox %.12s, which has the pod's ports",
				owner.Namespace, owner.Pod, owner.Sandbox, older.Sandbox)
		}
		return nil
	}
	live, err := n.source.LivePod(ctx, owner.Namespace, owner.Pod)
	switch {
	case errors.Is(err, source.ErrNotFound), err == nil && !live.Is(owner.UID):
		return conf.Errorf(conf.CodePodGone, "a pod of the same name has its ports",
			"pod %s/%s with UID %s is gone", owner.Namespace, owner.Pod, owner.UID)
	case err != nil:
		return unreadable(owner.Namespace, owner.Pod, err)
	}
	return nil
}

// mayFollow lets a pod take over the port of an IPAMClaim from a pod that is gone, or whose containers have ended for
// good. A pod that has ended itself takes over nothing: it may be older, and its sandbox may still be there.
func (n *node) mayFollow(ctx context.Context, owner, older *ovnport.Owner) error {
	own, err := n.source.LivePod(ctx, owner.Namespace, owner.Pod)
	switch {
	case errors.Is(err, source.ErrNotFound), err == nil && (own.Ended || !own.Is(owner.UID)):
		return conf.Errorf(conf.CodePodGone, "another pod has its ports",
			"pod %s/%s with UID %s has ended", owner.Namespace, owner.Pod, owner.UID)
	case err != nil:
		return unreadable(owner.Namespace, owner.Pod, err)
	}
	other, err := n.source.LivePod(ctx, older.Namespace, older.Pod)
	switch {
	case errors.Is(err, source.ErrNotFound), err == nil && (other.Ended || !other.Is(older.UID)):
		return nil
	case err != nil:
		return unreadable(older.Namespace, older.Pod, err)
	}
	err = conf.Errorf(conf.CodeInUse, "kubelet tries again until that pod has ended; only the target of a live "+
		"migration, on another node, with the label "+conf.MigrationLabel+", has the addresses at the same time",
		"its IPAMClaim is in use by pod %s/%s", older.Namespace, older.Pod)
	if own.Labels[conf.MigrationLabel] != "" {
		err = fmt.Errorf("%w: %w", err, ovnport.ErrMigrates)
	}
	return err
}

func (n *node) supersedes(owner *ovnport.Owner) ovnport.Supersedes {
	return func(ctx context.Context, older ovnport.Owner) error { return n.mayTakeOver(ctx, owner, &older) }
}

// unreadable is the error of a pod that the source cannot read now.
func unreadable(namespace, name string, err error) error {
	return conf.Errorf(conf.CodeTryAgain, "is the source of pods reachable from this node?",
		"pod %s/%s: %w", namespace, name, err)
}
