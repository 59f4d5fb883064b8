package nbrows

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

// WidestOf is the width that the controller has written into a network's own switch.
func WidestOf(own *nb.LogicalSwitch) int {
	if bits, err := strconv.Atoi(own.ExternalIDs[KeyWidestIPAM]); err == nil {
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

// NarrowIPAM takes a subnet that is wider than that from OVN's allocator.
func NarrowIPAM(p *Switch, widest int) {
	if subnet, err := netip.ParsePrefix(p.Row.OtherConfig[ipamSubnet]); err == nil && subnet.Bits() < widest {
		delete(p.Row.OtherConfig, ipamSubnet)
		delete(p.Row.OtherConfig, ipamExclude)
	}
}
