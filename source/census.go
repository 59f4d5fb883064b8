package source

import (
	"fmt"
	"slices"
)

// Census is every pod and node that there is, at one moment.
type Census struct {
	pods  map[key]*Pod
	nodes []string // nil: the source knows none
}

func newCensus(pods []*Pod, nodes []string) *Census {
	c := &Census{pods: map[key]*Pod{}, nodes: nodes}
	for _, p := range pods {
		c.pods[key{p.Namespace, p.Name}] = p
	}
	return c
}

// Gone says why the pod, as the node knew it, is gone for good; "" when it is not.
func (c *Census) Gone(namespace, pod, uid, node string) string {
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
func (c *Census) NodeGone(node string) bool {
	return c.nodes != nil && node != "" && !slices.Contains(c.nodes, node)
}
