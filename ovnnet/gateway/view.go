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

// GatewayView is the gateway of a router.
type View struct {
	Addresses []string // on the provider's network, with its subnets' prefix lengths
	NextHops  []string
	Physical  string
	VLAN      int
	Selector  string   // of its nodes
	Nodes     []string // the first that is alive has it
}

// View reads the gateway of a router; nil: it has none of ours.
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
		g.Addresses = slices.Sorted(slices.Values(port.Networks))
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
	members := slices.SortedFunc(maps.Values(have.chassis), func(a, b *nb.HAChassis) int { return cmp.Compare(b.Priority, a.Priority) })
	for _, m := range members {
		g.Nodes = append(g.Nodes, m.ExternalIDs[nbrows.KeyNode])
	}
	return g
}
