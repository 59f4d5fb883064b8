package netmodel

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// A network of Layer3 gives each node one block of each subnet, for the pods there.

// Prefix lengths of blocks where the subnet does not say, as in ovn-kubernetes.
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

// cutBlockBits takes "10.128.0.0/16/24" apart; bits is 0 without the last part.
func cutNodeSubnetBits(s string) (subnet string, bits int, err error) {
	at := strings.LastIndexByte(s, '/')
	if strings.Count(s, "/") < 2 {
		return s, 0, nil
	}
	bits, err = strconv.Atoi(s[at+1:])
	if err != nil || bits < 1 || strconv.Itoa(bits) != s[at+1:] { // Atoi takes +24 and 024
		return "", 0, fmt.Errorf("subnets: %.64q is not like 10.128.0.0/16/24, a subnet and the prefix length of each node's block", s)
	}
	return s[:at], bits, nil
}

func checkNodeSubnetBits(subnet netip.Prefix, bits int) error {
	switch {
	case bits < subnet.Bits():
		return fmt.Errorf("subnets: %s has no blocks of /%d; write the prefix length of a node's block behind it, like %s/%d",
			subnet, bits, subnet, min(subnet.Bits()+8, subnet.Addr().BitLen()-2))
	case bits-subnet.Bits() > 32:
		return fmt.Errorf("subnets: %s has more than 2^32 blocks of /%d", subnet, bits)
	}
	return nil
}

// subnetsText writes the subnets as the key has them.
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

// Blocks is how many blocks the i-th subnet has.
func (n *Network) NodeSubnetCount(i int) uint64 {
	return 1 << (n.NodeSubnetBits[i] - n.Subnets[i].Bits())
}

// Block returns one of them; k must be below Blocks.
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

// SkipExcluded counts the blocks from the k-th on of which excludeSubnets leaves no address to lease, up to the first block
// that has one. It does not go round: the count ends at the last block of the subnet.
func (n *Network) SkipExcluded(i int, k uint64) uint64 {
	passed, _ := n.skipExcluded(i, k)
	return passed
}

// skipExcluded goes from one excluded range to the next: it takes two steps for each at most, however many blocks a
// range covers.
func (n *Network) skipExcluded(i int, k uint64) (passed uint64, steps int) {
	ranges, size := mergedSpans(n.Exclude, n.Subnets[i]), n.NodeSubnetCount(i)
	for at := k; at < size; steps++ {
		block := n.NodeSubnet(i, at)
		first, last := block.Addr().Next().Next(), lastLeasable(block) // the block's first address is the gateway
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

// blockOf is the index of the block that holds an address of the i-th subnet.
func (n *Network) nodeSubnetOf(i int, a netip.Addr) (k uint64) {
	b := a.AsSlice()
	for at := n.Subnets[i].Bits(); at < n.NodeSubnetBits[i]; at++ {
		k = k<<1 | uint64(b[at/8]>>(7-at%8)&1)
	}
	return k
}

// mergedSpans are the prefixes within a subnet as ranges: ascending, disjoint, and no two next to each other.
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

// Switch is the name of the logical switch that pods of the network are on.
func (n *Network) SwitchName() string {
	if n.Node == "" {
		return n.ID()
	}
	return n.ID() + "@" + n.Node // a sign that is in no name of a namespace, NAD or node
}

// RouterName is the name of the router that joins the blocks; "" when the network has none. A network without a "router"
// has one to itself, whose name no "router" can have.
func (n *Network) RouterName() string {
	if n.Topology == Layer3 && n.Router == "" {
		return n.ID() + ":router"
	}
	return n.Router
}

// NodeSubnetsText lists a node's blocks, of its view.
func (n *Network) NodeSubnetsText() string { return joinWords(n.Subnets, ",") }

// ParseNodeSubnets reads what NodeSubnetsText wrote; nil when they are no blocks of the network.
func (n *Network) ParseNodeSubnets(text string) []netip.Prefix {
	words := strings.Split(text, ",")
	if len(words) != len(n.NodeSubnetBits) {
		return nil
	}
	blocks := make([]netip.Prefix, len(words))
	for i, w := range words {
		b, err := netip.ParsePrefix(w)
		if err != nil || b.Bits() != n.NodeSubnetBits[i] || b.Masked() != b || !n.Subnets[i].Contains(b.Addr()) {
			return nil
		}
		blocks[i] = b
	}
	return blocks
}

// ForNode is the network as the pods of a node have it, where its blocks are the subnets and the first address of each the
// gateway. The rest of the network is behind that.
func (n *Network) ForNode(node string, blocks []netip.Prefix) *Network {
	v := *n
	v.Node, v.whole, v.Subnets, v.Gateways, v.Routes = node, n, blocks, nil, nil
	for _, b := range blocks {
		v.Gateways = append(v.Gateways, b.Addr().Next())
	}
	for i, subnet := range n.Subnets {
		if subnet != blocks[i] {
			v.Routes = append(v.Routes, conf.Route{Dst: subnet, GW: v.Gateways[i]})
		}
	}
	for _, r := range n.Routes {
		i := slices.IndexFunc(n.Subnets, func(s netip.Prefix) bool { return s.Addr().Is4() == r.Dst.Addr().Is4() })
		v.Routes = append(v.Routes, conf.Route{Dst: r.Dst, GW: v.Gateways[i]})
	}
	return &v
}

// NodeSubnetsOf returns the block of each subnet that one of the addresses is in; the zero Prefix where none is.
func (n *Network) NodeSubnetsOf(addrs []netip.Addr) []netip.Prefix {
	blocks := make([]netip.Prefix, len(n.Subnets))
	for _, a := range addrs {
		if i := n.SubnetOf(a); i >= 0 && i < len(n.NodeSubnetBits) {
			blocks[i] = netip.PrefixFrom(a, n.NodeSubnetBits[i]).Masked()
		}
	}
	return blocks
}
