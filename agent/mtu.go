package agent

import (
	"errors"
	"net/netip"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/linkmtu"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// checkMapping tells whether this node is connected to the physical network of a localnet network. Without it OVN
// would make the port all the same, and the port would reach nothing.
func checkMapping(at *nad.Attachment, s *ovnport.Settings, node string) error {
	n := at.Network
	if n.Topology != netmodel.Localnet {
		return nil
	}
	bridge, mapped := s.Mappings[n.Physical]
	if !mapped {
		return conf.Errorf(conf.CodeTryAgain,
			"ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-mappings="+n.Physical+":BRIDGE on that node, "+
				"or keep the pod off it",
			"interface %s: network %s: node %s has no bridge for physicalNetworkName %s",
			at.Interface, n.ID(), node, n.Physical)
	}
	if !s.HasBridge(bridge) {
		return conf.Errorf(conf.CodeTryAgain, "ovs-vsctl add-br "+bridge+" on that node, "+
			"with the NIC to the physical network, or correct external_ids:ovn-bridge-mappings",
			"interface %s: network %s: node %s has no bridge %s, which ovn-bridge-mappings names for %s",
			at.Interface, n.ID(), node, bridge, n.Physical)
	}
	return nil
}

// geneveOverhead is what a Geneve tunnel takes from the underlay's MTU (RFC 8926): the inner Ethernet header, the
// Geneve header with OVN's option, UDP, and the outer IP header of the endpoint's family.
const geneveOverhead = 14 + 8 + 8 + 8

// mtuOf is the network's MTU. The default is the underlay's MTU less the tunnel's headers, or for a localnet network
// the MTU of its bridge on this node.
func mtuOf(n *netmodel.Network, s *ovnport.Settings) (int, error) {
	if n.MTU != 0 {
		return n.MTU, nil
	}
	if n.Topology == netmodel.Localnet {
		return mtuOfBridge(s.Mappings[n.Physical])
	}
	ip, err := netip.ParseAddr(s.EncapIP)
	if err != nil {
		return 0, conf.Errorf(conf.CodeTryAgain,
			"ovn-controller needs it too: ovs-vsctl set Open_vSwitch . external_ids:ovn-encap-ip=…",
			"Open vSwitch on this node has no external_ids:ovn-encap-ip to take the MTU from")
	}
	outer := 20
	if ip.Is6() {
		outer = 40
	}
	underlay, err := mtuOfAddress(ip)
	if err != nil {
		return 0, err
	}
	return underlay - outer - geneveOverhead, nil
}

func mtuOfAddress(ip netip.Addr) (int, error) {
	mtu, err := linkmtu.OfAddress(ip)
	if errors.Is(err, linkmtu.ErrNoInterface) {
		return 0, conf.Errorf(conf.CodeTryAgain,
			"set \"mtu\" in the network's configuration, or give the address to an interface of this node",
			"no interface of this node has the address %s of external_ids:ovn-encap-ip, to take the MTU from", ip)
	}
	return mtu, err
}

func mtuOfBridge(name string) (int, error) {
	mtu, err := linkmtu.OfInterface(name)
	if err != nil {
		return 0, conf.Errorf(conf.CodeTryAgain,
			"set \"mtu\" in the network's configuration, or have ovs-vswitchd make the bridge's own interface",
			"no MTU to take from bridge %s of this node: %w", name, err)
	}
	return mtu, nil
}
