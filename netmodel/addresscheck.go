package netmodel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// CheckFixed refuses an address that no pod may request.
func (n *Network) CheckFixed(a netip.Addr) error {
	i := n.SubnetOf(a)
	if i < 0 {
		where := "the subnets"
		if n.Node != "" {
			where = "node " + n.Node + "'s subnets"
		}
		subnets := cmp.Or(joinWords(n.Subnets, ","), "(none)")
		return fmt.Errorf("address %s is outside %s %s of network %s", a, where, subnets, n.ID())
	}
	if err := checkHost(n.Subnets[i], a); err != nil {
		return err
	}
	if a == n.Gateway(i) {
		return fmt.Errorf("address %s is the gateway of network %s", a, n.ID())
	}
	for _, e := range n.Exclude {
		if e.Contains(a) {
			return fmt.Errorf("address %s is excluded by excludeSubnets %s of network %s", a, e, n.ID())
		}
	}
	if n.IsVirtual(a) {
		return fmt.Errorf("address %s is in virtualAddresses of network %s", a, n.ID())
	}
	return nil
}

// CheckVirtual refuses an address that no Service may have. On a layer3 network these are also the network address, the
// gateway and the broadcast address of each node subnet, also of one that no node has yet.
func (n *Network) CheckVirtual(a netip.Addr) error {
	if err := n.CheckFixed(a); err != nil {
		return err
	}
	if err := n.CheckNamespace(a, ""); err != nil {
		return err
	}
	if n.Topology != Layer3 {
		return nil
	}
	block := netip.PrefixFrom(a, n.NodeSubnetBits[n.SubnetOf(a)]).Masked()
	if a == block.Addr().Next() {
		return fmt.Errorf("address %s is the gateway of node subnet %s of network %s", a, block, n.ID())
	}
	return checkHost(block, a)
}

// PointToPoint reports whether a subnet has two addresses (RFC 3021, RFC 6164). Pods have both of them, so a network
// with such a subnet has no gateway and no router.
func PointToPoint(subnet netip.Prefix) bool { return subnet.Addr().BitLen()-subnet.Bits() == 1 }

func (n *Network) pointToPoint() bool { return slices.ContainsFunc(n.Subnets, PointToPoint) }

// checkHost refuses the addresses of a subnet that no host may have: RFC 1122 section 3.2.1.3 (network and broadcast)
// and RFC 4291 section 2.6.1 (subnet-router anycast). A subnet of two addresses has neither.
func checkHost(subnet netip.Prefix, a netip.Addr) error {
	if PointToPoint(subnet) {
		return nil
	}
	if a == subnet.Addr() {
		return fmt.Errorf("address %s is the network address of %s", a, subnet)
	}
	if a.Is4() && a == LastAddr(subnet) {
		return fmt.Errorf("address %s is the broadcast address of %s", a, subnet)
	}
	return nil
}
