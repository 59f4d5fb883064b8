package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Bounds on the key subnetsBehind. Each next hop is a route in the router, and flows on each node.
const (
	MaxSubnetsBehind = 16
	MaxVia           = 8 // next hops of one subnet
)

// SubnetBehind is a subnet behind pods of a network: its hosts are reached through these pods.
type SubnetBehind struct {
	Subnet netip.Prefix
	// Via are the addresses of the pods, in the order of the configuration. They share the traffic, or, with Standby, the
	// first one whose pod is ready gets all of it.
	Via       []netip.Addr
	Standby   bool
	Namespace string // of the pods
}

// subnetBehindJSON is one entry of the key subnetsBehind.
type subnetBehindJSON struct {
	Subnet    string `json:"subnet"`
	Via       string `json:"via"`
	Namespace string `json:"namespace,omitempty"`
	Standby   bool   `json:"standby,omitempty"`
}

func (n *Network) setSubnetsBehind(list []json.RawMessage) error {
	if n.Topology == Layer3 && len(list) > 0 {
		return errors.New("subnetsBehind: leave it out, the nodes of a layer3 network have a subnet each, and the pod " +
			"with an address of via could not move between them")
	}
	for i, text := range list {
		key := fmt.Sprintf("subnetsBehind[%d]", i)
		var raw subnetBehindJSON
		if err := conf.DecodeObject(text, &raw, nil); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		b, err := n.subnetBehind(key, raw)
		if err != nil {
			return err
		}
		n.SubnetsBehind = append(n.SubnetsBehind, b)
	}
	of := map[netip.Addr]string{} // a pod has one namespace
	for _, b := range n.SubnetsBehind {
		for _, a := range b.Via {
			if other := of[a]; other != "" && other != b.Namespace {
				return fmt.Errorf("subnetsBehind: via %s is for pods of namespace %s and of namespace %s", a, other, b.Namespace)
			}
			of[a] = b.Namespace
		}
	}
	slices.SortFunc(n.SubnetsBehind, func(a, b SubnetBehind) int { return a.Subnet.Addr().Compare(b.Subnet.Addr()) })
	for i := 1; i < len(n.SubnetsBehind); i++ {
		if a, b := n.SubnetsBehind[i-1].Subnet, n.SubnetsBehind[i].Subnet; a.Overlaps(b) {
			return fmt.Errorf("subnetsBehind: %s and %s overlap", a, b)
		}
	}
	return nil
}

func (n *Network) subnetBehind(key string, raw subnetBehindJSON) (b SubnetBehind, err error) {
	b = SubnetBehind{Standby: raw.Standby, Namespace: raw.Namespace}
	if b.Subnet, err = conf.ParsePrefix(key+".subnet", raw.Subnet); err != nil {
		return b, err
	}
	if slices.ContainsFunc(special, b.Subnet.Overlaps) {
		return b, fmt.Errorf("%s.subnet: %s is no unicast network that can be shared", key, b.Subnet)
	}
	if i := slices.IndexFunc(n.Subnets, b.Subnet.Overlaps); i >= 0 {
		return b, fmt.Errorf("%s.subnet: %s overlaps %s of this network, whose addresses are on the link", key, b.Subnet,
			n.Subnets[i])
	}
	if b.Namespace == "" {
		b.Namespace = n.Namespace
	}
	if !label.MatchString(b.Namespace) {
		return b, fmt.Errorf("%s.namespace: %.64q is no namespace", key, raw.Namespace)
	}
	for _, text := range splitList(raw.Via) {
		a, err := parseAddr(text)
		if err == nil {
			err = n.checkVia(&b, a)
		}
		if err != nil {
			return b, fmt.Errorf("%s.via: %w", key, err)
		}
		b.Via = append(b.Via, a)
	}
	switch {
	case len(b.Via) == 0 || len(b.Via) > MaxVia:
		return b, fmt.Errorf(`%s.via: %d addresses, write 1 to %d addresses of pods, like "10.1.0.5"`,
			key, len(b.Via), MaxVia)
	case b.Standby && len(b.Via) == 1:
		return b, fmt.Errorf("%s.standby: leave it out, or write a second address into via", key)
	}
	return b, nil
}

// checkVia refuses an address that no pod can have, and an address that a pod of another namespace may have.
func (n *Network) checkVia(b *SubnetBehind, a netip.Addr) error {
	if a.Is4() != b.Subnet.Addr().Is4() {
		return fmt.Errorf("%s is not of the family of %s", a, b.Subnet)
	}
	if slices.Contains(b.Via, a) {
		return fmt.Errorf("%s is there twice", a)
	}
	if v := n.virtualAddress(a); v != nil {
		if v.Namespace != b.Namespace {
			return fmt.Errorf("%s is a virtual address of pods of namespace %s, write this namespace", a, v.Namespace)
		}
		return nil
	}
	return n.CheckFixed(a)
}

// virtualAddress returns the entry of a virtual address of pods; nil: it is none.
func (n *Network) virtualAddress(a netip.Addr) *VirtualAddress {
	i := slices.IndexFunc(n.VirtualAddresses, func(v VirtualAddress) bool { return v.Address == a })
	if i < 0 {
		return nil
	}
	return &n.VirtualAddresses[i]
}

// IsVirtual reports whether an address is a virtual address of pods.
func (n *Network) IsVirtual(a netip.Addr) bool { return n.virtualAddress(a) != nil }

// Routed are the subnets that a router reaches by the network: its own, and those behind its pods.
func (n *Network) Routed() []netip.Prefix {
	list := slices.Clip(n.Subnets)
	for _, b := range n.SubnetsBehind {
		list = append(list, b.Subnet)
	}
	return list
}

// CheckNamespace refuses an address that belongs to pods of another namespace, because a subnet is behind it. "" is the
// namespace of no pod.
func (n *Network) CheckNamespace(a netip.Addr, namespace string) error {
	for _, b := range n.SubnetsBehind {
		if b.Namespace != namespace && slices.Contains(b.Via, a) {
			return fmt.Errorf("address %s is for pods of namespace %s: subnetsBehind of network %s leads %s there",
				a, b.Namespace, n.ID(), b.Subnet)
		}
	}
	return nil
}

// ForOthers returns the routes of the network that are for other pods than one with these addresses: the pod itself is
// their next hop, or has their destination behind it.
func (n *Network) ForOthers(addresses []netip.Addr) (routes []conf.Route) {
	for _, r := range n.Routes {
		own := slices.ContainsFunc(n.SubnetsBehind, func(b SubnetBehind) bool {
			within := b.Subnet.Bits() <= r.Dst.Bits() && b.Subnet.Contains(r.Dst.Addr())
			return within && slices.ContainsFunc(b.Via, func(a netip.Addr) bool { return slices.Contains(addresses, a) })
		})
		if own || slices.Contains(addresses, r.GW) {
			routes = append(routes, r)
		}
	}
	return routes
}

// Secured returns a value of a port's column port_security with the subnets that are behind the addresses in it. It has
// a MAC, and then addresses and subnets. namespace is that of the pod.
func (n *Network) Secured(namespace, value string) string {
	words := strings.Fields(value)
	if len(words) < 2 { // all addresses pass, or none
		return value
	}
	words = slices.DeleteFunc(words, func(word string) bool {
		p, err := netip.ParsePrefix(word)
		return err == nil && !p.Addr().IsLinkLocalUnicast() // link-local ones are for guests
	})
	for _, b := range n.SubnetsBehind {
		if b.Namespace == namespace && slices.ContainsFunc(b.Via, func(a netip.Addr) bool {
			return slices.Contains(words, a.String())
		}) {
			words = append(words, b.Subnet.String())
		}
	}
	return strings.Join(words, " ")
}

// subnetsBehindJSON is the canonical form of subnetsBehind.
func (n *Network) subnetsBehindJSON() any {
	var list []subnetBehindJSON
	for _, b := range n.SubnetsBehind {
		list = append(list, subnetBehindJSON{b.Subnet.String(), joinWords(b.Via, ","), b.Namespace, b.Standby})
	}
	return list
}

// subnetBehindWords writes the subnets behind pods for a reader.
func (n *Network) subnetBehindWords() string {
	var words []string
	for _, b := range n.SubnetsBehind {
		words = append(words, b.Words())
	}
	return strings.Join(words, ", ")
}

// Words says what leads to the subnet: "10.60.0.0/16 via 10.1.0.5, else 10.1.0.6 (pods of core)".
func (b *SubnetBehind) Words() string {
	between := " and "
	if b.Standby {
		between = ", else "
	}
	return fmt.Sprintf("%s via %s (pods of %s)", b.Subnet, joinWords(b.Via, between), b.Namespace)
}
