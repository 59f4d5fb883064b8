package netmodel

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Canonical is the whole configuration with its defaults, in one order: equal networks have equal texts. ParseNetwork
// with the same NAD returns the same network. A node's view has the configuration of the whole network.
func (n *Network) Canonical() string {
	if n.whole != nil {
		return n.whole.Canonical()
	}
	text := []byte("{")
	for i := range networkKeys {
		k := &networkKeys[i]
		if v := k.stored(n); v != nil {
			text = fmt.Appendf(text, "%q:%s,", k.name, mustMarshal(v))
		}
	}
	text[len(text)-1] = '}' // each network has a type
	if n.Chained != "" {
		text = withChained(text, n.Chained)
	}
	return string(text)
}

// mustMarshal writes strings, numbers, addresses and lists that were parsed.
func mustMarshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("netmodel: " + err.Error()) // impossible
	}
	return text
}

// sortedRoutes are the routes by destination.
func (n *Network) sortedRoutes() []conf.Route {
	routes := slices.Clone(n.Routes)
	slices.SortFunc(routes, func(a, b conf.Route) int { return comparePrefixes(a.Dst, b.Dst) })
	return routes
}

// guestsText is the sorted list of the guests.
func (n *Network) guestsText() []guestJSON {
	var list []guestJSON
	for _, g := range n.Guests {
		subnets := slices.Clone(g.Subnets)
		slices.SortFunc(subnets, comparePrefixes)
		list = append(list, guestJSON{g.Namespace, joinWords(subnets, ",")})
	}
	slices.SortFunc(list, func(a, b guestJSON) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return list
}

// Revision is a hash of the configuration: equal configurations have the same revision.
func (n *Network) Revision() string {
	sum := sha256.Sum256([]byte(n.Canonical()))
	return hex.EncodeToString(sum[:8])
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// CheckEqual compares two configurations of a network. The error names the first key that differs.
func (n *Network) CheckEqual(other *Network) error {
	n, other = cmp.Or(n.whole, n), cmp.Or(other.whole, other)
	for i := range networkKeys {
		k := &networkKeys[i]
		if a, b := k.word(n), k.word(other); a != b {
			return fmt.Errorf("%s: %s is not %s", k.name, b, a)
		}
	}
	if n.Chained != other.Chained {
		return fmt.Errorf("plugins: %s is not %s", cmp.Or(other.Chained, "(none)"), cmp.Or(n.Chained, "(none)"))
	}
	return nil
}

// CheckChange refuses a change of the configuration that would disturb the pods on the network. The error names the
// key. A change of the plugins behind ours concerns new pods only.
func (n *Network) CheckChange(to *Network) error {
	for i := range networkKeys {
		k := &networkKeys[i]
		if k.keeps != nil {
			if err := k.keeps(n, to); err != nil {
				return err
			}
		} else if was, is := k.word(n), k.word(to); k.change == refusedChange && was != is {
			return fmt.Errorf("%s: %s cannot become %s", k.name, was, is)
		}
	}
	return nil
}

// keepSubnets lets subnets grow, and refuses every other change.
func (n *Network) keepSubnets(to *Network) error {
	for i, subnet := range n.Subnets {
		j := to.sameFamily(subnet)
		if j < 0 {
			return fmt.Errorf("subnets: %s cannot be removed", subnet)
		}
		grown := to.Subnets[j]
		if grown.Bits() > subnet.Bits() || !grown.Contains(subnet.Addr()) {
			return fmt.Errorf("subnets: %s cannot become %s, which does not hold all of it", subnet, grown)
		}
		if PointToPoint(subnet) && grown != subnet { // a pod may have what would be the network address
			return fmt.Errorf("subnets: %s cannot become %s, a subnet of two addresses cannot grow", subnet, grown)
		}
		if n.Topology == Layer3 && n.NodeSubnetBits[i] != to.NodeSubnetBits[j] {
			return fmt.Errorf("subnets: the node subnets of %s cannot become /%d, they are /%d",
				subnet, to.NodeSubnetBits[j], n.NodeSubnetBits[i])
		}
	}
	if n.Topology == Layer3 { // a MAC belongs to a node switch, and its node subnets stay
		if len(to.Subnets) != len(n.Subnets) {
			return fmt.Errorf("subnets: %s cannot become %s, nodes have their subnets", n.subnetsText(), to.subnetsText())
		}
		return nil
	}
	return n.checkMACs(to)
}

// sameFamily is the index of the subnet of another subnet's family; -1 if there is none.
func (n *Network) sameFamily(as netip.Prefix) int {
	return slices.IndexFunc(n.Subnets, func(s netip.Prefix) bool { return s.Addr().Is4() == as.Addr().Is4() })
}

// keepGateways refuses another gateway of a subnet that stays.
func (n *Network) keepGateways(to *Network) error {
	for i, subnet := range n.Subnets {
		was, is := n.Gateway(i), to.Gateway(to.sameFamily(subnet))
		if was != is && n.pointToPoint() != to.pointToPoint() {
			return fmt.Errorf("subnets: %s cannot become %s, with a subnet of two addresses a network has no gateway",
				n.subnetsText(), to.subnetsText())
		} else if was != is {
			hint := ""
			if to.SharedName == "" { // a shared network has no such key
				hint = fmt.Sprintf("; write \"gateway\": %q to keep it", was)
			}
			return fmt.Errorf("gateway: %s cannot become %s%s", was, is, hint)
		}
	}
	return nil
}

// checkMACs refuses a change after which a new lease could have a MAC that is in use. A MAC contains the lower 32 bits
// of the lease. That is unique while all leases are of one family, and in IPv6 have the same upper 96 bits.
func (n *Network) checkMACs(to *Network) error {
	if len(to.Subnets) == 0 { // then n has none either
		return nil
	}
	first := to.Subnets[0]
	if len(n.Subnets) == 0 {
		return fmt.Errorf("subnets: %s cannot be given to a network that has none", first)
	}
	was := n.Subnets[0]
	if was.Addr().Is4() != first.Addr().Is4() {
		return fmt.Errorf("subnets: %s cannot be added, only an IPv6 subnet beside an IPv4 one can", first)
	}
	if was.Addr().Is6() && was.Addr() != first.Addr() {
		return fmt.Errorf("subnets: %s cannot become %s, which begins elsewhere", was, first)
	}
	return nil
}
