package netmodel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Reserved are addresses that pods reach by their first interface.
type Reserved struct {
	Prefix  netip.Prefix
	Of      string // what has the addresses
	Machine bool   // a machine's address: the machine may be on a localnet network
}

var multicast = []netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")}

// Warning says what does not work on the network as it is described, in one line with the next step; "" if there is
// nothing. It has the first fault of each sort. The network is served all the same: an older version may have accepted
// it, and somebody's own machine may make it work.
func (n *Network) Warning(reserved []Reserved) string {
	var all []string
	for _, find := range []func() string{
		func() string { return n.subnetOverlap(reserved) }, func() string { return n.routeOverlap(reserved) },
		n.routeByNobody, n.multicastByGateway, func() string { return n.dnsBeyond(reserved) },
	} {
		if fault := find(); fault != "" {
			all = append(all, fault)
		}
	}
	return strings.Join(all, "; ")
}

// overlap finds the reserved addresses that a prefix overlaps; nil: none.
func (n *Network) overlap(p netip.Prefix, reserved []Reserved) *Reserved {
	i := slices.IndexFunc(reserved, func(r Reserved) bool {
		return r.Prefix.Overlaps(p) && !(r.Machine && n.Topology == Localnet)
	})
	if i < 0 {
		return nil
	}
	return &reserved[i]
}

func (n *Network) subnetOverlap(reserved []Reserved) string {
	for _, s := range n.Subnets {
		if r := n.overlap(s, reserved); r != nil {
			return fmt.Sprintf("subnets: %s overlaps %s, %s, and pods on the network do not reach that by their first "+
				"interface: give the network another subnet", s, r.Prefix, r.Of)
		}
	}
	return ""
}

func (n *Network) routeOverlap(reserved []Reserved) string {
	for i, route := range n.Routes {
		if r := n.overlap(route.Dst, reserved); r != nil {
			return fmt.Sprintf("routes[%d].dst: %s overlaps %s, %s, and pods on the network do not reach that by their first "+
				"interface: narrow the route", i, route.Dst, r.Prefix, r.Of)
		}
	}
	return ""
}

// routeByNobody finds a route by a gateway that no router has, and a route by a layer3 network's own router, which
// knows this network alone.
func (n *Network) routeByNobody() string {
	if n.Router != "" || n.Topology == Localnet {
		return ""
	}
	for i, r := range n.Routes {
		switch {
		case r.Scope == conf.ScopeLink || slices.ContainsFunc(multicast, r.Dst.Overlaps):
		case n.Topology == Layer3:
			return fmt.Sprintf("routes[%d]: the network's own router knows no way to %s: name a \"router\"", i, r.Dst)
		case slices.Contains(n.Gateways, r.GW):
			return fmt.Sprintf("routes[%d]: no pod has %s, the gateway of this network, and no router has it: "+
				"name a \"router\", or the address of a pod as \"gw\"", i, r.GW)
		}
	}
	return ""
}

func (n *Network) multicastByGateway() string {
	for i, r := range n.Routes {
		if r.Scope != conf.ScopeLink && slices.ContainsFunc(multicast, r.Dst.Overlaps) {
			return fmt.Sprintf("routes[%d]: a gateway forwards no multicast to %s: write \"scope\": %d and no \"gw\" "+
				"to send it on the link", i, r.Dst, conf.ScopeLink)
		}
	}
	return ""
}

// dnsBeyond finds a DNS server that a machine with no other interface does not reach by this network.
func (n *Network) dnsBeyond(reserved []Reserved) string {
	if n.DHCP == nil {
		return ""
	}
	for i, server := range n.DHCP.DNS {
		routed := n.OffersRouter() || n.SubnetOf(server) >= 0 ||
			slices.ContainsFunc(n.Routes, func(r conf.Route) bool { return r.Dst.Contains(server) })
		if !routed {
			return fmt.Sprintf("dhcp.dns[%d]: the network has no route to %s: write an address on the network, or name a "+
				"\"router\"", i, server)
		}
		if r := n.overlap(netip.PrefixFrom(server, server.BitLen()), reserved); r != nil {
			return fmt.Sprintf("dhcp.dns[%d]: %s is of %s, %s, which machines on the network do not reach: write another "+
				"server", i, server, r.Prefix, r.Of)
		}
	}
	return ""
}
