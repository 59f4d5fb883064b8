package agent

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// missing tells the owners of pods that run without an entry in the plugin's journal. They started while the node
// had no plugin, and nobody makes their networks later; or the journal is lost, and with it what other plugins made for them.
type missing struct {
	seen map[string]bool // by UID: whether the owner was told; kept from one look to the next
}

// look tells those that were found by the look before as well: a DEL that runs right now is no news.
func (m *missing) look(ctx context.Context, a *Agent) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	pods, err := a.source.Pods(ctx)
	if err != nil {
		return err
	}
	attached, damaged, err := a.journal.Summaries()
	if err != nil || len(damaged) > 0 {
		return err // whose those are nobody can tell
	}
	has := map[[2]string][]string{} // UIDs by namespace and name
	for i := range attached {
		s := &attached[i].Sandbox
		has[[2]string{s.Namespace, s.Pod}] = append(has[[2]string{s.Namespace, s.Pod}], s.UID)
	}
	before := m.seen
	m.seen = map[string]bool{}
	for _, p := range pods {
		if p.NodeName != "" && p.NodeName != a.conf.NodeName || !p.Running || !wantsNetworks(p) || hasEntry(p, has[[2]string{p.Namespace, p.Name}]) {
			continue
		}
		told, again := before[p.UID]
		if again && !told {
			a.tellMissing(p)
		}
		m.seen[p.UID] = again
	}
	return nil
}

// wantsNetworks tells whether a pod names networks, also if nobody can understand which.
func wantsNetworks(p *source.Pod) bool {
	own := conf.NetworkAnnotations(p.Annotations)
	selections, err := nad.ParseRequests(own, p.Namespace, "")
	return len(selections) > 0 || err != nil && own[conf.NetworksAnnotation] != ""
}

func hasEntry(p *source.Pod, uids []string) bool {
	for _, uid := range uids {
		if p.Is(uid) {
			return true
		}
	}
	return false
}

func (a *Agent) tellMissing(p *source.Pod) {
	if nad.HasAttachments(p.Annotations[nad.StatusAnnotation]) {
		a.log.Warn("the plugin's journal has lost a running pod", "pod", p.Namespace+"/"+p.Name)
		a.source.Event(p, source.Warning, "JournalLost", "the node's journal of this pod's networks is lost: its OVN ports go when it does, but what other plugins made for it has then to be taken away by hand")
		return
	}
	a.source.Event(p, source.Warning, "NetworksMissing", "the pod started while ovn-multinet was not chained on this node, and has none of its networks; delete it, so that it is made again")
}
