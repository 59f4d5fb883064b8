package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// mtuEvents writes an Event for each of this node's pods whose network gets a smaller MTU while the pod runs: an
// interface keeps the MTU that it was made with.
type mtuEvents struct {
	*node
	due   bool           // an MTU has changed since the last pass
	known map[string]int // by sandbox and interface: the largest MTU that the owner was told
}

func newMTUEvents(n *node) *mtuEvents { return &mtuEvents{node: n, known: map[string]int{}} }

// pass records an Event for each pod of the node with an interface that is too large since a change. sizes are this
// node's MTUs. It reads the journal only after a change.
func (t *mtuEvents) pass(ctx context.Context, sizes pathmtu.Sizes) error {
	if !t.due {
		return nil
	}
	entries, _, err := t.journal.Summaries()
	if err != nil {
		return err
	}
	smallest := pathmtu.Smallest{}
	smallest.Lower(t.paths.now())
	smallest.Add(t.conf.NodeName, sizes)
	known := map[string]int{}
	networks := map[string]*netmodel.Network{}
	for _, entry := range entries {
		if entry.Plan == nil {
			continue
		}
		for _, i := range entry.Plan.Interfaces {
			network, read := networks[i.Network]
			if !read {
				if network, err = t.networkOf(ctx, i.Network); err != nil {
					return err
				}
				networks[i.Network] = network
			}
			if network == nil {
				continue
			}
			limit, next := smallest[network.Physical], "recreate the pod, its interface then has that MTU"
			if network.MTU != 0 {
				limit = pathmtu.Limit{MTU: sizes[network.Physical], Node: t.conf.NodeName}
				next = `set "mtu" of the network to that MTU or less, and recreate the pod`
			}
			if limit.MTU == 0 || i.MTU <= limit.MTU {
				continue
			}
			key := entry.Sandbox.ID() + " " + i.Name
			if known[key] = limit.MTU; t.known[key] == limit.MTU {
				continue
			}
			pod := &netmodel.Pod{Namespace: entry.Sandbox.Namespace, Name: entry.Sandbox.Pod, UID: entry.Sandbox.UID}
			t.source.Event(pod, source.Warning, "MTUTooLarge", fmt.Sprintf("interface %s on network %s keeps MTU %d, and the "+
				"%s of node %s carries %d: larger packets are lost; %s",
				i.Name, i.Network, i.MTU, carrier(network.Physical), limit.Node, limit.MTU, next))
		}
	}
	t.known, t.due = known, false
	return nil
}

// networkOf returns the network of a NAD, "namespace/name"; nil if the NAD is gone or does not parse.
func (t *mtuEvents) networkOf(ctx context.Context, id string) (*netmodel.Network, error) {
	namespace, name, _ := strings.Cut(id, "/")
	def, err := t.source.NAD(ctx, namespace, name)
	if errors.Is(err, netmodel.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	network, err := def.Network()
	if err != nil {
		return nil, nil
	}
	return network, nil
}
