package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// explainInUse replaces the details of the error that an address or a MAC is in use, if a pod with the same controller
// has it: neither the address nor the pod is wrong then, but what the controller does. Only such an error costs a read
// of the holder.
func (p *planning) explainInUse(ctx context.Context, err error) error {
	used, ok := errors.AsType[*ovnport.InUse](err)
	if !ok || p.pod.Controller == "" || used.Port.Namespace != p.owner.Namespace {
		return err
	}
	holder, notRead := p.agent.source.LivePod(ctx, used.Port.Namespace, used.Port.Pod)
	if notRead != nil || !holder.Is(used.Port.UID) || holder.Controller != p.pod.Controller {
		return err
	}
	const hash = "pod-template-hash"
	details := "both pods are of " + p.pod.Controller + ": "
	switch {
	case holder.Ending:
		details += "its old pod is being deleted, and kubelet tries again until it is gone"
	case strings.HasPrefix(p.pod.Controller, "Deployment ") && holder.Labels[hash] != p.pod.Labels[hash]:
		details += "it starts the new pod before it ends the old one; set strategy: Recreate (or maxSurge: 0 and " +
			"maxUnavailable: 1)"
	case strings.HasPrefix(p.pod.Controller, "DaemonSet ") && holder.Node == p.pod.Node:
		details += "it starts the new pod before it ends the old one; set maxSurge: 0"
	default:
		details += "an address or a MAC in its template is for one pod; set replicas: 1, or leave it out of the template"
	}
	return conf.Errorf(conf.CodeInUse, details, "%w", err)
}
