// Package subnetsbehind owns which networks have subnets behind pods: it has a network compared with NB again when one
// of these pods gets ready or ends.
package subnetsbehind

import (
	"context"
	"slices"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// Kind knows the networks with subnets behind pods. Only the worker uses it.
type Kind struct {
	source pods.Source
	queue  func(network, tenant string, after time.Duration)
	// of has the networks by the namespace of the pods, and namespaces the reverse.
	of, namespaces engine.Index[string]
	nads           map[string]string // the NAD of each of these networks; "": several share it
	// ready has the pods "<namespace>/<name>" that requested a network and were ready when they last changed.
	ready    engine.Index[string]
	flapping *pods.Flapping
}

// New makes the kind. queue queues a network for a tenant, after some time.
func New(source pods.Source, queue func(network, tenant string, after time.Duration)) *Kind {
	return &Kind{
		source: source, queue: queue, flapping: pods.NewFlapping(),
		of: engine.Index[string]{}, namespaces: engine.Index[string]{}, nads: map[string]string{},
		ready: engine.Index[string]{},
	}
}

// Run does nothing: networks have states of their own.
func (k *Kind) Run(context.Context) {}

// QueueAll notes the networks that NB has. They are queued anyway.
func (k *Kind) QueueAll(_ context.Context, networks map[string]*ovnnet.Listed) error {
	k.flapping.Forget()
	for id, n := range networks {
		k.NetworkAccepted(id, n.Config)
	}
	return nil
}

// NetworkAccepted notes the accepted configuration of a network; nil: there is none.
func (k *Kind) NetworkAccepted(id string, accepted *netmodel.Network) {
	was := k.namespaces[id]
	delete(k.namespaces, id)
	if accepted != nil {
		for _, b := range accepted.SubnetsBehind {
			k.of.Add(b.Namespace, id)
			k.namespaces.Add(id, b.Namespace)
		}
	}
	for namespace := range was {
		if !k.namespaces[id][namespace] {
			k.of.Remove(namespace, id)
		}
	}
	if len(k.namespaces[id]) == 0 {
		delete(k.nads, id)
		delete(k.ready, id)
		return
	}
	k.nads[id] = accepted.NAD()
	if accepted.SharedName != "" {
		k.nads[id] = ""
	}
}

// NetworkChanged does nothing: a pass over the network has just compared everything.
func (k *Kind) NetworkChanged(string) {}

// Follows reports whether subnets are behind pods of a namespace.
func (k *Kind) Follows(namespace string) bool { return len(k.of[namespace]) > 0 }

// PodsChanged queues the networks with subnets behind pods of a namespace if a pod that requests the network has got
// ready, or is ready no longer. The namespace pays for the passes.
func (k *Kind) PodsChanged(namespace string, names []string, now map[string]*netmodel.Pod) {
	for network := range k.of[namespace] {
		changed := false
		for _, name := range names {
			id, pod := namespace+"/"+name, now[name]
			is := pod != nil && pod.Ready && (k.nads[network] == "" || slices.Contains(pod.Requests, k.nads[network]))
			if changed = changed || is != k.ready[network][id]; is {
				k.ready.Add(network, id)
			} else {
				k.ready.Remove(network, id)
			}
		}
		if changed {
			k.queue(network, namespace, 0)
		}
	}
}

func (k *Kind) queueAll(namespace string, after time.Duration) {
	for network := range k.of[namespace] {
		k.queue(network, namespace, after)
	}
}

// Ready returns a function that reports whether a pod of the namespace is ready and not about to end. One that keeps
// changing is not, for a while.
func (k *Kind) Ready(ctx context.Context, namespace string) (func(pod string) bool, error) {
	all, err := k.source.PolicyPods(ctx, namespace)
	known := map[string]*netmodel.Pod{}
	for _, pod := range all {
		known[pod.Name] = pod
	}
	return func(name string) bool {
		pod := known[name]
		if pod == nil {
			return false
		}
		ready, wait := k.flapping.Ready(namespace+"/"+name+" "+pod.UID, pod.Ready)
		if wait > 0 {
			k.queueAll(namespace, wait)
		}
		return ready
	}, err
}
