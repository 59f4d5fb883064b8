package netmodel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Router is a logical router that the controller's --config describes: a router of the whole cluster, or a router of a
// namespace that has a gateway to a physical network. Other routers of namespaces need no description.
type Router struct {
	Name       string           // the full name: "/core", or "<namespace>/core"
	Namespaces map[string]Grant // the namespaces whose networks may join; "*": all that are not listed
	// The following fields describe the gateway. They are empty if there is no gateway.

	// Join are the subnets between router and gateway, of the families of External. Router and gateway have their first
	// two addresses.
	Join []netip.Prefix
	// External are the gateway's addresses with the prefix lengths of their subnets; at most one per family, IPv4 first.
	External []netip.Prefix
	NextHops []netip.Addr // one per External; the zero Addr: none
	Physical string
	VLAN     int
	Nodes    string        // a label selector
	SNAT     bool          // the default of networks
	Pools    []AddressPool // by name
	// Forwards says how many ports of the gateway's own address each namespace may have. It has no addresses of a pool.
	Forwards AddressPool
}

// IsExternal reports whether an address is the gateway's own on the physical network.
func (r *Router) IsExternal(a netip.Addr) bool {
	return slices.ContainsFunc(r.External, func(p netip.Prefix) bool { return p.Addr() == a })
}

// HasGateway reports whether the router has a gateway to a physical network.
func (r *Router) HasGateway() bool { return len(r.External) > 0 }

// HasInbound reports whether pods may get outside addresses, or ports of the gateway's own address.
func (r *Router) HasInbound() bool {
	return len(r.Forwards.Limits) > 0 ||
		slices.ContainsFunc(r.Pools, func(p AddressPool) bool { return len(p.Limits) > 0 })
}

// RouterJoin is the router's address on the switch between router and gateway.
func (r *Router) RouterJoin(i int) netip.Prefix { return nth(r.Join[i], 1) }

// GatewayJoin is the gateway's address on that switch.
func (r *Router) GatewayJoin(i int) netip.Prefix { return nth(r.Join[i], 2) }

func nth(p netip.Prefix, n uint64) netip.Prefix {
	return netip.PrefixFrom(addTo(p.Addr(), n), p.Bits())
}

// CheckSubnet refuses a network's subnet that overlaps a subnet of the router.
func (r *Router) CheckSubnet(subnet netip.Prefix) error {
	for i := range r.Join {
		if r.Join[i].Overlaps(subnet) {
			return fmt.Errorf("router: subnet %s overlaps joinSubnet %s of router %s", subnet, r.Join[i], r.Name)
		}
		if r.External[i].Overlaps(subnet) {
			return fmt.Errorf("router: subnet %s overlaps externalSubnet %s of router %s",
				subnet, r.External[i].Masked(), r.Name)
		}
	}
	return nil
}

// defaultJoin are the default subnets between router and gateway, of RFC 6598 and RFC 4193. Only router and gateway
// have addresses there.
var defaultJoin = []netip.Prefix{netip.MustParsePrefix("100.64.0.0/24"), netip.MustParsePrefix("fd98::/64")}

type controllerJSON struct {
	Routers          map[string]json.RawMessage `json:"routers"`          // of routerJSON
	PhysicalNetworks map[string]json.RawMessage `json:"physicalNetworks"` // of lists of physicalGrantJSON
	SecurityProfiles map[string]json.RawMessage `json:"securityProfiles"` // of SecurityProfile
	PortSecurityOff  json.RawMessage            `json:"portSecurityOff"`  // of portSecurityOffJSON
	Limits           map[string]json.RawMessage `json:"limits"`           // of cost.Cost
	Uplinks          map[string]json.RawMessage `json:"uplinks"`          // of lists of Uplink; only of objects
}

type routerJSON struct {
	Namespaces map[string]json.RawMessage `json:"namespaces"` // of grantJSON

	JoinSubnet      string `json:"joinSubnet"`
	ExternalSubnet  string `json:"externalSubnet"`
	ExternalAddress string `json:"externalAddress"`
	NextHop         string `json:"nextHop"`
	PhysicalNetwork string `json:"physicalNetworkName"`
	VLANID          *int   `json:"vlanID"`
	GatewayNodes    string `json:"gatewayNodes"`
	SNAT            *bool  `json:"snat"`

	AddressPools map[string]json.RawMessage `json:"addressPools"` // of addressPoolJSON
	PortForwards map[string]json.RawMessage `json:"portForwards"` // of numbers
}

// hasGateway reports whether the configuration has any key of a gateway.
func (raw *routerJSON) hasGateway() bool {
	text := raw.JoinSubnet + raw.ExternalSubnet + raw.ExternalAddress + raw.NextHop +
		raw.PhysicalNetwork + raw.GatewayNodes
	return text != "" || raw.VLANID != nil || raw.SNAT != nil ||
		len(raw.AddressPools)+len(raw.PortForwards) > 0
}

// ParseRouters parses the section routers of the controller's --config, in JSON, into routers by name. Every error
// names the router and the key.
func ParseRouters(config []byte) (map[string]*Router, error) {
	var c controllerJSON
	if err := conf.DecodeObject(config, &c, nil); err != nil {
		return nil, err
	}
	routers := map[string]*Router{}
	for _, name := range sortedKeys(c.Routers) {
		if err := checkRouterName(name); err != nil {
			return nil, err
		}
		r, err := parseRouter(name, c.Routers[name])
		if err != nil {
			return nil, fmt.Errorf("router %s: %w", name, err)
		}
		for _, other := range routers {
			if err := r.checkBeside(other); err != nil {
				return nil, fmt.Errorf("router %s: %w", name, err)
			}
		}
		routers[name] = r
	}
	return routers, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// checkRouterName refuses a text that is not the full name of a router.
func checkRouterName(name string) error {
	if label.MatchString(name) {
		const form = `routers: whose router is %q? Write "/%s" for one of the whole cluster, or "<namespace>/%s"`
		return fmt.Errorf(form, name, name, name)
	}
	if _, err := routerName("", name); err != nil {
		return fmt.Errorf(`routers: %.64q is no name: "/core" or "<namespace>/core", with %s`, name, labelForm)
	}
	return nil
}

func parseRouter(name string, text []byte) (*Router, error) {
	var raw routerJSON
	if err := conf.DecodeObject(text, &raw, nil); err != nil {
		return nil, err
	}
	grants, err := parseGrants(raw.Namespaces)
	if err != nil {
		return nil, err
	}
	if RouterNamespace(name) == "" && !raw.hasGateway() {
		return &Router{Name: name, Namespaces: grants}, nil
	}
	r := &Router{
		Name: name, Namespaces: grants,
		Nodes: raw.GatewayNodes, SNAT: raw.SNAT == nil || *raw.SNAT, Physical: raw.PhysicalNetwork,
	}
	if strings.TrimSpace(r.Nodes) == "" { // an empty selector selects all nodes
		return nil, errors.New("gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway=")
	}
	if err := checkPhysical(r.Physical); err != nil {
		return nil, err
	}
	if r.VLAN, err = checkVLAN(raw.VLANID); err != nil {
		return nil, err
	}
	for _, step := range []func(*routerJSON) error{
		r.setExternal, r.setNextHops, r.setJoin, r.setAddressPools, r.setForwards,
	} {
		if err := step(&raw); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// checkBeside refuses an address that another gateway or its pools have on the same VLAN of a physical network.
func (r *Router) checkBeside(other *Router) error {
	if r.Physical != other.Physical || r.VLAN != other.VLAN {
		return nil
	}
	for _, e := range r.External {
		if other.IsExternal(e.Addr()) {
			return fmt.Errorf("externalAddress: %s is that of router %s", e.Addr(), other.Name)
		}
	}
	return r.checkPoolsBeside(other)
}

// parseSubnets parses a list of subnets, at most one of each family, IPv4 first.
func parseSubnets(key, text string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, s := range splitList(text) {
		p, err := conf.ParsePrefix(key, s)
		if err != nil {
			return nil, err
		}
		if p.Addr().BitLen()-p.Bits() < 2 {
			return nil, fmt.Errorf("%s: %s leaves no room for two addresses", key, s)
		}
		if slices.ContainsFunc(special, p.Overlaps) {
			return nil, fmt.Errorf("%s: %s is no unicast network that can be shared", key, s)
		}
		for _, other := range list {
			if sameFamily(other.Addr(), p.Addr()) {
				return nil, fmt.Errorf("%s: %s and %s are of one family, only one of each is served", key, other, p)
			}
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
	return list, nil
}

func sameFamily(a, b netip.Addr) bool { return a.Is4() == b.Is4() }

// hostsIn parses a list of addresses, at most one in each subnet, in the order of the subnets.
func hostsIn(key, text string, subnets []netip.Prefix) ([]netip.Addr, error) {
	hosts := make([]netip.Addr, len(subnets))
	for _, s := range splitList(text) {
		a, err := parseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		i := slices.IndexFunc(subnets, func(p netip.Prefix) bool { return p.Contains(a) })
		if i < 0 {
			return nil, fmt.Errorf("%s: %s is not in externalSubnet %s", key, s, joinWords(subnets, ","))
		}
		if hosts[i].IsValid() {
			return nil, fmt.Errorf("%s: %s and %s are in one subnet", key, hosts[i], a)
		}
		if err := checkHost(subnets[i], a); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		hosts[i] = a
	}
	return hosts, nil
}

func (r *Router) setExternal(raw *routerJSON) error {
	subnets, err := parseSubnets("externalSubnet", raw.ExternalSubnet)
	if err != nil {
		return err
	}
	if len(subnets) == 0 {
		return errors.New("externalSubnet is missing: the subnet of the physical network, like 192.0.2.0/24")
	}
	hosts, err := hostsIn("externalAddress", raw.ExternalAddress, subnets)
	if err != nil {
		return err
	}
	for i, a := range hosts {
		if !a.IsValid() {
			return fmt.Errorf("externalAddress: none is in %s; give the gateway an address that nobody else has", subnets[i])
		}
		r.External = append(r.External, netip.PrefixFrom(a, subnets[i].Bits()))
	}
	return nil
}

func (r *Router) setNextHops(raw *routerJSON) error {
	subnets := make([]netip.Prefix, len(r.External))
	for i, e := range r.External {
		subnets[i] = e.Masked()
	}
	var err error
	if r.NextHops, err = hostsIn("nextHop", raw.NextHop, subnets); err != nil {
		return err
	}
	for i, a := range r.NextHops {
		if a == r.External[i].Addr() {
			return fmt.Errorf("nextHop: %s is the gateway's own address", a)
		}
	}
	return nil
}

func (r *Router) setJoin(raw *routerJSON) error {
	given, err := parseSubnets("joinSubnet", raw.JoinSubnet)
	if err != nil {
		return err
	}
	for _, g := range given {
		if !slices.ContainsFunc(r.External, func(e netip.Prefix) bool { return sameFamily(g.Addr(), e.Addr()) }) {
			return fmt.Errorf("joinSubnet: there is no externalSubnet of the family of %s", g)
		}
	}
	for _, e := range r.External {
		family := func(p netip.Prefix) bool { return sameFamily(p.Addr(), e.Addr()) }
		from := given
		if len(given) == 0 {
			from = defaultJoin
		}
		i := slices.IndexFunc(from, family)
		if i < 0 {
			return fmt.Errorf("joinSubnet: there is none of the family of %s", e.Masked())
		}
		if from[i].Overlaps(e) {
			return fmt.Errorf("joinSubnet: %s overlaps externalSubnet %s", from[i], e.Masked())
		}
		r.Join = append(r.Join, from[i])
	}
	return nil
}
