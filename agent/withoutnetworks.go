package agent

import (
	"context"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/stale"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// unattached tells the owners of pods that run without an entry in the plugin's journal. Either the node had no
// plugin when they started, and no later call makes their networks; or the journal is lost, and with it the record of
// what other plugins made for them.
type unattached struct {
	*node
	heal     func(*netmodel.Pod)   // gives a pod its networks; nil: nothing on the node can
	seen     stale.Tracker[string] // UIDs
	reported map[string]bool       // UIDs whose owners have an Event
}

func newUnattached(n *node) *unattached { return &unattached{node: n, reported: map[string]bool{}} }

// pass tells the owners of pods that two passes in a row saw: in one pass, a DEL may be running.
func (u *unattached) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	pods, err := u.source.Pods(ctx)
	if err != nil {
		return err
	}
	attached, damaged, err := u.journal.Summaries()
	if err != nil || len(damaged) > 0 {
		return err // damaged entries may be of any pod
	}
	has := map[[2]string][]string{} // UIDs by namespace and name
	for i := range attached {
		s := &attached[i].Sandbox
		has[[2]string{s.Namespace, s.Pod}] = append(has[[2]string{s.Namespace, s.Pod}], s.UID)
	}
	pass := u.seen.Begin()
	defer pass.End()
	reported := u.reported
	u.reported = map[string]bool{}
	for _, p := range pods {
		elsewhere := p.Node != "" && p.Node != u.conf.NodeName
		attached := slices.ContainsFunc(has[[2]string{p.Namespace, p.Name}], p.Is)
		if elsewhere || !p.Running || !requestsNetworks(p) || attached {
			continue
		}
		if pass.Saw(p.UID) {
			u.reported[p.UID] = true
			if !reported[p.UID] {
				u.tell(p)
			}
		}
	}
	return nil
}

// requestsNetworks reports whether a pod names networks, also if its annotation is invalid.
func requestsNetworks(p *netmodel.Pod) bool {
	own := conf.NetworkAnnotations(p.Annotations)
	requests, err := nad.ParseRequests(own, p.Namespace, "")
	return len(requests) > 0 || err != nil && own[conf.NetworksAnnotation] != ""
}

func (u *unattached) tell(p *netmodel.Pod) {
	if nad.HasAttachments(p.Annotations[nad.StatusAnnotation]) {
		u.log.Warn("the plugin's journal has lost a running pod", "pod", p.Namespace+"/"+p.Name)
		u.source.Event(p, source.Warning, "JournalLost", "the node's journal of this pod's networks is lost: "+
			"its ports on OVN networks are deleted with the pod, but what other plugins made for it must be deleted by hand")
		return
	}
	if u.heal != nil {
		u.heal(p)
		return
	}
	u.source.Event(p, source.Warning, "NetworksMissing", "the pod runs without its networks: it started while "+
		"ovn-multinet was not chained on this node, or its annotation was written later; delete it, so that it is made again")
}
