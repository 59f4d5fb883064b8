package networks

import (
	"context"
	"net/netip"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// compared are the addresses that networks are compared with: the operator's networks, and the nodes'.
type compared struct {
	all          []netmodel.Reserved
	withoutNodes bool // the source did not list the nodes
}

// reserved knows the addresses that pods reach by their first interface.
type reserved struct {
	Config
	now *compared // nil: they are not known yet
}

func newReserved(c Config) *reserved { return &reserved{Config: c} }

// list returns the addresses that pods reach by their first interface. A network that was compared without the
// nodes, because the source did not answer, is compared again when it does.
func (r *reserved) list(ctx context.Context) []netmodel.Reserved {
	if r.now != nil {
		return r.now.all
	}
	now := &compared{}
	for _, k := range r.KeepOnPrimary {
		now.all = append(now.all, netmodel.Reserved{Prefix: k, Of: "a network of --keep-on-primary"})
	}
	nodes, err := r.Nodes(ctx)
	if err != nil {
		r.Log.Warn("networks are not compared with the nodes yet", "err", err)
		now.withoutNodes = true
	}
	for _, n := range nodes {
		for _, s := range n.PodSubnets {
			now.all = append(now.all, netmodel.Reserved{Prefix: s, Of: "the pods' network on node " + n.Name})
		}
		for _, a := range n.Addresses {
			own := netip.PrefixFrom(a, a.BitLen())
			now.all = append(now.all, netmodel.Reserved{Prefix: own, Of: "the address of node " + n.Name, Machine: true})
		}
	}
	r.now = now
	return now.all
}

// forget has the nodes listed again at the next comparison.
func (r *reserved) forget() {
	if r.now != nil && r.now.withoutNodes {
		r.Recompare()
	}
	r.now = nil
}
