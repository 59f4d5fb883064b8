// Package pods owns what kinds of objects share about pods: their source, their ports, and which of them have changed.
package pods

import (
	"context"
	"net/netip"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Source is the controller's source of pods.
type Source interface {
	// PolicyPods returns the pods of a namespace that request networks. It waits until the source has all pods, and fails
	// at the end of ctx.
	PolicyPods(ctx context.Context, namespace string) ([]*netmodel.Pod, error)
}

// Port is a port of a pod.
type Port struct {
	Key, Name, Network, Namespace, Pod, Interface, UID, Sandbox string
	Addresses                                                   []netip.Addr
	// PodVersion is the resource version of the pod that the port's groups were chosen by; "": unknown.
	PodVersion string
}

// Once has the ports of nodes that were read, for all scopes of a pass.
type Once struct {
	Ports
	read      map[string]bool
	byNetwork map[string][]Port
}

// OnNetwork returns the ports on a network. Those of the nodes are among them.
func (o *Once) OnNetwork(ctx context.Context, network string, nodes []string) ([]Port, error) {
	if o.read == nil {
		o.read, o.byNetwork = map[string]bool{}, map[string][]Port{}
	}
	var more []string
	for _, node := range nodes {
		if !o.read[node] {
			more = append(more, node)
		}
	}
	if len(more) > 0 {
		ports, err := o.On(ctx, more)
		if err != nil {
			return nil, err
		}
		for _, node := range more {
			o.read[node] = true
		}
		for _, port := range ports {
			o.byNetwork[port.Network] = append(o.byNetwork[port.Network], port)
		}
	}
	return o.byNetwork[network], nil
}

// Ports reads the ports of pods.
type Ports interface {
	// On returns the ports of the pods on nodes.
	On(ctx context.Context, nodes []string) ([]Port, error)
	// ByKey returns the ports with these row keys, without those that are gone.
	ByKey(ctx context.Context, keys []string) ([]Port, error)
}

// Networks remembers the networks of ports, by row key. A port that has another network later has been deleted in
// between, and is noted again.
type Networks struct{ now, before map[string]string }

// Note notes the network of a port.
func (n *Networks) Note(port *Port) {
	if n.now == nil {
		n.now = map[string]string{}
	}
	n.now[port.Key] = port.Network
}

// Age forgets the ports that nobody has asked for since it was last called.
func (n *Networks) Age() { n.now, n.before = nil, n.now }

// Without returns those of the ports that are not known to be of another network.
func (n *Networks) Without(keys []string, network string) (rest []string) {
	for _, key := range keys {
		if of, old := n.before[key]; old && n.now[key] == "" {
			n.Note(&Port{Key: key, Network: of})
		}
		if of := n.now[key]; of == "" || of == network {
			rest = append(rest, key)
		}
	}
	return rest
}

// Changed collects the pods that have changed, by namespace and name or UID.
type Changed struct {
	mu   sync.Mutex
	pods engine.Index[string]
}

// Add notes pods of a namespace.
func (c *Changed) Add(namespace string, pods ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods == nil {
		c.pods = engine.Index[string]{}
	}
	for _, pod := range pods {
		c.pods.Add(namespace, pod)
	}
}

// Take returns the pods of a namespace and forgets them.
func (c *Changed) Take(namespace string) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.pods[namespace]
	delete(c.pods, namespace)
	return pods
}
