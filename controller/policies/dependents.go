package policies

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// networksOfPods returns the networks that pods have ports on, or request.
func (p *known) networksOfPods(
	ctx context.Context, namespace string, uids map[string]bool,
) (map[string]bool, error) {
	pods, err := p.Source.PolicyPods(ctx, namespace)
	if err != nil {
		return nil, err
	}
	networks, nodes, known := map[string]bool{}, map[string]bool{}, map[string]*netmodel.Pod{}
	for _, pod := range pods {
		if !uids[pod.UID] {
			continue
		}
		known[pod.Name] = pod
		for _, nad := range pod.Requests {
			networks[p.NADs.Network(nad)] = true
		}
		if pod.Node != "" {
			nodes[pod.Node] = true
		}
	}
	if len(nodes) == 0 {
		return networks, nil
	}
	ports, err := p.Ports.On(ctx, slices.Sorted(maps.Keys(nodes)))
	for _, port := range ports {
		if pod := known[port.Pod]; port.Namespace == namespace && pod != nil && pod.Is(port.UID) {
			networks[port.Network] = true
		}
	}
	return networks, err
}

// queueGuests queues the policies of a namespace that wait for a pod, if one of its pods requests their network now.
func (k *Kind) queueGuests(ctx context.Context, i engine.Item) error {
	namespace := i.Key
	if len(k.waiting[namespace]) == 0 {
		return nil
	}
	places, err := k.placesOf(ctx, namespace)
	if err != nil {
		return err
	}
	for network := range k.waiting[namespace] {
		if places.requested[network] {
			k.Engine.Add(policiesItem(namespace))
			return nil
		}
	}
	return nil
}

// scopesTogether is how many scopes one transaction writes, at most.
const scopesTogether = 64

// reconcilePods makes the passes that pods of a namespace need: their labels have changed, or they have got their
// ports. The namespace pays, and all scopes are written together, so that a pod costs the same if one namespace
// selects it or many do.
func (k *Kind) reconcilePods(ctx context.Context, i engine.Item, labelsChanged bool) error {
	scopes := k.scopesOf(i.Key, labelsChanged)
	if len(scopes) == 0 {
		k.Changes.moved.Take(i.Key)
		return nil
	}
	if wait := k.Engine.Wait(i.Tenant); wait > 0 {
		k.Engine.AddAfter(i, wait)
		return nil
	}
	moved := k.Changes.moved.Take(i.Key)
	networks, err := k.networksOfPods(ctx, i.Key, moved)
	if err != nil {
		k.Changes.moved.Add(i.Key, slices.Collect(maps.Keys(moved))...)
		return err
	}
	scopes = slices.DeleteFunc(scopes, func(s policies.Scope) bool { return !networks[s.Network] })
	return k.Engine.Paced(i, func() error {
		for some := range slices.Chunk(scopes, scopesTogether) {
			err := k.ensurePolicies(ctx, some...)
			if err != nil && len(some) == 1 {
				return err
			}
			if err != nil { // one of them must not delay the others
				for _, s := range some {
					k.Engine.Add(scopeItem(s))
				}
			}
		}
		return nil
	})
}

// scopesOf are the scopes that may select pods of a namespace. A port joins the groups of the namespace's own scopes,
// and of ClusterNetworkPolicies, when it is inserted, so these matter for other labels only.
func (p *known) scopesOf(namespace string, labelsChanged bool) (all []policies.Scope) {
	for s, selectors := range p.elsewhere {
		if (labelsChanged || s.Namespace != "") && s.Namespace != namespace && selectors.selects(namespace) {
			all = append(all, s)
		}
	}
	if labelsChanged {
		for network := range p.sets[namespace] {
			all = append(all, policies.Scope{Network: network, Namespace: namespace})
		}
	}
	slices.SortFunc(all, func(a, b policies.Scope) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Network, b.Network))
	})
	return all
}

// queueNamespaces queues the scopes that select other namespaces now than at their last pass. ClusterNetworkPolicies
// need a row of each namespace.
func (k *Kind) queueNamespaces(ctx context.Context, _ engine.Item) error {
	changed := k.Changes.namespaces.take()
	all, err := k.Source.Namespaces(ctx)
	if err != nil {
		k.Changes.namespaces.add(changed...)
		return err
	}
	for s, selectors := range k.elsewhere {
		if s.Namespace == "" || slices.ContainsFunc(changed, func(name string) bool {
			has, there := all[name]
			return selectors.changed(name, has.Labels, there)
		}) {
			k.Engine.Add(scopeItem(s))
		}
	}
	return nil
}
