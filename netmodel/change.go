package netmodel

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// canonicalJSON is a network's configuration with its defaults, in one order: equal networks have equal texts. The text
// is a valid spec.config.
type canonicalJSON struct {
	Type           string       `json:"type"`
	Name           string       `json:"name,omitempty"`
	Topology       string       `json:"topology"`
	Subnets        string       `json:"subnets,omitempty"`
	ExcludeSubnets string       `json:"excludeSubnets,omitempty"`
	Gateway        string       `json:"gateway,omitempty"`
	Router         string       `json:"router,omitempty"` // the full name
	RouterGuests   []guestJSON  `json:"routerGuests,omitempty"`
	SNAT           *bool        `json:"snat,omitempty"`
	Routes         []conf.Route `json:"routes,omitempty"`
	MTU            int          `json:"mtu,omitempty"`
	PortSecurity   *bool        `json:"portSecurity,omitempty"`
	Profiles       []string     `json:"securityProfiles,omitempty"`
	Physical       string       `json:"physicalNetworkName,omitempty"`
	VLAN           int          `json:"vlanID,omitempty"`
}

// Canonical is the whole configuration with its defaults. ParseNetwork with the same NAD returns the same network. A
// node's view has the configuration of the whole network.
func (n *Network) Canonical() string {
	if n.whole != nil {
		return n.whole.Canonical()
	}
	exclude, routes := slices.Clone(n.Exclude), slices.Clone(n.Routes)
	slices.SortFunc(exclude, comparePrefixes)
	slices.SortFunc(routes, func(a, b conf.Route) int { return comparePrefixes(a.Dst, b.Dst) })
	c := canonicalJSON{
		Type: conf.NetworkType, Topology: n.Topology, Subnets: n.subnetsText(), ExcludeSubnets: joinWords(exclude, ","),
		MTU: n.MTU, Physical: n.Physical, VLAN: n.VLAN,
	}
	if n.SharedName != "" {
		c.Type, c.Name = conf.OverlayType, n.SharedName // this type has no other keys
	} else {
		c.Gateway, c.Router, c.RouterGuests, c.SNAT = joinWords(n.Gateways, ","), n.Router, n.guestsText(), n.SNAT
		c.Routes, c.PortSecurity, c.Profiles = routes, &n.PortSecurity, n.SecurityProfiles
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic("netmodel: " + err.Error()) // impossible: strings, numbers and addresses
	}
	return string(text)
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
	var a, b canonicalJSON
	for _, c := range []struct {
		n    *Network
		into *canonicalJSON
	}{{n, &a}, {other, &b}} {
		if err := json.Unmarshal([]byte(c.n.Canonical()), c.into); err != nil {
			return err
		}
	}
	word := func(v any) string {
		text, _ := json.Marshal(v)
		return strings.TrimSuffix(string(text), "null")
	}
	for _, k := range []struct{ key, a, b string }{
		{"type", a.Type, b.Type}, {"name", a.Name, b.Name}, {"topology", a.Topology, b.Topology},
		{"subnets", a.Subnets, b.Subnets}, {"excludeSubnets", a.ExcludeSubnets, b.ExcludeSubnets},
		{"gateway", a.Gateway, b.Gateway}, {"router", a.Router, b.Router},
		{"routerGuests", word(a.RouterGuests), word(b.RouterGuests)},
		{"snat", word(a.SNAT), word(b.SNAT)}, {"routes", word(a.Routes), word(b.Routes)},
		{"physicalNetworkName", a.Physical, b.Physical}, {"vlanID", word(a.VLAN), word(b.VLAN)},
		{"mtu", word(a.MTU), word(b.MTU)}, {"portSecurity", word(a.PortSecurity), word(b.PortSecurity)},
		{"securityProfiles", word(a.Profiles), word(b.Profiles)},
	} {
		if k.a != k.b {
			return fmt.Errorf("%s: %s is not %s", k.key, cmp.Or(k.b, "(none)"), cmp.Or(k.a, "(none)"))
		}
	}
	return nil
}

// CheckChange refuses a change of the configuration that would disturb the pods on the network. The error names the
// key. A change of excludeSubnets, routes, mtu, portSecurity and securityProfiles concerns new pods only. A router, its
// guests and snat do not concern the ports. A subnet may grow. The VLAN of a physical network stays: the ports' row
// keys are made from it.
func (n *Network) CheckChange(to *Network) error {
	if n.Topology != to.Topology {
		return fmt.Errorf("topology: %s cannot become %s", n.Topology, to.Topology)
	}
	if n.Physical != to.Physical {
		return fmt.Errorf("physicalNetworkName: %s cannot become %s", n.Physical, to.Physical)
	}
	if n.VLAN != to.VLAN {
		return fmt.Errorf("vlanID: %s cannot become %s", vlanWord(n.VLAN), vlanWord(to.VLAN))
	}
	for i, subnet := range n.Subnets {
		j := slices.IndexFunc(to.Subnets, func(s netip.Prefix) bool { return s.Addr().Is4() == subnet.Addr().Is4() })
		if j < 0 {
			return fmt.Errorf("subnets: %s cannot be removed", subnet)
		}
		grown := to.Subnets[j]
		if grown.Bits() > subnet.Bits() || !grown.Contains(subnet.Addr()) {
			return fmt.Errorf("subnets: %s cannot become %s, which does not hold all of it", subnet, grown)
		}
		if n.Topology == Layer3 && n.NodeSubnetBits[i] != to.NodeSubnetBits[j] {
			return fmt.Errorf("subnets: the node subnets of %s cannot become /%d, they are /%d",
				subnet, to.NodeSubnetBits[j], n.NodeSubnetBits[i])
		}
		if was, is := n.Gateway(i), to.Gateway(j); was != is {
			hint := ""
			if to.SharedName == "" { // a shared network has no such key
				hint = fmt.Sprintf("; write \"gateway\": %q to keep it", was)
			}
			return fmt.Errorf("gateway: %s cannot become %s%s", was, is, hint)
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

func vlanWord(vlan int) string {
	if vlan == 0 {
		return "(" + untagged + ")"
	}
	return strconv.Itoa(vlan)
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
