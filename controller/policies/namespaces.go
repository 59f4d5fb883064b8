package policies

import (
	"context"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// namespaceBatch is how many rows of namespaces one transaction writes.
const namespaceBatch = 200

// namespacesNow returns all namespaces. Where NB has newer labels than the source, these are used.
func (p *known) namespacesNow(ctx context.Context) (map[string]policy.Namespace, error) {
	namespaces, err := p.Source.Namespaces(ctx)
	for name, row := range p.rowsOf {
		if has, there := namespaces[name]; there && p.olderCopies.is(name, row.Version, has.Version) {
			namespaces[name] = row.Namespace
		}
	}
	return namespaces, err
}

// ensureNamespaces writes what agents need to know of namespaces for ClusterNetworkPolicies. From then on no agent
// attaches a pod by older labels.
func (p *known) ensureNamespaces(ctx context.Context) error {
	return nbrows.Retry("labels of namespaces", func() error {
		err := p.tryNamespaces(ctx)
		if nbrows.Raced(err) {
			p.rowsOf = nil // another controller has written
		}
		return err
	})
}

func (p *known) tryNamespaces(ctx context.Context) error {
	changes, err := p.namespaceChanges(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(changes, namespaceBatch) {
		if err := p.Rows.WriteNamespaces(ctx, batch); err != nil {
			return err
		}
		for _, change := range batch {
			if delete(p.rowsOf, change.Name); change.Now != nil {
				p.rowsOf[change.Name] = change.Now
			}
		}
	}
	return nil
}

// namespaceChanges returns which rows of namespaces differ from what they should be. Without ClusterNetworkPolicies no
// row is needed.
func (p *known) namespaceChanges(ctx context.Context) ([]policies.NamespaceChange, error) {
	if p.rowsOf == nil {
		var err error
		if p.rowsOf, err = p.Rows.Namespaces(ctx); err != nil {
			return nil, err
		}
	}
	namespaces := map[string]policy.Namespace{}
	if len(p.written[""]) > 0 {
		var err error
		if namespaces, err = p.Source.Namespaces(ctx); err != nil {
			return nil, err
		}
	}
	var changes []policies.NamespaceChange
	for name, has := range namespaces {
		was := p.rowsOf[name]
		if was != nil && p.olderCopies.is(name, was.Version, has.Version) {
			continue // another controller has written newer labels
		}
		now := policy.Namespace{Labels: has.Labels, ChangedLabels: map[string]string{}, Version: has.Version}
		if was != nil && len(was.ChangedLabels) > 0 || p.Changes.changedLabels.some(name) {
			pods, err := p.Source.PolicyPods(ctx, name)
			if err != nil {
				return nil, err
			}
			var present map[string]string
			if was != nil {
				present = was.ChangedLabels
			}
			now.ChangedLabels = p.Changes.changedLabels.update(name, pods, present)
		}
		if was != nil && maps.Equal(was.Labels, now.Labels) && maps.Equal(was.ChangedLabels, now.ChangedLabels) {
			continue
		}
		row, err := policies.NewNamespaceRow(now)
		if err != nil {
			return nil, err
		}
		changes = append(changes, policies.NamespaceChange{Name: name, Was: was, Now: row})
	}
	for name, was := range p.rowsOf {
		if _, there := namespaces[name]; !there {
			changes = append(changes, policies.NamespaceChange{Name: name, Was: was})
		}
	}
	return changes, nil
}

// allNetworks are the networks that a policy for all networks is for.
func (p *known) allNetworks() []string {
	all := maps.Clone(p.networks)
	for _, network := range p.NADs.Networks() {
		all[network] = true
	}
	return slices.Collect(maps.Keys(all))
}
