package policies

import (
	"maps"
	"slices"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// Changes collects what policies have to follow. It accepts changes from the start of the process on. Only the leader
// works them off.
type Changes struct {
	Queue engine.Queue
	// changedLabels are the pods whose labels have changed.
	changedLabels changedLabels
	// moved are the pods that policies have to follow.
	moved      pods.Changed
	namespaces changedNamespaces
}

// PolicyChanged queues the policies of a namespace, because one of them is new, changed or gone; without a namespace,
// the ClusterNetworkPolicies.
func (c *Changes) PolicyChanged(namespace string) { c.Queue.Add(policiesItem(namespace)) }

// PodChanged queues the policies that may select a pod: its labels have changed, or it has got its ports.
func (c *Changes) PodChanged(namespace, uid string, labelsChanged bool) {
	c.moved.Add(namespace, uid)
	if labelsChanged {
		c.changedLabels.add(namespace, uid)
		c.Queue.Add(engine.OfNamespace(kindChangedLabels, namespace))
		return
	}
	c.Queue.Add(engine.OfNamespace(kindPeers, namespace))
}

// PortsChanged queues the policies of a namespace that name ports: a pod that has named ports is new.
func (c *Changes) PortsChanged(namespace string) {
	c.Queue.Add(engine.OfNamespace(kindPorts, namespace))
}

// GuestChanged queues the policies of a namespace that wait for a pod: a pod that requests networks of other namespaces
// is new.
func (c *Changes) GuestChanged(namespace string) {
	c.Queue.Add(engine.OfNamespace(kindGuests, namespace))
}

// PodGone forgets a pod.
func (c *Changes) PodGone(namespace, uid string) { c.changedLabels.remove(namespace, uid) }

// NamespaceChanged queues the policies that a namespace matters to: it is new or gone, or has other labels.
func (c *Changes) NamespaceChanged(namespace string) {
	c.namespaces.add(namespace)
	c.Queue.Add(engine.Item{Kind: kindNamespaces})
}

// changedNamespaces collects namespaces: at the start of a source, all of them are new at once.
type changedNamespaces struct {
	mu    sync.Mutex
	names map[string]bool
}

func (c *changedNamespaces) add(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = map[string]bool{}
	}
	for _, name := range names {
		c.names[name] = true
	}
}

// take returns the namespaces and forgets them.
func (c *changedNamespaces) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := slices.Collect(maps.Keys(c.names))
	c.names = nil
	return names
}

// changedLabels collects the pods whose labels have changed since the source knows them, by namespace and UID. An agent
// may have an older copy of such a pod.
type changedLabels struct {
	mu   sync.Mutex
	pods map[string]map[string]portVersions
}

// portVersions has the ports of a pod that have its version, by row key, with the Hash of its labels then.
type portVersions map[string]string

func (r *changedLabels) add(namespace, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods == nil {
		r.pods = map[string]map[string]portVersions{}
	}
	if r.pods[namespace] == nil {
		r.pods[namespace] = map[string]portVersions{}
	}
	if r.pods[namespace][uid] == nil {
		r.pods[namespace][uid] = portVersions{}
	}
}

func (r *changedLabels) remove(namespace, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.pods[namespace], uid); len(r.pods[namespace]) == 0 {
		delete(r.pods, namespace)
	}
}

// due reports whether a port needs the version of its pod: the labels have changed, and the port has an older version.
func (r *changedLabels) due(port *pods.Port, pod *netmodel.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	written, changed := r.pods[pod.Namespace][pod.UID]
	return changed && written[port.Key] != policy.Hash(pod.Labels) && policy.Newer(pod.Version, port.PodVersion)
}

// wrote notes that a port has the version of its pod.
func (r *changedLabels) wrote(port string, pod *netmodel.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if written := r.pods[pod.Namespace][pod.UID]; written != nil {
		written[port] = policy.Hash(pod.Labels)
	}
}

// some reports whether labels of pods of a namespace have changed.
func (r *changedLabels) some(namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods[namespace]) > 0
}

// update returns the entries of policy.Index.ChangedLabels of a namespace that has these pods.
func (r *changedLabels) update(namespace string, pods []*netmodel.Pod, present map[string]string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := map[string]string{}
	for _, p := range pods {
		if _, noted := present[p.UID]; noted || r.pods[namespace][p.UID] != nil {
			entries[p.UID] = policy.Hash(p.Labels)
		}
	}
	return entries
}
