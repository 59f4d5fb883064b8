package ovnnet

import (
	"net/netip"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// markIPAM tells agents the width where they cannot know it.
func (n *Networks) markIPAM(own *nbrows.Switch, network *netmodel.Network) {
	if network.Topology == netmodel.Layer3 && len(network.Exclude) > 0 && n.widestIPAM != conf.DefaultWidestIPAM {
		own.Row.ExternalIDs[nbrows.KeyWidestIPAM] = strconv.Itoa(n.widestIPAM)
	}
}

// boundIPAM refuses a network on whose switch OVN's allocator would serve a subnet that is too wide. A network accepted
// under an earlier bound keeps its ports, but OVN's allocator no longer serves it. Such a network can also leave its
// router: otherwise it would stay on a router that it may not join any more.
func (n *Networks) boundIPAM(have *present, want *networkRows, network *netmodel.Network) error {
	wide := n.tooWide(network)
	if !wide.IsValid() {
		return nil
	}
	was, is := acceptedOf(have.own), network.Revision()
	if was == nil || was.Revision() != is && was.WithoutRouter().Revision() != is {
		return nbrows.Refusedf("excludeSubnets: %s is wider than /%d, and the controller's --widest-ipam-subnet lets OVN hand out addresses "+
			"of no wider one: narrow it, or leave excludeSubnets out", wide, n.widestIPAM)
	}
	for _, p := range want.switches() {
		nbrows.NarrowIPAM(p, n.widestIPAM)
	}
	return nil
}

// tooWide returns the subnet, of a layer3 network the first block, that OVN's allocator does not serve for its
// width; the zero Prefix when there is none.
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
