package source

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Nodes returns the nodes that have a manifest, sorted by name. Callers treat other nodes as deleted. If the folder has
// no manifest of a node, Nodes returns nil: the nodes are unknown. It fails if a manifest cannot be parsed.
func (m *Manifests) Nodes(_ context.Context) ([]netmodel.Node, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	if all := nodesOf(m.nodes.List()); len(all) > 0 {
		return all, nil
	}
	return nil, nil
}

// GoneNodes reads the folder, and returns a function that reports whether a node no longer exists.
func (m *Manifests) GoneNodes(ctx context.Context) (func(node string) bool, error) {
	c, err := m.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	return c.NodeGone, nil
}
