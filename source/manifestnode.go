package source

import (
	"context"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Nodes returns the nodes that have a manifest, sorted by name. Callers treat other nodes as deleted. If the folder has
// no manifest of a node, Nodes returns nil: the nodes are unknown. It fails if a manifest cannot be parsed.
func (m *Manifests) Nodes(_ context.Context) ([]netmodel.Node, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.nodes), byName), nil // nil if there are none
}

// GoneNodes reads the folder, and returns a function that tells whether a node no longer exists.
func (m *Manifests) GoneNodes(ctx context.Context) (func(node string) bool, error) {
	c, err := m.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	return c.NodeGone, nil
}

// tellNodes calls changes.Nodes if the nodes or their labels differ from before.
func (m *Manifests) tellNodes(before map[string]netmodel.Node) {
	same := func(a, b netmodel.Node) bool { return maps.Equal(a.Labels, b.Labels) }
	if m.changes.Nodes != nil && !maps.EqualFunc(before, m.nodes, same) {
		m.changes.Nodes()
	}
}
