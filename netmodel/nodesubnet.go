package netmodel

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// A layer3 network gives each node one node subnet of each subnet, for the pods of the node.

// Default prefix lengths of node subnets, as in ovn-kubernetes.
const (
	nodeSubnetBits4 = 24
	nodeSubnetBits6 = 64
)

func defaultNodeSubnetBits(subnet netip.Prefix) int {
	if subnet.Addr().Is4() {
		return nodeSubnetBits4
	}
	return nodeSubnetBits6
}

// cutNodeSubnetBits splits "10.128.0.0/16/24" into a subnet and the prefix length of its node subnets. bits is 0 if the
// text has no second prefix length.
func cutNodeSubnetBits(s string) (subnet string, bits int, err error) {
	at := strings.LastIndexByte(s, '/')
	if strings.Count(s, "/") < 2 {
		return s, 0, nil
	}
	bits, err = strconv.Atoi(s[at+1:])
	if err != nil || bits < 1 || strconv.Itoa(bits) != s[at+1:] { // Atoi takes +24 and 024
		const form = "subnets: %.64q is not like 10.128.0.0/16/24, a subnet and the prefix length of each node subnet"
		return "", 0, fmt.Errorf(form, s)
	}
	return s[:at], bits, nil
}

func checkNodeSubnetBits(subnet netip.Prefix, bits int) error {
	switch {
	case bits < subnet.Bits():
		const form = "subnets: %s has no node subnets of /%d; write the prefix length of a node subnet behind it, like %s/%d"
		return fmt.Errorf(form, subnet, bits, subnet, min(subnet.Bits()+8, subnet.Addr().BitLen()-2))
	case bits-subnet.Bits() > 32:
		return fmt.Errorf("subnets: %s has more than 2^32 node subnets of /%d", subnet, bits)
	}
	return nil
}

// subnetsText writes the subnets as the key "subnets" has them.
func (n *Network) subnetsText() string {
	words := make([]string, len(n.Subnets))
	for i, s := range n.Subnets {
		words[i] = s.String()
		if n.NodeSubnetBits != nil {
			words[i] += "/" + strconv.Itoa(n.NodeSubnetBits[i])
		}
	}
	return strings.Join(words, ",")
}

// NodeSubnetCount is the number of node subnets in the i-th subnet.
func (n *Network) NodeSubnetCount(i int) uint64 {
	return 1 << (n.NodeSubnetBits[i] - n.Subnets[i].Bits())
}

// NodeSubnet is the k-th node subnet of the i-th subnet; k must be below NodeSubnetCount.
func (n *Network) NodeSubnet(i int, k uint64) netip.Prefix {
	subnet, bits := n.Subnets[i], n.NodeSubnetBits[i]
	b := subnet.Addr().AsSlice()
	for at := bits - 1; k > 0; at-- {
		b[at/8] |= byte(k&1) << (7 - at%8)
		k >>= 1
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, bits)
}

// SkipExcluded counts the node subnets, from the k-th on, in which excludeSubnets leaves no address to lease. It stops
// at the first node subnet with an address to lease, and at the end of the subnet.
func (n *Network) SkipExcluded(i int, k uint64) uint64 {
	passed, _ := n.skipExcluded(i, k)
	return passed
}

// skipExcluded goes from one excluded range to the next. It needs at most two steps for each range, however many node
// subnets the range covers.
func (n *Network) skipExcluded(i int, k uint64) (passed uint64, steps int) {
	ranges, size := mergedSpans(n.Exclude, n.Subnets[i]), n.NodeSubnetCount(i)
	for at := k; at < size; steps++ {
		block := n.NodeSubnet(i, at)
		first, last := block.Addr().Next().Next(), lastLeasable(block) // the first address is the gateway
		j, found := slices.BinarySearchFunc(ranges, first, func(s Span, a netip.Addr) int { return s.First.Compare(a) })
		if !found {
			j--
		}
		if j < 0 || ranges[j].Last.Compare(last) < 0 {
			return at - k, steps
		}
		at = max(at+1, n.nodeSubnetOf(i, ranges[j].Last))
	}
	return size - k, steps
}

// nodeSubnetOf is the index of the node subnet that contains an address of the i-th subnet.
func (n *Network) nodeSubnetOf(i int, a netip.Addr) (k uint64) {
	b := a.AsSlice()
	for at := n.Subnets[i].Bits(); at < n.NodeSubnetBits[i]; at++ {
		k = k<<1 | uint64(b[at/8]>>(7-at%8)&1)
	}
	return k
}

// mergedSpans are the prefixes within a subnet as ranges: ascending, disjoint and not adjacent.
func mergedSpans(prefixes []netip.Prefix, subnet netip.Prefix) []Span {
	var merged []Span
	for _, p := range slices.SortedFunc(slices.Values(prefixes), comparePrefixes) {
		if !subnet.Contains(p.Addr()) {
			continue
		}
		last := LastAddr(p)
		if end := len(merged) - 1; end >= 0 && p.Addr().Compare(merged[end].Last.Next()) <= 0 {
			if last.Compare(merged[end].Last) > 0 {
				merged[end].Last = last
			}
			continue
		}
		merged = append(merged, Span{p.Addr(), last})
	}
	return merged
}

// SwitchName returns the name of the logical switch with the ports of the network's pods.
func (n *Network) SwitchName() string {
	if n.Node == "" {
		return n.ID()
	}
	return n.ID() + "@" + n.Node // no name of a namespace, NAD or node has an @
}

// RouterName is the name of the network's logical router; "" if it has none. A layer3 network without a "router" has a
// router of its own, with a name that no "router" can have.
func (n *Network) RouterName() string {
	if n.Topology == Layer3 && n.Router == "" {
		return n.ID() + ":router"
	}
	return n.Router
}

// NodeSubnetsText lists the node subnets of a node's view.
func (n *Network) NodeSubnetsText() string { return joinWords(n.Subnets, ",") }

// ParseNodeSubnets parses the text of NodeSubnetsText; nil if they are not node subnets of the network.
func (n *Network) ParseNodeSubnets(text string) []netip.Prefix {
	words := strings.Split(text, ",")
	if len(words) != len(n.NodeSubnetBits) {
		return nil
	}
	subnets := make([]netip.Prefix, len(words))
	for i, w := range words {
		b, err := netip.ParsePrefix(w)
		if err != nil || b.Bits() != n.NodeSubnetBits[i] || b.Masked() != b || !n.Subnets[i].Contains(b.Addr()) {
			return nil
		}
		subnets[i] = b
	}
	return subnets
}

// ForNode returns the node's view of a layer3 network. The subnets of the view are the node subnets; the first address
// of each is its gateway, and the route to the rest of the network.
func (n *Network) ForNode(node string, nodeSubnets []netip.Prefix) *Network {
	v := *n
	v.Node, v.whole, v.Subnets, v.Gateways, v.Routes = node, n, nodeSubnets, nil, nil
	for _, b := range nodeSubnets {
		v.Gateways = append(v.Gateways, b.Addr().Next())
	}
	for i, subnet := range n.Subnets {
		if subnet != nodeSubnets[i] {
			v.Routes = append(v.Routes, conf.Route{Dst: subnet, GW: v.Gateways[i]})
		}
	}
	for _, r := range n.Routes {
		if r.Scope == conf.ScopeLink {
			v.Routes = append(v.Routes, r)
			continue
		}
		i := slices.IndexFunc(n.Subnets, func(s netip.Prefix) bool { return s.Addr().Is4() == r.Dst.Addr().Is4() })
		v.Routes = append(v.Routes, conf.Route{Dst: r.Dst, GW: v.Gateways[i]})
	}
	return &v
}

// NodeSubnetsOf returns, for each subnet, the node subnet that contains one of the addresses; the zero Prefix if none
// does.
func (n *Network) NodeSubnetsOf(addrs []netip.Addr) []netip.Prefix {
	subnets := make([]netip.Prefix, len(n.Subnets))
	for _, a := range addrs {
		if i := n.SubnetOf(a); i >= 0 && i < len(n.NodeSubnetBits) {
			subnets[i] = netip.PrefixFrom(a, n.NodeSubnetBits[i]).Masked()
		}
	}
	return subnets
}
