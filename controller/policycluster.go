package controller

import (
	"context"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// namespaceBatch is how many rows of namespaces one transaction writes.
const namespaceBatch = 200

// namespacesNow returns all namespaces. Where NB has newer labels than the source, these are used.
func (p *policySets) namespacesNow(ctx context.Context) (map[string]policy.Namespace, error) {
	namespaces, err := p.source.Namespaces(ctx)
	for name, row := range p.rowsOf {
		if has, there := namespaces[name]; there && p.behind.is(name, row.Version, has.Version) {
			namespaces[name] = row.Namespace
		}
	}
	return namespaces, err
}

// ensureNamespaces writes what agents need to know of namespaces for ClusterNetworkPolicies. From then on no agent
// attaches a pod by older labels.
func (c *Controller) ensureNamespaces(ctx context.Context) error {
	var attempts nbrows.Attempts
	for {
		err := c.tryNamespaces(ctx)
		if !nbrows.Raced(err) {
			return err
		}
		c.policies.rowsOf = nil // another controller has written
		if err := attempts.Next("labels of namespaces"); err != nil {
			return err
		}
	}
}

func (c *Controller) tryNamespaces(ctx context.Context) error {
	changes, err := c.namespaceChanges(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(changes, namespaceBatch) {
		if err := c.policies.rows.WriteNamespaces(ctx, batch); err != nil {
			return err
		}
		for _, change := range batch {
			if delete(c.policies.rowsOf, change.Name); change.Now != nil {
				c.policies.rowsOf[change.Name] = change.Now
			}
		}
	}
	return nil
}

// namespaceChanges returns which rows of namespaces differ from what they should be. Without ClusterNetworkPolicies no
// row is needed.
func (c *Controller) namespaceChanges(ctx context.Context) ([]policies.NamespaceChange, error) {
	p := c.policies
	if p.rowsOf == nil {
		var err error
		if p.rowsOf, err = p.rows.Namespaces(ctx); err != nil {
			return nil, err
		}
	}
	namespaces := map[string]policy.Namespace{}
	if len(p.written[""]) > 0 {
		var err error
		if namespaces, err = p.source.Namespaces(ctx); err != nil {
			return nil, err
		}
	}
	var changes []policies.NamespaceChange
	for name, has := range namespaces {
		was := p.rowsOf[name]
		if was != nil && p.behind.is(name, was.Version, has.Version) {
			continue // another controller has written newer labels
		}
		now := policy.Namespace{Labels: has.Labels, Relabelled: map[string]string{}, Version: has.Version}
		if was != nil && len(was.Relabelled) > 0 || c.changes.relabelled.some(name) {
			pods, err := p.source.PolicyPods(ctx, name)
			if err != nil {
				return nil, err
			}
			var present map[string]string
			if was != nil {
				present = was.Relabelled
			}
			now.Relabelled = c.changes.relabelled.update(name, pods, present)
		}
		if was != nil && maps.Equal(was.Labels, now.Labels) && maps.Equal(was.Relabelled, now.Relabelled) {
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
func (c *Controller) allNetworks() []string {
	all := maps.Clone(c.policies.networks)
	for _, network := range c.members.of {
		all[network] = true
	}
	return slices.Collect(maps.Keys(all))
}
