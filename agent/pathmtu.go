package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/linkmtu"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// checkMapping reports whether this node is connected to the physical network of a localnet network. Without it OVN
// would make the port all the same, and the port would reach nothing.
func (n *node) checkMapping(at *nad.Attachment, s *ovnport.Settings) error {
	network := at.Network
	if network.Topology != netmodel.Localnet {
		return nil
	}
	bridge, mapped := s.Mappings[network.Physical]
	if !mapped {
		missing, wanted := n.uplinks.problem(network.Physical)
		if missing != "" {
			missing = ": " + missing
		}
		hint := "the operator gives nodes a bridge by uplinks of an object PhysicalNetwork; or keep the pod off that node"
		if wanted {
			hint = "the operator corrects the uplinks of the object PhysicalNetwork; or keep the pod off that node"
		}
		const form = "interface %s: network %s: node %s has no bridge for physicalNetworkName %s%s"
		return conf.Errorf(conf.CodeTryAgain, hint, form,
			at.Interface, network.ID(), n.conf.NodeName, network.Physical, missing)
	}
	if !s.HasBridge(bridge) {
		return conf.Errorf(conf.CodeTryAgain, "the operator makes the bridge on that node, or removes the entry from "+
			"external_ids:ovn-bridge-mappings of Open_vSwitch and writes uplinks of an object PhysicalNetwork",
			"interface %s: network %s: node %s has no bridge %s, which ovn-bridge-mappings names for %s",
			at.Interface, network.ID(), n.conf.NodeName, bridge, network.Physical)
	}
	return nil
}

// What a tunnel takes from the underlay's MTU beside the outer IP header: the inner Ethernet header, UDP, and the
// header of Geneve with OVN's option (RFC 8926) or that of VXLAN (RFC 7348).
const (
	geneveOverhead = 14 + 8 + 8 + 8
	vxlanOverhead  = 14 + 8 + 8
)

// leastIPv6 is the smallest MTU of an interface with IPv6 (RFC 8200, section 5): the kernel turns IPv6 off below it.
const leastIPv6 = 1280

// pathMTU is what the agent knows about the MTUs of all nodes.
type pathMTU struct {
	mu       sync.Mutex
	smallest pathmtu.Smallest
}

// now returns the smallest MTUs, as last read; none before the first reading.
func (p *pathMTU) now() pathmtu.Smallest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.smallest
}

// set takes the smallest MTUs, and reports whether they have changed.
func (p *pathMTU) set(smallest pathmtu.Smallest) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = !maps.Equal(p.smallest, smallest)
	p.smallest = smallest
	return changed
}

// mtuOf is the MTU of the interfaces on a network: the network's own, or else the largest that all nodes carry. A
// network whose packets this node does not carry is refused, because they would be lost without a word.
func (n *node) mtuOf(network *netmodel.Network, s *ovnport.Settings) (int, error) {
	largest, err := mtuOnNode(network.Physical, s)
	by := carrier(network.Physical)
	if network.MTU != 0 {
		if err == nil && network.MTU > largest {
			return 0, conf.Errorf(conf.CodeTryAgain, fmt.Sprintf("set \"mtu\" of the network to %d or less, raise the MTU of "+
				"the node's %s, or keep the pod off the node", largest, by),
				"mtu: %d is larger than %d, which is the largest that the %s of node %s carries",
				network.MTU, largest, by, n.conf.NodeName)
		}
		return network.MTU, nil
	}
	if err != nil {
		return 0, err
	}
	limits := pathmtu.Smallest{}
	limits.Add(n.conf.NodeName, pathmtu.Sizes{network.Physical: largest})
	limits.Lower(n.paths.now())
	limit := limits[network.Physical]
	if limit.MTU < leastIPv6 && slices.ContainsFunc(network.Subnets, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return 0, conf.Errorf(conf.CodeTryAgain,
			fmt.Sprintf("raise the MTU of the node's %s, or give the network only IPv4 \"subnets\"", by),
			"subnets: IPv6 needs an MTU of %d, and the largest that the %s of node %s carries is %d",
			leastIPv6, by, limit.Node, limit.MTU)
	}
	return limit.MTU, nil
}

// carrier is what carries the packets of a network, for messages.
func carrier(physical string) string {
	if physical == pathmtu.Overlay {
		return "underlay"
	}
	return "bridge to physical network " + physical
}

// mtuOnNode is the largest MTU that this node has for the overlay or for a physical network.
func mtuOnNode(name string, s *ovnport.Settings) (int, error) {
	if name != pathmtu.Overlay {
		return mtuOfBridge(s.Mappings[name])
	}
	smallest := 0
	for _, text := range strings.Split(s.EncapIP, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return 0, conf.Errorf(conf.CodeTryAgain,
				"ovn-controller needs it too: ovs-vsctl set Open_vSwitch . external_ids:ovn-encap-ip=…",
				"Open vSwitch on this node has no external_ids:ovn-encap-ip to take the MTU from")
		}
		underlay, err := mtuOfAddress(ip)
		if err != nil {
			return 0, err
		}
		if mtu := underlay - overhead(ip, s.EncapType); smallest == 0 || mtu < smallest {
			smallest = mtu
		}
	}
	return smallest, nil
}

// overhead is what the tunnels from an address take from the underlay's MTU. With several types, a node may use
// another one for each node: the largest counts.
func overhead(ip netip.Addr, types string) int {
	outer, inner := 20, geneveOverhead
	if ip.Is6() {
		outer = 40
	}
	if types == "vxlan" {
		inner = vxlanOverhead
	}
	return outer + inner
}

// sizesOf returns the MTUs of this node, as far as they are known.
func sizesOf(s *ovnport.Settings) pathmtu.Sizes {
	sizes := pathmtu.Sizes{}
	names := append(slices.Collect(maps.Keys(s.Mappings)), pathmtu.Overlay)
	for _, name := range names {
		if mtu, err := mtuOnNode(name, s); err == nil {
			sizes[name] = mtu
		}
	}
	return sizes
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
