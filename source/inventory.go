package source

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Inventory has all pods and nodes that exist at one moment.
type Inventory struct {
	pods  map[key]*netmodel.Pod
	nodes map[string]bool // nil: the source does not know the nodes
}

// newInventory returns an Inventory. nodes is nil if the source does not know the nodes.
func newInventory(pods []*netmodel.Pod, nodes []string) *Inventory {
	c := &Inventory{pods: map[key]*netmodel.Pod{}}
	if nodes != nil {
		c.nodes = map[string]bool{}
	}
	for _, node := range nodes {
		c.nodes[node] = true
	}
	for _, p := range pods {
		c.pods[key{p.Namespace, p.Name}] = p
	}
	return c
}

// Gone returns the reason why a pod with this UID on this node no longer exists, or "" if it may still exist.
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

// NodeGone reports whether a node no longer exists. It returns false for an empty name, and for every node if the
// source does not know the nodes.
func (c *Inventory) NodeGone(node string) bool {
	return c.nodes != nil && node != "" && !c.nodes[node]
}
