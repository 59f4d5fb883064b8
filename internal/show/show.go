// Package show owns what kubectl multinet prints: it joins what NADs say with what is in the database, and writes it as
// a table or as JSON; it may change nothing.
package show

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Network is one network, as it is printed.
type Network struct {
	Name           string       `json:"name"` // "<namespace>/<NAD>", or the name that ovn-kubernetes' NADs share
	Ready          bool         `json:"ready"`
	Reason         string       `json:"reason,omitempty"` // why not
	Topology       string       `json:"topology,omitempty"`
	Physical       string       `json:"physicalNetworkName,omitempty"`
	VLAN           int          `json:"vlanID,omitempty"`
	Router         string       `json:"router,omitempty"`
	Gateway        *Gateway     `json:"gateway,omitempty"` // of the router
	MTU            int          `json:"mtu,omitempty"`     // absent: what the underlay leaves
	PortSecurity   *bool        `json:"portSecurity,omitempty"`
	Subnets        []Subnet     `json:"subnets"`
	ExcludeSubnets []string     `json:"excludeSubnets,omitempty"`
	Routes         []conf.Route `json:"routes,omitempty"`
	NADs           []NAD        `json:"networkAttachmentDefinitions"`
	Ports          []Port       `json:"ports"`

	perBlock []uint64 // by subnet
}

// Subnet is a subnet of a network, with how many of its leasable addresses are used and free. Of layer3 it is a node's
// block, or the whole that has blocks.
type Subnet struct {
	Node    string       `json:"node,omitempty"`
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
	Blocks  *Blocks      `json:"blocks,omitempty"`
	Used    uint64       `json:"used"`
	Free    uint64       `json:"free"`
}

// Blocks are how many blocks of a subnet nodes have and how many are left.
type Blocks struct {
	PrefixLength int    `json:"prefixLength"`
	Used         uint64 `json:"used"`
	Free         uint64 `json:"free"`
}

// Gateway is the way from a router to a provider's network.
type Gateway struct {
	Addresses []string `json:"addresses"`
	NextHops  []string `json:"nextHops,omitempty"`
	Physical  string   `json:"physicalNetworkName"`
	VLAN      int      `json:"vlanID,omitempty"`
	Selector  string   `json:"gatewayNodes"`
	Nodes     []string `json:"nodes"` // the first that is alive has it
	SNAT      []SNAT   `json:"snat"`
}

// SNAT is a subnet of the network that leaves under another address.
type SNAT struct {
	Subnet string `json:"subnet"`
	As     string `json:"as"`
}

// NAD is a NetworkAttachmentDefinition of a network and what the controller says of it.
type NAD struct {
	Name   string     `json:"name"`
	Ready  bool       `json:"ready"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

// Port is a port on a network. One without a pod is not ours.
type Port struct {
	Name      string       `json:"name"`
	Namespace string       `json:"namespace,omitempty"`
	Pod       string       `json:"pod,omitempty"`
	Interface string       `json:"interface,omitempty"`
	Node      string       `json:"node,omitempty"`
	MAC       string       `json:"mac,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Up        bool         `json:"up"`
}

// Networks joins NADs and what is in the database into a list by name. What is in force counts; a network that is
// nowhere in the database is shown as its NAD has it.
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

// empty has lists for what may be empty: in JSON they are [] then, not null.
func empty(name string) *Network {
	return &Network{Name: name, Subnets: []Subnet{}, NADs: []NAD{}, Ports: []Port{}}
}

// idOf tells which network a NAD is of; one that cannot be read any more is of the one that has accepted it.
func idOf(nad *netmodel.NAD, views []view.Network) string {
	id, err := nad.NetworkID()
	if err == nil {
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

func nadOf(nad *netmodel.NAD) NAD {
	state, ok := nad.NetworkState()
	if !ok {
		return NAD{Name: nad.ID(), Reason: "the controller has not seen it: is ovn-multinet-controller running?"}
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
	for i, u := range v.Usage {
		if u.Node == "" {
			n.Subnets[i].Used, n.Subnets[i].Free = u.Used, u.Free
			continue
		}
		n.addBlock(&u)
	}
	if g := v.Gateway; g != nil {
		n.Gateway = &Gateway{
			Addresses: g.Addresses, NextHops: g.NextHops, Physical: g.Physical, VLAN: g.VLAN, Selector: g.Selector,
			Nodes: append([]string{}, g.Nodes...), SNAT: []SNAT{},
		}
		for _, s := range v.SNAT {
			n.Gateway.SNAT = append(n.Gateway.SNAT, SNAT(s))
		}
	}
	for _, p := range v.Ports {
		port := Port{Name: p.Name, Namespace: p.Namespace, Pod: p.Pod, Interface: p.Interface, Node: p.Node, Addresses: p.Addresses, Up: p.Up}
		if p.MAC != nil {
			port.MAC = p.MAC.String()
		}
		n.Ports = append(n.Ports, port)
	}
}

func (n *Network) configure(c *netmodel.Network) {
	n.Topology, n.Router, n.MTU, n.Routes, n.PortSecurity = c.Topology, c.Router, c.MTU, c.Routes, &c.PortSecurity
	n.Physical, n.VLAN = c.Physical, c.VLAN
	for i, subnet := range c.Subnets {
		s := Subnet{Subnet: subnet, Gateway: c.Gateway(i), Free: c.Pool(i).Size()}
		if c.Topology == netmodel.Layer3 {
			s.Blocks = &Blocks{PrefixLength: c.NodeSubnetBits[i], Free: c.NodeSubnetCount(i)}
			n.perBlock = append(n.perBlock, perBlock(c, i))
			s.Free = c.NodeSubnetCount(i) * n.perBlock[i]
		}
		n.Subnets = append(n.Subnets, s)
	}
	for _, e := range c.Exclude {
		n.ExcludeSubnets = append(n.ExcludeSubnets, e.String())
	}
}

// perBlock is how many addresses a block of the i-th subnet has for pods: at most as many as are leased of it.
func perBlock(c *netmodel.Network, i int) uint64 {
	whole := *c
	whole.Exclude = nil
	view := whole.ForNode("-", blocksOf(&whole))
	return min(view.Pool(i).Size(), math.MaxUint64/c.NodeSubnetCount(i))
}

// blocksOf are the first of each subnet.
func blocksOf(c *netmodel.Network) []netip.Prefix {
	blocks := make([]netip.Prefix, len(c.Subnets))
	for i := range blocks {
		blocks[i] = c.NodeSubnet(i, 0)
	}
	return blocks
}

// addBlock adds a node's block of one of the subnets.
func (n *Network) addBlock(u *view.Usage) {
	for i := range n.Subnets {
		if s := &n.Subnets[i]; s.Blocks != nil && s.Subnet.Contains(u.Subnet.Addr()) {
			// What is excluded counts only where a node has the block.
			s.Used, s.Free = s.Used+u.Used, s.Free-n.perBlock[i]+u.Free
			s.Blocks.Used, s.Blocks.Free = s.Blocks.Used+1, s.Blocks.Free-1
		}
	}
	n.Subnets = append(n.Subnets, Subnet{Node: u.Node, Subnet: u.Subnet, Gateway: u.Gateway, Used: u.Used, Free: u.Free})
}

// judge sums up what the controller says of the NADs.
func (n *Network) judge() {
	if len(n.NADs) == 0 {
		n.Reason = "no NetworkAttachmentDefinition is left of it, it goes with its last port"
		return
	}
	n.Ready = true
	for _, nad := range n.NADs {
		if !nad.Ready {
			n.Ready, n.Reason = false, nad.Reason
			if len(n.NADs) > 1 {
				n.Reason = nad.Name + ": " + nad.Reason
			}
			return
		}
	}
}

// Find returns the network that a user means by a name: "<namespace>/<NAD>", a NAD of the namespace, or a shared name.
func Find(list []Network, namespace, name string) *Network {
	ids := []string{name}
	if !strings.Contains(name, "/") {
		ids = []string{namespace + "/" + name, name}
	}
	for _, id := range ids {
		for i := range list {
			if n := &list[i]; n.Name == id || slices.ContainsFunc(n.NADs, func(nad NAD) bool { return nad.Name == id }) {
				return n
			}
		}
	}
	return nil
}
