package ovnnet

import (
	"context"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Networks writes the logical switches and routers of networks into OVN's Northbound database.
type Networks struct {
	*nbrows.Store
	gateways *gateway.Gateways
	// widestIPAM is the prefix length of the widest subnet that OVN's own allocator serves.
	widestIPAM int
	// PortMTU returns the MTU that a network's ports on its router need; 0: none. known is false while the networks on the
	// router are not all known: then the ports keep what they have.
	PortMTU func(network *netmodel.Network) (mtu int, known bool)
	// PodMTU returns the MTU of pods on a network; 0: unknown.
	PodMTU func(network *netmodel.Network) int
	// Ready returns a function that reports whether a pod of the namespace is ready and not about to end.
	Ready func(ctx context.Context, namespace string) (func(pod string) bool, error)
}

// New returns a Networks. gateways has the routers of the operator's configuration. widestIPAM is the prefix length of
// the widest subnet that OVN's own allocator serves.
func New(s *nbrows.Store, gateways *gateway.Gateways, widestIPAM int) *Networks {
	return &Networks{
		Store: s, gateways: gateways, widestIPAM: widestIPAM,
		PortMTU: func(*netmodel.Network) (int, bool) { return 0, false },
		PodMTU:  func(network *netmodel.Network) int { return network.MTU },
		Ready: func(context.Context, string) (func(string) bool, error) {
			return func(string) bool { return true }, nil
		},
	}
}

// Ensure creates or updates the rows of a network in one transaction, with its router if that is missing. A missing
// gateway is created before, in a transaction of its own. From then on the network takes ports of these NADs. Ensure
// does not write rows that are already right: northd computes everything again for every changed column of a switch. A
// change that would disconnect or renumber ports on the network is refused with an error of type *nbrows.Refused.
func (n *Networks) Ensure(ctx context.Context, network *netmodel.Network, nads []string) (changed bool, err error) {
	owner := ""
	if len(nads) > 0 {
		owner, _, _ = strings.Cut(nads[0], "/")
	}
	return n.EnsureOwned(ctx, network, owner, nads, func() error { return nil })
}

// EnsureOwned is Ensure for a network that the namespace owner owns. The owner is stored in the row if several NADs
// share the network by name. A network that another namespace owns already is refused. before is called when nothing
// refuses the network, before it is written.
func (n *Networks) EnsureOwned(
	ctx context.Context, network *netmodel.Network, owner string, nads []string, before func() error,
) (changed bool, err error) {
	was := "" // the network's router
	changed, err = n.Change(ctx, "network "+network.ID(), func(b *nbrows.Batch) error {
		have, err := n.read(ctx, network.ID(), network)
		if err != nil {
			return err
		}
		wanted := n.wanted(have, network, owner, nads)
		guards, err := n.judge(ctx, have, wanted, network, owner)
		if err != nil {
			return err
		}
		if err := n.write(ctx, b, have, wanted, network, guards); err != nil || len(b.Ops) == 0 {
			return err
		}
		was = have.router()
		return before()
	})
	if changed && was != network.RouterName() {
		err = n.DeleteUnusedRouter(ctx, was)
	}
	return changed && err == nil, err
}
