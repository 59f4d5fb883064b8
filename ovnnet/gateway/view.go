package gateway

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// View is the gateway of a router as NB has it.
type View struct {
	Addresses []string // on the physical network, with the prefix lengths of the external subnets
	NextHops  []string
	Physical  string   // the name of the physical network
	VLAN      int      // 0: none
	MTU       int      // of the port to the physical network; 0: none
	Selector  string   // the label selector of the gateway's nodes
	Nodes     []string // by priority: the first node that is alive is the active node
}

// View reads the gateway of a router. It returns nil if the router has no gateway or the rows are not ours.
func (n *Gateways) View(ctx context.Context, router string) (*View, error) {
	have, err := n.read(ctx, router)
	if _, foreign := errors.AsType[*nbrows.Refused](err); foreign {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return have.view(router), nil
}

func (have *present) view(router string) *View {
	if have.gateway == nil {
		return nil
	}
	g := &View{Selector: have.gateway.ExternalIDs[keyGatewayNodes]}
	if port := have.ports[portKey(router, partExternal)]; port != nil {
		g.Addresses, g.MTU = slices.Sorted(slices.Values(port.Networks)), nbrows.MTUOf(port)
	}
	for _, f := range nbrows.Families {
		if r := have.routes[gatewayRouteKey(router, routeNextHop, f)]; r != nil {
			g.NextHops = append(g.NextHops, r.Nexthop)
		}
	}
	if end := have.ends[endKey(router, partProvider)]; end != nil {
		g.Physical = end.Options["network_name"]
		if end.Tag != nil {
			g.VLAN = *end.Tag
		}
	}
	members := slices.SortedFunc(maps.Values(have.chassis), func(a, b *nb.HAChassis) int {
		return cmp.Compare(b.Priority, a.Priority)
	})
	for _, m := range members {
		g.Nodes = append(g.Nodes, m.ExternalIDs[nbrows.KeyNode])
	}
	return g
}
