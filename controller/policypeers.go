package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
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

// queuePeers queues the scopes of other namespaces that select pods of a namespace. A port joins the groups of
// ClusterNetworkPolicies when it is inserted, so these are not queued.
func (c *Controller) queuePeers(namespace string) {
	if c.policies == nil {
		return
	}
	for s, selectors := range c.policies.elsewhere {
		if s.Namespace != "" && selectors.selects(namespace) {
			c.queue.Add(scopeItem(s))
		}
	}
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
