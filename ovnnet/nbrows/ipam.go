package nbrows

import (
	"net/netip"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// OVN has its own address allocator (IPAM), for ports with "dynamic" addresses on a switch that has
// other_config:subnet. northd stores one bit for each address of this subnet and fills these bits at each recompute. So
// a switch has this key only if the allocator has addresses to allocate, and only if the subnet is not too wide.
const (
	ipamSubnet  = "subnet"
	ipamExclude = "exclude_ips"
)

// WidestOf returns the --widest-ipam-subnet that the controller has written into a network's own switch, or the
// default.
func WidestOf(own *nb.LogicalSwitch) int {
	if bits, err := strconv.Atoi(own.ExternalIDs[KeyWidestIPAM]); err == nil {
		return bits
	}
	return conf.DefaultWidestIPAM
}

// setIPAM makes OVN's allocator serve the addresses of the i-th subnet that excludeSubnets reserves. If there are none,
// the switch does not get the keys.
func setIPAM(row *nb.LogicalSwitch, network *netmodel.Network, i int) {
	subnet := network.Subnets[i]
	hosts := uint64(1)<<(32-subnet.Bits()) - 2
	if leased := network.Leasable(i).Size() + 1 + uint64(len(virtual(network, i))); leased == hosts { // + 1: the gateway
		return
	}
	row.OtherConfig[ipamSubnet], row.OtherConfig[ipamExclude] = subnet.String(), ours(network, i)
}

// NarrowIPAM removes the allocator's keys from a switch whose subnet is wider than the prefix length widest.
func NarrowIPAM(p *Switch, widest int) {
	if subnet, err := netip.ParsePrefix(p.Row.OtherConfig[ipamSubnet]); err == nil && subnet.Bits() < widest {
		delete(p.Row.OtherConfig, ipamSubnet)
		delete(p.Row.OtherConfig, ipamExclude)
	}
}
