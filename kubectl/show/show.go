// Package show owns the output of kubectl multinet: it combines the NADs with the rows of the Northbound database (NB),
// and writes networks and sandboxes as tables or as JSON; it may change nothing.
package show

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// Network is one network in the output.
type Network struct {
	Name           string       `json:"name"` // "<namespace>/<NAD>", or the common name of ovn-kubernetes' NADs
	Ready          bool         `json:"ready"`
	Reason         string       `json:"reason,omitempty"` // why the network is not ready, or what does not work on it
	Topology       string       `json:"topology,omitempty"`
	Physical       string       `json:"physicalNetworkName,omitempty"`
	VLAN           int          `json:"vlanID,omitempty"`
	Router         string       `json:"router,omitempty"`
	Gateway        *Gateway     `json:"gateway,omitempty"` // of the router
	MTU            int          `json:"mtu,omitempty"`     // absent: the nodes decide
	SmallestMTU    *SmallestMTU `json:"smallestMTU,omitempty"`
	PortSecurity   *bool        `json:"portSecurity,omitempty"`
	Subnets        []Subnet     `json:"subnets"`
	ExcludeSubnets []string     `json:"excludeSubnets,omitempty"`
	Routes         []conf.Route `json:"routes,omitempty"`
	NADs           []NAD        `json:"networkAttachmentDefinitions"`
	Ports          []Port       `json:"ports"`
	// VirtualAddresses are those that Services have on the network.
	VirtualAddresses []VirtualAddress `json:"virtualAddresses,omitempty"`
	// IPAMClaims have addresses of the network, and no pod has their port.
	IPAMClaims []IPAMClaim `json:"ipamClaims,omitempty"`

	// Config is the accepted configuration with its defaults, as spec.config.
	Config json.RawMessage `json:"config,omitempty"`

	network       *netmodel.Network
	pools         []netmodel.Pool // leasable addresses, by subnet, on a network without node subnets
	perNodeSubnet []uint64        // leasable addresses of one node subnet, by subnet
}

// SmallestMTU is the largest MTU that all nodes carry, and a node that carries no larger one.
type SmallestMTU struct {
	MTU  int    `json:"mtu"`
	Node string `json:"node"`
}

// Subnet is a subnet of a network, with the numbers of its used and free leasable addresses. On a layer3 network it is
// a node subnet (with Node), or a whole subnet (with NodeSubnets).
type Subnet struct {
	Node        string       `json:"node,omitempty"`
	Subnet      netip.Prefix `json:"subnet"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	NodeSubnets *NodeSubnets `json:"blocks,omitempty"`
	Used        uint64       `json:"used"`
	Free        uint64       `json:"free"`

	uncounted bool // nobody counted what is used and free
}

// NodeSubnets has the numbers of used and free node subnets of a subnet.
type NodeSubnets struct {
	PrefixLength int    `json:"prefixLength"`
	Used         uint64 `json:"used"`
	Free         uint64 `json:"free"`
}

// Gateway is a router's gateway to a physical network.
type Gateway struct {
	Addresses []string `json:"addresses"`
	NextHops  []string `json:"nextHops,omitempty"`
	Physical  string   `json:"physicalNetworkName"`
	VLAN      int      `json:"vlanID,omitempty"`
	MTU       int      `json:"mtu,omitempty"`
	Selector  string   `json:"gatewayNodes"`
	Nodes     []string `json:"nodes"` // by priority; the first node that is alive is the active node
	SNAT      []SNAT   `json:"snat"`
}

// SNAT is a subnet of the network whose source addresses the gateway translates.
type SNAT struct {
	Subnet string `json:"subnet"`
	As     string `json:"as"`
}

// NAD is a NetworkAttachmentDefinition of a network, with the state that the controller wrote.
type NAD struct {
	Name   string     `json:"name"`
	Ready  bool       `json:"ready"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

// Port is a port on a network. A port without a pod is not ours.
type Port struct {
	Name      string       `json:"name"`
	Namespace string       `json:"namespace,omitempty"`
	Pod       string       `json:"pod,omitempty"`
	Interface string       `json:"interface,omitempty"`
	Node      string       `json:"node,omitempty"`
	MAC       string       `json:"mac,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Up        bool         `json:"up"`
	// Outside are the port's addresses on the physical network of the router's gateway.
	Outside []OutsideAddress `json:"outsideAddresses,omitempty"`
	// Conflicts are the addresses of the port that hosts on the physical network use, too.
	Conflicts []Conflict `json:"addressConflicts,omitempty"`
}

// Conflict is an address that a host on the physical network uses, too.
type Conflict struct {
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"` // of that host
}

// OutsideAddress is an outside address of a pod.
type OutsideAddress struct {
	Address netip.Addr `json:"address"`
	Kind    string     `json:"kind"` // "floating" or "egress"
	Pool    string     `json:"pool"`
}

// VirtualAddress is an address that a Service has.
type VirtualAddress struct {
	Address netip.Addr `json:"address"`
	Service string     `json:"service"`
}

// IPAMClaim is what an IPAMClaim has.
type IPAMClaim struct {
	Name      string       `json:"name"` // "<namespace>/<name>"
	MAC       string       `json:"mac"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// SetVirtualAddresses sets the virtual addresses of services, which are in use.
func (n *Network) SetVirtualAddresses(list []services.Claimed) {
	for _, c := range list {
		for i, pool := range n.pools {
			if s := &n.Subnets[i]; pool.Contains(c.Address) {
				s.Used, s.Free = s.Used+1, s.Free-min(s.Free, 1)
			}
		}
		n.VirtualAddresses = append(n.VirtualAddresses, VirtualAddress{c.Address, conf.OneLine(c.Service, conf.MaxReason)})
	}
}

// SetOutside sets the outside addresses of the network's ports. byUser has all of the network's router.
func (n *Network) SetOutside(byUser map[outside.User]*outside.Entry) {
	for i := range n.Ports {
		p := &n.Ports[i]
		e := byUser[outside.User{Namespace: p.Namespace, Pod: p.Pod, Interface: p.Interface}]
		if e == nil {
			continue
		}
		for _, a := range e.Addresses {
			p.Outside = append(p.Outside, OutsideAddress{a.Addr, string(e.Kind), a.Pool})
		}
	}
}

// Networks combines the NADs and the networks in NB. The result is sorted by name. If a network is in NB, the accepted
// configuration is shown; else the configuration of the NAD.
func Networks(nads []*netmodel.NAD, views []view.Network) []Network {
	byName := map[string]*Network{}
	for i := range views {
		v := &views[i]
		n := empty(v.ID)
		n.fill(v)
		byName[v.ID] = n
	}
	slices.SortFunc(nads, func(a, b *netmodel.NAD) int { return strings.Compare(a.ID(), b.ID()) })
	for _, nad := range nads {
		id := idOf(nad, views)
		if id == "" {
			continue
		}
		n := byName[id]
		if n == nil {
			n = empty(id)
			if c, err := nad.Network(); err == nil {
				n.configure(c)
			}
			byName[id] = n
		}
		n.NADs = append(n.NADs, nadOf(nad))
	}
	list := make([]Network, 0, len(byName))
	for _, n := range byName {
		n.judge()
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b Network) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// empty returns a network with empty lists, which JSON shows as [] and not as null.
func empty(name string) *Network {
	none := &netmodel.Network{PortSecurity: true}
	return &Network{Name: name, Subnets: []Subnet{}, NADs: []NAD{}, Ports: []Port{}, network: none}
}

// idOf returns the ID of a NAD's network, or "". If the NAD is no longer valid, its network is the network that has
// accepted the NAD.
func idOf(nad *netmodel.NAD, views []view.Network) string {
	id, err := nad.NetworkID()
	if err == nil && (id != "" || nad.State == "") {
		return id
	}
	for i := range views {
		if slices.Contains(views[i].Accepted, nad.ID()) {
			return views[i].ID
		}
	}
	if nad.State != "" {
		return nad.ID()
	}
	return ""
}

// notSeen is the reason of what has no state.
const notSeen = "the controller has not seen it: is ovn-multinet-controller running?"

func nadOf(nad *netmodel.NAD) NAD {
	state, ok := nad.NetworkState()
	if !ok {
		return NAD{Name: nad.ID(), Reason: notSeen}
	}
	n := NAD{Name: nad.ID(), Ready: state.Ready, Reason: state.Reason}
	if !state.Since.IsZero() {
		n.Since = &state.Since
	}
	return n
}

func (n *Network) fill(v *view.Network) {
	if v.Config != nil {
		n.configure(v.Config)
	}
	if v.Smallest.MTU != 0 {
		n.SmallestMTU = &SmallestMTU{v.Smallest.MTU, v.Smallest.Node}
	}
	for i, u := range v.Usage {
		if u.Node == "" {
			n.Subnets[i].Used, n.Subnets[i].Free = u.Used, u.Free
			continue
		}
		n.addBlock(&u)
	}
	if g := v.Gateway; g != nil {
		n.Gateway = &Gateway{
			Addresses: g.Addresses, NextHops: g.NextHops, Physical: g.Physical, VLAN: g.VLAN, MTU: g.MTU, Selector: g.Selector,
			Nodes: append([]string{}, g.Nodes...), SNAT: []SNAT{},
		}
		for _, s := range v.SNAT {
			n.Gateway.SNAT = append(n.Gateway.SNAT, SNAT(s))
		}
	}
	for i := range v.Ports {
		n.Ports = append(n.Ports, portOf(&v.Ports[i]))
	}
	for _, r := range v.Reserved {
		n.IPAMClaims = append(n.IPAMClaims, IPAMClaim{
			conf.OneLine(r.IPAMClaim, conf.MaxReason), conf.OneLine(r.MAC, conf.MaxReason), r.Addresses,
		})
	}
}

func portOf(p *view.Port) Port {
	port := Port{
		Name: p.Name, Namespace: p.Namespace, Pod: p.Pod, Interface: p.Interface, Node: p.Node,
		Addresses: p.Addresses, Up: p.Up,
	}
	if p.MAC != nil {
		port.MAC = p.MAC.String()
	}
	for _, c := range p.Conflicts {
		port.Conflicts = append(port.Conflicts, Conflict{c.Addr, c.MAC.String()})
	}
	return port
}

func (n *Network) configure(c *netmodel.Network) {
	n.Topology, n.Router, n.MTU, n.Routes, n.PortSecurity = c.Topology, c.Router, c.MTU, c.Routes, &c.PortSecurity
	n.Physical, n.VLAN, n.Config, n.network = c.Physical, c.VLAN, json.RawMessage(c.Canonical()), c
	for i, subnet := range c.Subnets {
		s := Subnet{Subnet: subnet, Gateway: c.Gateway(i), Free: c.Pool(i).Size()}
		if c.Topology == netmodel.Layer3 {
			s.NodeSubnets = &NodeSubnets{PrefixLength: c.NodeSubnetBits[i], Free: c.NodeSubnetCount(i)}
			n.perNodeSubnet = append(n.perNodeSubnet, perNodeSubnet(c, i))
			s.Free = c.NodeSubnetCount(i) * n.perNodeSubnet[i]
		} else {
			n.pools = append(n.pools, c.Pool(i))
		}
		n.Subnets = append(n.Subnets, s)
	}
	for _, e := range c.Exclude {
		n.ExcludeSubnets = append(n.ExcludeSubnets, e.String())
	}
}

// perNodeSubnet returns the number of leasable addresses of a node subnet of the i-th subnet. The result is small
// enough that the sum over all node subnets does not overflow.
func perNodeSubnet(c *netmodel.Network, i int) uint64 {
	whole := *c
	whole.Exclude = nil
	view := whole.ForNode("-", nodeSubnetsOf(&whole))
	return min(view.Pool(i).Size(), math.MaxUint64/c.NodeSubnetCount(i))
}

// nodeSubnetsOf returns the first node subnet of each subnet.
func nodeSubnetsOf(c *netmodel.Network) []netip.Prefix {
	nodeSubnets := make([]netip.Prefix, len(c.Subnets))
	for i := range nodeSubnets {
		nodeSubnets[i] = c.NodeSubnet(i, 0)
	}
	return nodeSubnets
}

// addBlock adds the node subnet of a node.
func (n *Network) addBlock(u *view.Usage) {
	for i := range n.Subnets {
		if s := &n.Subnets[i]; s.NodeSubnets != nil && s.Subnet.Contains(u.Subnet.Addr()) {
			// Free subtracts excluded addresses only for node subnets that a node has.
			s.Used, s.Free = s.Used+u.Used, s.Free-n.perNodeSubnet[i]+u.Free
			s.NodeSubnets.Used, s.NodeSubnets.Free = s.NodeSubnets.Used+1, s.NodeSubnets.Free-1
		}
	}
	n.Subnets = append(n.Subnets, Subnet{Node: u.Node, Subnet: u.Subnet, Gateway: u.Gateway, Used: u.Used, Free: u.Free})
}

// judge sets Ready and Reason from the states of the NADs.
func (n *Network) judge() {
	if len(n.NADs) == 0 {
		n.Reason = "no NetworkAttachmentDefinition is left of it, it goes with its last port"
		return
	}
	i := slices.IndexFunc(n.NADs, func(nad NAD) bool { return !nad.Ready })
	if n.Ready = i < 0; n.Ready {
		i = max(0, slices.IndexFunc(n.NADs, func(nad NAD) bool { return nad.Reason != "" }))
	}
	n.Reason = n.NADs[i].Reason
	if len(n.NADs) > 1 && n.Reason != "" {
		n.Reason = n.NADs[i].Name + ": " + n.Reason
	}
	if n.Ready && n.Reason == "" {
		n.Reason = n.lacks()
	}
}

// lacks returns what the rows of a network that is there as described say of its use; "": nothing is wrong.
func (n *Network) lacks() string {
	if g := n.Gateway; g != nil && len(g.Nodes) == 0 {
		return fmt.Sprintf("the gateway of router %s has no node: label one with %s", n.Router, g.Selector)
	}
	for i := range n.Subnets {
		if s := &n.Subnets[i]; s.Node == "" && !s.uncounted && s.Free == 0 && s.Used > 0 {
			return fmt.Sprintf("no address of %s is free", s.Subnet)
		}
	}
	return ""
}

// Find returns the network with a name, or nil. The name is "<namespace>/<NAD>", the name of a NAD in the namespace, or
// the common name of several NADs.
func Find(list []Network, namespace, name string) *Network {
	ids := []string{name}
	if !strings.Contains(name, "/") {
		ids = []string{namespace + "/" + name, name}
	}
	for _, id := range ids {
		for i := range list {
			n := &list[i]
			if n.Name == id || slices.ContainsFunc(n.NADs, func(nad NAD) bool { return nad.Name == id }) {
				return n
			}
		}
	}
	return nil
}
