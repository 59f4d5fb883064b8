package netmodel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// The topologies of an OVN network.
const (
	Layer2   = "layer2"   // one logical switch
	Layer3   = "layer3"   // a logical switch on each node, joined by a router
	Localnet = "localnet" // a logical switch that is connected to a physical network
)

// Network is an OVN network as its NAD describes it, with defaults. A Network is immutable.
type Network struct {
	Namespace      string // the NAD's
	Name           string // the NAD's
	SharedName     string // of conf.OverlayType: the name that several NADs may share
	Topology       string
	Subnets        []netip.Prefix // at most one per family, IPv4 first; empty: no addresses, MAC only
	NodeSubnetBits []int          // of Layer3: the prefix length of the node subnets of each subnet
	Exclude        []netip.Prefix
	Ranges         []Span       // of dynamic addresses, ascending; a subnet that has none of them is a range
	Gateways       []netip.Addr // one per subnet, in the same order; none of Layer3 and with a PointToPoint subnet
	Router         string       // the full name of the logical router in the configuration; "": none
	Guests         []Guest      // other namespaces that may join the router, on a network of the router's namespace
	SNAT           *bool        // whether the router's gateway hides the pods' addresses; nil: the gateway's default
	Routes         []conf.Route // put into each pod
	MTU            int          // 0: the largest that the underlay allows
	Physical       string       // of Localnet: the name of the physical network in ovn-bridge-mappings
	VLAN           int          // of Localnet; 0: untagged
	// ConflictWait is, of Localnet, how long an ADD waits for other hosts that use the pod's addresses; 0: not at all.
	ConflictWait time.Duration
	// PersistentIPs allows interfaces to keep their addresses and MACs from pod to pod, by an IPAMClaim.
	PersistentIPs bool
	DHCP          *DHCP // nil: OVN answers no DHCP
	// VirtualAddresses are the addresses that several pods may have, ascending. No pod gets one as its own.
	VirtualAddresses []VirtualAddress
	// SubnetsBehind are the subnets that are reached through pods of the network, ascending.
	SubnetsBehind []SubnetBehind

	PortSecurity bool
	// Chained is the CNI list of the plugins behind ours in the NAD's list, in compact JSON; "": there are none. They run
	// on the interface of each pod.
	Chained string
	// SecurityProfiles are the names of the security profiles of all ports on the network, sorted.
	SecurityProfiles []string

	// Node is the node if this is a node's view of a Layer3 network: see ForNode.
	Node  string
	whole *Network // the network of the view
}

// ID is the network's identity in OVN: "<namespace>/<NAD>", or the name that several NADs share, which has no slash.
func (n *Network) ID() string {
	if n.SharedName != "" {
		return n.SharedName
	}
	return n.NAD()
}

// NAD names the NAD that describes the network: "<namespace>/<name>".
func (n *Network) NAD() string { return n.Namespace + "/" + n.Name }

// Gateway is the gateway of the i-th subnet; the zero Addr if it has none.
func (n *Network) Gateway(i int) netip.Addr {
	if i >= len(n.Gateways) {
		return netip.Addr{}
	}
	return n.Gateways[i]
}

// Leasable is the set of addresses of the i-th subnet that can be leased.
func (n *Network) Leasable(i int) Pool { return newPool(n.Subnets[i], n.reserved(i, nil)) }

// Pool is the set of addresses of the i-th subnet that are given to those who request none, without the given ones.
func (n *Network) Pool(i int, without ...netip.Addr) Pool {
	for _, b := range n.SubnetsBehind { // a pod gets an address of via if it requests it
		without = append(slices.Clip(without), b.Via...)
	}
	return newPool(n.Subnets[i], append(n.reserved(i, without), n.beyondRanges(i)...))
}

// reserved are the ranges of the i-th subnet that are not leased.
func (n *Network) reserved(i int, more []netip.Addr) (ranges []Span) {
	subnet := n.Subnets[i]
	for _, e := range n.Exclude {
		if e.Addr().Is4() == subnet.Addr().Is4() {
			ranges = append(ranges, Span{e.Addr(), LastAddr(e)})
		}
	}
	for _, v := range n.VirtualAddresses {
		more = append(slices.Clip(more), v.Address)
	}
	for _, a := range slices.Concat(n.Gateways, more) {
		if subnet.Contains(a) {
			ranges = append(ranges, Span{a, a})
		}
	}
	return ranges
}

// SubnetOf is the index of the subnet that contains the address; -1 if none does.
func (n *Network) SubnetOf(a netip.Addr) int {
	return slices.IndexFunc(n.Subnets, func(s netip.Prefix) bool { return s.Contains(a) })
}

// correctNAD tells the user what to do about an error in a NAD.
const correctNAD = "correct spec.config of the NetworkAttachmentDefinition"

// Bounds on one NAD. They bound the work for one network, and real networks are far below them.
const (
	MaxExclude = 256 // prefixes in excludeSubnets
	MaxRoutes  = 256 // the same as of a pod's own routes
)

// ParseNetwork parses the spec.config of the NAD namespace/name as an OVN network. Every error has code 7 and names the
// key.
func ParseNetwork(namespace, name string, config []byte) (*Network, error) {
	return parseWith(namespace, name, config, parseBounded)
}

// ParseAccepted is ParseNetwork without the bounds: a controller of another version may have accepted the configuration
// by other bounds.
func ParseAccepted(namespace, name string, config []byte) (*Network, error) {
	return parseWith(namespace, name, config, parseKind)
}

// parseOf parses a configuration of that type.
type parseOf func(namespace, name, kind string, config []byte) (*Network, error)

func parseWith(namespace, name string, config []byte, parse parseOf) (*Network, error) {
	kind, _, err := kindAndName(config)
	var n *Network
	if err == nil {
		n, err = parse(namespace, name, kind, config)
	}
	if err != nil {
		return nil, invalid(namespace, name, err)
	}
	return n, nil
}

// invalid is the error for a configuration that is refused.
func invalid(namespace, name string, err error) error {
	return conf.Errorf(conf.CodeInvalidConfig, correctNAD, "network %s/%s: %w", namespace, name, err)
}

func notOVN(kind string) error { return fmt.Errorf("type is %.64q, not %q", kind, conf.NetworkType) }

// parseBounded parses a configuration of that type and refuses it if it exceeds the bounds.
func parseBounded(namespace, name, kind string, config []byte) (*Network, error) {
	if len(config) > MaxNetworkConfig {
		return nil, tooLarge(len(config))
	}
	n, err := parseKind(namespace, name, kind, config)
	if err != nil {
		return nil, err
	}
	if n.Chained != "" {
		if err := checkChained(config); err != nil {
			return nil, err
		}
	}
	return n, n.checkBounds()
}

// parseKind parses a configuration of that type, for one plugin or a list.
func parseKind(namespace, name, kind string, config []byte) (*Network, error) {
	list, err := readList(config)
	if err != nil {
		return nil, err
	}
	if list == nil {
		return parsePlugin(namespace, name, kind, "", config)
	}
	n, err := parsePlugin(namespace, name, kind, list.Name, list.Plugins[0])
	if err != nil {
		return nil, fmt.Errorf("plugins[0]: %w", err)
	}
	n.Chained, err = list.chained()
	return n, err
}

// parsePlugin parses the configuration of our plugin. listName is the name of the list that has it; "": there is none.
func parsePlugin(namespace, name, kind, listName string, config []byte) (*Network, error) {
	n := &Network{Namespace: namespace, Name: name}
	switch kind {
	case conf.NetworkType:
	case conf.OverlayType:
		if key := ownKey(config); key != "" {
			return nil, fmt.Errorf("key %q is of type %s, a network of type %s has none", key, conf.NetworkType, kind)
		}
		n.SharedName = listName
	default:
		return nil, notOVN(kind)
	}
	if err := n.parseKeys(kind, config); err != nil {
		return nil, err
	}
	return n, nil
}

// checkNAD refuses a configuration that names another NAD.
func (n *Network) checkNAD(name string) error {
	if name != "" && name != n.NAD() {
		return fmt.Errorf("netAttachDefName is %.64q, but this is %q", name, n.NAD())
	}
	return nil
}

// checkRole refuses every role but "secondary".
func checkRole(_ *Network, role string) error {
	if role == "" || role == "secondary" {
		return nil
	}
	return fmt.Errorf("role: %.64q is not served, only \"secondary\": "+
		"a pod's first interface stays with the primary network", role)
}

// special lists the addresses that a network cannot have: RFC 6890 (0.0.0.0/8, loopback, link-local, the limited
// broadcast) and multicast.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

func (n *Network) setTopology(topology string) error {
	switch n.Topology = cmp.Or(topology, Layer2); n.Topology {
	case Layer2, Layer3, Localnet:
		return nil
	}
	return fmt.Errorf("topology: %.64q is not known, want %q, %q or %q", topology, Layer2, Layer3, Localnet)
}

func (n *Network) setSubnets(list string) error {
	for _, s := range splitList(list) {
		text, blockBits := s, 0
		if n.Topology == Layer3 {
			var err error
			if text, blockBits, err = cutNodeSubnetBits(s); err != nil {
				return err
			}
		}
		subnet, err := conf.ParsePrefix("subnets", text)
		if err != nil {
			return err
		}
		host := subnet.Addr().BitLen() - max(subnet.Bits(), blockBits)
		if host < 2 && (host == 0 || n.Topology == Layer3) {
			return fmt.Errorf("subnets: %s leaves no room for a gateway and a pod", s)
		}
		if slices.ContainsFunc(special, subnet.Overlaps) {
			return fmt.Errorf("subnets: %s is no unicast network that can be shared", s)
		}
		for _, other := range n.Subnets {
			if other.Addr().Is4() == subnet.Addr().Is4() {
				return fmt.Errorf("subnets: %s and %s are of one family, only one of each is served", other, subnet)
			}
		}
		at := len(n.Subnets)
		if subnet.Addr().Is4() {
			at = 0
		}
		n.Subnets = slices.Insert(n.Subnets, at, subnet)
		if n.Topology == Layer3 {
			if blockBits == 0 {
				blockBits = defaultNodeSubnetBits(subnet)
			}
			if err := checkNodeSubnetBits(subnet, blockBits); err != nil {
				return err
			}
			n.NodeSubnetBits = slices.Insert(n.NodeSubnetBits, at, blockBits)
		}
	}
	if n.Topology == Layer3 && len(n.Subnets) == 0 {
		return errors.New(`subnets: a layer3 network needs some to give each node its subnet, like "10.128.0.0/16/24"`)
	}
	return nil
}

func (n *Network) setGateways(list string) error {
	if n.Topology == Layer3 {
		if list != "" {
			return errors.New("gateway: leave it out, on a layer3 network it is the first address of each node subnet")
		}
		return nil
	}
	if n.pointToPoint() {
		if list != "" {
			return fmt.Errorf("gateway: leave it out, %s has one address for each of two pods", joinWords(n.Subnets, ","))
		}
		return nil
	}
	n.Gateways = make([]netip.Addr, len(n.Subnets))
	for _, g := range splitList(list) {
		addr, err := parseAddr(g)
		if err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		i := n.SubnetOf(addr)
		if i < 0 {
			return fmt.Errorf("gateway: %s is in none of the subnets", g)
		}
		if n.Gateways[i].IsValid() {
			return fmt.Errorf("gateway: %s and %s are in one subnet", n.Gateways[i], addr)
		}
		if err := checkHost(n.Subnets[i], addr); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		n.Gateways[i] = addr
	}
	for i, subnet := range n.Subnets {
		if !n.Gateways[i].IsValid() {
			n.Gateways[i] = subnet.Addr().Next()
		}
	}
	return nil
}

func (n *Network) setExclude(list string) error {
	for _, s := range splitList(list) {
		p, err := conf.ParsePrefix("excludeSubnets", s)
		if err != nil {
			return err
		}
		if i := n.SubnetOf(p.Addr()); i < 0 || p.Bits() < n.Subnets[i].Bits() {
			return fmt.Errorf("excludeSubnets: %s is in none of the subnets", s)
		}
		n.Exclude = append(n.Exclude, p)
	}
	return nil
}

func (n *Network) setPersistent(is bool) error {
	n.PersistentIPs = is
	return nil
}

// checkPersistent refuses addresses that stay from pod to pod where an address belongs to a node.
func (n *Network) checkPersistent() error {
	if n.PersistentIPs && n.Topology == Layer3 {
		return errors.New("allowPersistentIPs: on topology \"layer3\" an address belongs to one node, and the next pod may " +
			"be on another one; use layer2 or localnet")
	}
	return nil
}

// checkRoom refuses a network without an address for a pod.
func (n *Network) checkRoom() error {
	for i, subnet := range n.Subnets {
		none := n.Pool(i).Size() == 0
		if n.Topology == Layer3 { // the pools are those of the node subnets
			none = slices.Contains(n.Exclude, subnet)
		}
		if none {
			return fmt.Errorf("%s: nothing of %s is left for pods", n.boundKey(), subnet)
		}
	}
	return nil
}

// setMTU sets the MTU. The minimum is 68 with IPv4 (RFC 791; hosts must accept 576) and 1280 with IPv6 (RFC 8200,
// section 5).
func (n *Network) setMTU(mtu *int) error {
	if mtu == nil {
		return nil
	}
	least := 68
	if slices.ContainsFunc(n.Subnets, func(s netip.Prefix) bool { return s.Addr().Is6() }) {
		least = 1280
	}
	if *mtu < least || *mtu > 65535 {
		return fmt.Errorf("mtu: %d is not between %d and 65535", *mtu, least)
	}
	n.MTU = *mtu
	return nil
}

// setPortSecurity also refuses a guest that could take addresses of the router's owner.
func (n *Network) setPortSecurity(on *bool) error {
	n.PortSecurity = on == nil || *on
	if n.IsGuest() && !n.PortSecurity {
		return fmt.Errorf("portSecurity: it cannot be false on router %s, which belongs to namespace %s",
			n.Router, RouterNamespace(n.Router))
	}
	return nil
}

// openWord is what `kubectl multinet network show` has of portSecurity.
func (n *Network) openWord() string {
	if n.PortSecurity {
		return ""
	}
	return "off"
}

func (n *Network) setProfiles(list json.RawMessage) (err error) {
	n.SecurityProfiles, err = ParseProfileNames(list)
	return err
}

// parseAddr parses an address and refuses a zone, which has no meaning outside one machine.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%.64q is not an IP address", s)
	}
	return a, nil
}

// splitList splits ovn-kubernetes' comma-separated lists; an empty string is an empty list.
func splitList(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// joinWords writes a list as the keys of a network have it.
func joinWords[T fmt.Stringer](list []T, separator string) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = v.String()
	}
	return strings.Join(words, separator)
}
