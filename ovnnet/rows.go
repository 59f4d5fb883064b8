package ovnnet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// networkRows are the rows of one network, either as read from NB or as they should be.
type networkRows struct {
	// accepted is the row with the accepted configuration and the NADs whose ports the network takes; nil: none.
	accepted *nb.Copp
	// own is the network's own switch. On layer3 it has no ports.
	own *nbrows.Switch
	// nodes are the node switches of a layer3 network, by row key.
	nodes map[string]*nbrows.Switch
	// routes and nats are the network's rows in routers and gateways, by row key.
	routes map[string]*nb.LogicalRouterStaticRoute
	nats   map[string]*nb.NAT
	// claims are the claims on virtual addresses of pods, and a localnet network's on addresses of its VLAN of the
	// physical network.
	claims *nbrows.BookClaims
	// virtual are the other rows of virtual addresses, by the row key of the port group.
	virtual map[string]*nbrows.VirtualGroup
	// subnetsBehind is what NB has of them; of wanted rows it is empty.
	subnetsBehind subnetsBehind
	// dhcp is what DHCP answers, by row key.
	dhcp map[string]*nb.DHCPOptions
}

// switches returns the switches that exist: the network's own switch first, then the node switches by row key.
func (r *networkRows) switches() []*nbrows.Switch {
	var list []*nbrows.Switch
	if r.own.Row != nil {
		list = append(list, r.own)
	}
	for _, key := range slices.Sorted(maps.Keys(r.nodes)) {
		list = append(list, r.nodes[key])
	}
	return list
}

// wanted returns the rows that a network with this owner and these accepted NADs should have: its own, and those of the
// node switches that NB has.
func (n *Networks) wanted(have *present, network *netmodel.Network, owner string, nads []string) *networkRows {
	r := &networkRows{
		accepted: nbrows.NewAccepted(network, nads), own: nbrows.NewSwitch(network),
		nodes: have.wantedNodes(network), claims: nbrows.ClaimsOfNetwork(network),
	}
	r.claims.Mark(r.own.Row.ExternalIDs)
	r.virtual = nbrows.WantedVirtual(network)
	if IsShared(network.ID()) && owner != "" {
		r.own.Row.ExternalIDs[nbrows.KeyOwner] = owner
	}
	r.routes, r.nats = wantedRoutes(n.gateways, network)
	have.subnetsBehind.wantedRoutes(network, r.routes)
	n.setIPAM(r, network)
	n.setPortMTUs(have, r, network)
	mtu := n.PodMTU(network)
	r.dhcp = nbrows.WantedDHCP(network, mtu, have.dhcp)
	nbrows.SetAdvertisements(r.own.RouterPort, have.own.RouterPort, network, mtu)
	return r
}

// wantedRoutes returns a network's routes, in its router and in the router's gateway, and the network's SNAT rows in
// the gateway. The routes to subnets behind pods are not among them.
func wantedRoutes(
	gateways *gateway.Gateways, network *netmodel.Network,
) (map[string]*nb.LogicalRouterStaticRoute, map[string]*nb.NAT) {
	routes, nats := map[string]*nb.LogicalRouterStaticRoute{}, map[string]*nb.NAT{}
	id, router := network.ID(), network.RouterName()
	for _, subnet := range network.Routed() {
		marks := map[string]string{nbrows.KeyNetwork: id, nbrows.KeyRouter: router}
		f, name := nbrows.Family(subnet.Addr()), rowName(network, subnet)
		if network.Topology == netmodel.Layer3 {
			key := nbrows.RouteKey(id, nbrows.Discard, name)
			routes[key] = &nb.LogicalRouterStaticRoute{
				UUID: key, IPPrefix: subnet.String(), Nexthop: nbrows.Discard, ExternalIDs: maps.Clone(marks),
			}
		}
		gateway := gateways.WithGateway(network.Router)
		i := -1
		if gateway != nil {
			i = slices.IndexFunc(gateway.External, func(e netip.Prefix) bool { return nbrows.Family(e.Addr()) == f })
		}
		if i < 0 {
			continue
		}
		key := nbrows.RouteKey(id, nbrows.Back, name)
		routes[key] = &nb.LogicalRouterStaticRoute{
			UUID: key, IPPrefix: subnet.String(), Nexthop: gateway.RouterJoin(i).Addr().String(),
			ExternalIDs: maps.Clone(marks),
		}
		if network.SNAT != nil && *network.SNAT || network.SNAT == nil && gateway.SNAT {
			key := nbrows.NatKey(id, name)
			nats[key] = &nb.NAT{
				UUID: key, Type: nb.NATTypeSNAT, LogicalIP: subnet.String(),
				ExternalIP: gateway.External[i].Addr().String(), ExternalIDs: marks,
			}
			if len(gateway.Forwards.Limits) > 0 { // OVN takes a reply to a forwarded port for a new connection
				nats[key].ExternalPortRange = fmt.Sprintf("%d-65535", netmodel.FirstPortOfPods)
			}
		}
	}
	return routes, nats
}

// wantedNodes returns the wanted rows of the present node switches. A node switch whose node subnets do not belong to
// the network is not wanted.
func (have *present) wantedNodes(network *netmodel.Network) map[string]*nbrows.Switch {
	wanted := map[string]*nbrows.Switch{}
	if have.config != nil && have.config.CheckChange(network) != nil {
		return wanted
	}
	for key, p := range have.nodes {
		if sw := nodeSwitch(network, p); sw != nil {
			wanted[key] = sw
		}
	}
	return wanted
}

// nodeSwitch returns the wanted rows of a present node switch; nil if its node subnets do not belong to the network.
func nodeSwitch(network *netmodel.Network, have *nbrows.Switch) *nbrows.Switch {
	subnets := network.ParseNodeSubnets(have.Row.ExternalIDs[ovndb.NodeSubnetsKey])
	if subnets == nil {
		return nil
	}
	return nbrows.NewSwitch(network.ForNode(have.Row.ExternalIDs[nbrows.KeyNode], subnets))
}

// setPortMTUs gives the router's ports to the network's switches their MTU, and notes it for the ports that agents
// make.
func (n *Networks) setPortMTUs(have *present, wanted *networkRows, network *netmodel.Network) {
	mtu, known := n.PortMTU(network)
	if !known {
		mtu = nbrows.PortMTU(have.accepted)
		nbrows.KeepMTU(wanted.own.RouterPort, have.own.RouterPort)
	} else {
		nbrows.SetMTU(wanted.own.RouterPort, mtu)
	}
	nbrows.NotePortMTU(wanted.accepted, mtu)
	for _, sw := range wanted.nodes {
		nbrows.SetMTU(sw.RouterPort, mtu)
	}
}
