package ovnnet

import (
	"net/netip"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// OVN has an address allocator of its own (IPAM), for ports with "dynamic" addresses on a switch that has
// other_config:subnet. northd keeps a bit for each address of that subnet and fills it at each recompute, so only a
// switch on which the allocator could hand out an address gets one, and only a subnet of bounded width.
const (
	ipamSubnet  = "subnet"
	ipamExclude = "exclude_ips"
)

// SetWidestIPAM sets the prefix length of the widest subnet that OVN's allocator serves. Only the controller needs
// it: an agent makes parts of networks that the controller has accepted, and whose switch says it.
func (n *Networks) SetWidestIPAM(bits int) { n.widestIPAM = bits }

// markIPAM tells agents the width where they cannot know it.
func (n *Networks) markIPAM(own *part, network *netmodel.Network) {
	if network.Topology == netmodel.Layer3 && len(network.Exclude) > 0 && n.widestIPAM != conf.DefaultWidestIPAM {
		own.sw.ExternalIDs[keyWidestIPAM] = strconv.Itoa(n.widestIPAM)
	}
}

// widestOf is the width that the controller has written into a network's own switch.
func widestOf(own *nb.LogicalSwitch) int {
	if bits, err := strconv.Atoi(own.ExternalIDs[keyWidestIPAM]); err == nil {
		return bits
	}
	return conf.DefaultWidestIPAM
}

// setIPAM has OVN's allocator serve what excludeSubnets leaves of the i-th subnet; without such addresses the
// allocator has nothing to do.
func setIPAM(row *nb.LogicalSwitch, network *netmodel.Network, i int) {
	subnet := network.Subnets[i]
	hosts := uint64(1)<<(32-subnet.Bits()) - 2
	if leased := network.Pool(i).Size() + 1; leased == hosts { // and the gateway
		return
	}
	row.OtherConfig[ipamSubnet], row.OtherConfig[ipamExclude] = subnet.String(), ours(network, i)
}

// boundIPAM refuses a network on whose switch OVN's allocator would serve a subnet that is too wide. A network accepted
// under an earlier bound keeps its ports, but OVN's allocator no longer serves it. Such a network can also leave its
// router: otherwise it would stay on a router that it may not join any more.
func (n *Networks) boundIPAM(have *found, want *rows, network *netmodel.Network) error {
	wide := n.tooWide(network)
	if !wide.IsValid() {
		return nil
	}
	was, is := inForceOf(have.own), network.Revision()
	if was == nil || was.Revision() != is && was.WithoutRouter().Revision() != is {
		return refusedf("excludeSubnets: %s is wider than /%d, and the controller's --widest-ipam-subnet lets OVN hand out addresses "+
			"of no wider one: narrow it, or leave excludeSubnets out", wide, n.widestIPAM)
	}
	for _, p := range want.parts() {
		narrowIPAM(p, n.widestIPAM)
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

// narrowIPAM takes a subnet that is wider than that from OVN's allocator.
func narrowIPAM(p *part, widest int) {
	if subnet, err := netip.ParsePrefix(p.sw.OtherConfig[ipamSubnet]); err == nil && subnet.Bits() < widest {
		delete(p.sw.OtherConfig, ipamSubnet)
		delete(p.sw.OtherConfig, ipamExclude)
	}
}
