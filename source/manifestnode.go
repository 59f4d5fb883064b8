package source

import (
	"context"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Nodes returns all nodes, sorted by name: those that the folder has manifests of, for what is not listed is gone. A
// folder without any says nothing of nodes: then it is nil. It fails when it cannot tell.
func (m *Manifests) Nodes(_ context.Context) ([]netmodel.Node, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.nodes), byName), nil // of none: nil
}

// GoneNodes returns what tells of a node whether it is gone for good.
func (m *Manifests) GoneNodes(ctx context.Context) (func(node string) bool, error) {
	c, err := m.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	return c.NodeGone, nil
}

// tellNodes says that nodes differ from before.
func (m *Manifests) tellNodes(before map[string]netmodel.Node) {
	same := func(a, b netmodel.Node) bool { return maps.Equal(a.Labels, b.Labels) }
	if m.changes.Nodes != nil && !maps.EqualFunc(before, m.nodes, same) {
		m.changes.Nodes()
	}
}
