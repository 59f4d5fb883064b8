package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// NamespaceChanged queues the policies that a namespace matters to: it is new or gone, or has other labels.
func (q *Queue) NamespaceChanged(namespace string) {
	q.namespaces.add(namespace)
	q.items.Add(item{kind: kindNamespaces})
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

// scopesTogether is how many scopes one transaction writes, at most.
const scopesTogether = 64

// reconcilePods makes the passes that pods of a namespace need: they have other labels (relabelled), or they have got
// their ports. The namespace pays, and all scopes are written together, so that a pod costs the same if one namespace
// selects it or many do.
func (c *Controller) reconcilePods(ctx context.Context, i item, relabelled bool) error {
	if c.policies == nil {
		return nil
	}
	scopes := c.policies.scopesOf(i.id, relabelled)
	if len(scopes) == 0 {
		return nil
	}
	return c.paced(i, func() error {
		for some := range slices.Chunk(scopes, scopesTogether) {
			err := c.ensurePolicies(ctx, some...)
			if err != nil && len(some) == 1 {
				return err
			}
			if err != nil { // one of them must not delay the others
				for _, s := range some {
					c.queue.Add(scopeItem(s))
				}
			}
		}
		return nil
	})
}

// scopesOf are the scopes that may select pods of a namespace. A port joins the groups of the namespace's own scopes,
// and of ClusterNetworkPolicies, when it is inserted, so these matter for other labels only.
func (p *policySets) scopesOf(namespace string, relabelled bool) (all []policies.Scope) {
	for s, selectors := range p.elsewhere {
		if (relabelled || s.Namespace != "") && s.Namespace != namespace && selectors.selects(namespace) {
			all = append(all, s)
		}
	}
	if relabelled {
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
func (c *Controller) queueNamespaces(ctx context.Context) error {
	if c.policies == nil {
		return nil
	}
	changed := c.changes.namespaces.take()
	all, err := c.policies.source.Namespaces(ctx)
	if err != nil {
		c.changes.namespaces.add(changed...)
		return err
	}
	for s, selectors := range c.policies.elsewhere {
		if s.Namespace == "" || slices.ContainsFunc(changed, func(name string) bool {
			has, there := all[name]
			return selectors.changed(name, has.Labels, there)
		}) {
			c.queue.Add(scopeItem(s))
		}
	}
	return nil
}
