package ovnnet

import (
	"net/netip"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// setIPAM writes widestIPAM into the network's own switch if agents need the value and it is not the default. It takes
// subnets that are too wide from OVN's allocator.
func (n *Networks) setIPAM(wanted *networkRows, network *netmodel.Network) {
	if network.Topology == netmodel.Layer3 && len(network.Exclude) > 0 && n.widestIPAM != conf.DefaultWidestIPAM {
		wanted.own.Row.ExternalIDs[nbrows.KeyWidestIPAM] = strconv.Itoa(n.widestIPAM)
	}
	if n.tooWide(network).IsValid() {
		for _, p := range wanted.switches() {
			nbrows.NarrowIPAM(p, n.widestIPAM)
		}
	}
}

// boundIPAM refuses a network on whose switch OVN's allocator would serve a subnet that is too wide. A network that was
// accepted under an earlier bound keeps its ports, but OVN's allocator no longer serves it. Such a network can also be
// detached from its router: otherwise it would stay on a router that it is no longer allowed to join.
func (n *Networks) boundIPAM(have *present, network *netmodel.Network) error {
	wide := n.tooWide(network)
	if !wide.IsValid() {
		return nil
	}
	was, is := have.config, network.Revision()
	if was == nil || was.Revision() != is && was.WithoutRouter().Revision() != is {
		return nbrows.Refusedf(
			"excludeSubnets: %s is wider than /%d, and the controller's --widest-ipam-subnet lets OVN hand out addresses "+
				"of no wider one: narrow it, or leave excludeSubnets out", wide, n.widestIPAM)
	}
	return nil
}

// tooWide returns a subnet that is too wide for OVN's allocator; of a layer3 network the first node subnet of that
// subnet. The zero Prefix means that there is none.
func (n *Networks) tooWide(network *netmodel.Network) netip.Prefix {
	for i, subnet := range network.Subnets {
		on := subnet
		if network.Topology == netmodel.Layer3 {
			on = network.NodeSubnet(i, 0)
		}
		if !on.Addr().Is4() || on.Bits() >= n.widestIPAM {
			continue
		}
		for _, e := range network.Exclude {
			if e.Overlaps(subnet) {
				return on
			}
		}
	}
	return netip.Prefix{}
}
