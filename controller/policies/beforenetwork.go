package policies

import (
	"context"
	"errors"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// NetworkHasUsers queues the policies of namespaces that wait for a network, which accepts their first NADs now.
func (k *Kind) NetworkHasUsers(network string, namespaces []string) {
	for _, namespace := range namespaces {
		if k.waiting[namespace][network] {
			k.Engine.Add(policiesItem(namespace))
		}
	}
}

// BeforeNetwork writes the policies for a network that is about to be created: a network takes no ports before NB has
// the policies of its owner and the ClusterNetworkPolicies. Policies of other namespaces do not delay the network: a
// row for each of these namespaces keeps its pods out until its policies are in NB, too.
func (k *Kind) BeforeNetwork(ctx context.Context, network, owner string) error {
	namespaces, err := k.namespaces(ctx)
	if err != nil {
		return err
	}
	var others []policies.Scope
	for _, namespace := range namespaces {
		s := policies.Scope{Network: network, Namespace: namespace}
		own := namespace == "" || namespace == owner
		if !own && k.judged[namespace] != nil && !k.names(namespace, network) {
			continue
		}
		networks, err := k.readPolicies(ctx, namespace)
		switch {
		case own && err != nil:
			return err
		case own && networks[network]:
			if err := k.ensurePolicies(ctx, s); err != nil {
				return err
			}
		case !own && (err != nil || networks[network]):
			others = append(others, s)
			k.Engine.Add(policiesItem(namespace))
		}
	}
	return k.keepOut(ctx, others)
}

// names reports whether the policies of a namespace name a NAD of a network, as of their last pass.
func (p *known) names(namespace, network string) bool {
	return slices.ContainsFunc(p.NADs.Of(network), func(nad string) bool {
		return p.naming[nad][namespace]
	})
}

// keepOut writes the rows that keep the pods of namespaces out of a network.
func (p *known) keepOut(ctx context.Context, scopes []policies.Scope) error {
	for some := range slices.Chunk(scopes, scopesTogether) {
		wanted := make([]*policies.Wanted, len(some))
		for i, s := range some {
			p.note(s)
			wanted[i] = &policies.Wanted{Set: policy.SetOf(s.Network, s.Namespace, nil), Waits: true}
		}
		_, err := p.Rows.Ensure(ctx, wanted...)
		if errors.Is(err, policies.ErrApart) {
			for _, one := range wanted {
				if _, err := p.Rows.Ensure(ctx, one); err != nil {
					return err
				}
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
