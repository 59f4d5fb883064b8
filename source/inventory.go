package source

import (
	"fmt"
	"slices"
)

// Inventory is every pod and node that there is, at one moment.
type Inventory struct {
	pods  map[key]*Pod
	nodes []string // nil: the source knows none
}

func newInventory(pods []*Pod, nodes []string) *Inventory {
	c := &Inventory{pods: map[key]*Pod{}, nodes: nodes}
	for _, p := range pods {
		c.pods[key{p.Namespace, p.Name}] = p
	}
	return c
}

// Gone says why the pod, as the node knew it, is gone for good; "" when it is not.
func (c *Inventory) Gone(namespace, pod, uid, node string) string {
	p := c.pods[key{namespace, pod}]
	switch {
	case p == nil:
		return fmt.Sprintf("pod %s/%s is gone", namespace, pod)
	case !p.Is(uid):
		return fmt.Sprintf("pod %s/%s with UID %s is gone", namespace, pod, uid)
	case c.NodeGone(node):
		return fmt.Sprintf("node %s is gone", node)
	}
	return ""
}

// NodeGone tells whether a node is gone for good; one without a name is not, nor is any where the source knows none.
func (c *Inventory) NodeGone(node string) bool {
	return c.nodes != nil && node != "" && !slices.Contains(c.nodes, node)
}
