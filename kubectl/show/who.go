package show

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// Kinds of holders.
const (
	holderPod       = "pod"
	holderPods      = "pods" // that share a virtual address
	holderPort      = "port" // that is not ours
	holderService   = "service"
	holderIPAMClaim = "ipamclaim" // no pod has its port
	holderRouter    = "router"
	holderHost      = "host" // outside
	holderNobody    = "nobody"
	holderUnknown   = "unknown"
)

// Holder is who has an address or a MAC.
type Holder struct {
	Network string `json:"network,omitempty"` // that the address is of
	Router  string `json:"router,omitempty"`  // whose gateway brings the address, if it is of no network
	Kind    string `json:"kind"`
	// Name is "<namespace>/<name>", of a pod with "/" and the interface; of pods their namespace and their labels.
	Name string `json:"name,omitempty"`
	Node string `json:"node,omitempty"`
	// As is what the holder has the address for, or why nobody has it.
	As string `json:"as,omitempty"`
}

// Who finds who has an address or a MAC, on all networks and gateways. entries are the outside addresses.
func Who(list []Network, entries []*outside.Entry, what string) ([]Holder, error) {
	var found []Holder
	if a, err := netip.ParseAddr(what); err == nil {
		for i := range list {
			found = append(found, list[i].holders(a)...)
		}
		found = append(found, atGateways(list, a)...)
		for _, e := range entries {
			if slices.Contains(e.IPs(), a) {
				found = append(found, outsideHolder(e))
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no network has %s in its subnets, and no gateway brings it: "+
				"kubectl multinet network list", a)
		}
		return found, nil
	}
	mac, err := net.ParseMAC(what)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("%.64q is neither an IP address nor a MAC", what)
	}
	for i := range list {
		n := &list[i]
		for j := range n.Ports {
			if n.Ports[j].MAC == mac.String() {
				found = append(found, n.portHolder(&n.Ports[j]))
			}
		}
		for _, c := range n.IPAMClaims {
			if c.MAC == mac.String() {
				found = append(found, Holder{Network: n.Name, Kind: holderIPAMClaim, Name: c.Name, As: "no pod has its port"})
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no port has the MAC %s", mac)
	}
	return found, nil
}

// holders finds who has an address of the network.
func (n *Network) holders(a netip.Addr) (found []Holder) {
	for i := range n.Ports {
		if slices.Contains(n.Ports[i].Addresses, a) {
			found = append(found, n.portHolder(&n.Ports[i]))
		}
	}
	for _, v := range n.VirtualAddresses {
		if v.Address == a {
			found = append(found, Holder{Network: n.Name, Kind: holderService, Name: v.Service, As: "virtual address"})
		}
	}
	if n.network != nil {
		for i := range n.network.SubnetsBehind {
			if b := &n.network.SubnetsBehind[i]; b.Subnet.Contains(a) {
				found = append(found, Holder{Network: n.Name, Kind: holderPods, Name: b.Namespace, As: "behind them: " + b.Words()})
			}
		}
		for i := range n.network.VirtualAddresses {
			if v := &n.network.VirtualAddresses[i]; v.Address == a {
				found = append(found, Holder{Network: n.Name, Kind: holderPods, Name: v.Pods(), As: "virtual address"})
			}
		}
	}
	for _, c := range n.IPAMClaims {
		if slices.Contains(c.Addresses, a) {
			found = append(found, Holder{Network: n.Name, Kind: holderIPAMClaim, Name: c.Name, As: "no pod has its port"})
		}
	}
	i := slices.IndexFunc(n.Subnets, func(s Subnet) bool { return s.Gateway == a })
	switch {
	case i >= 0 && n.Router != "":
		node := n.Subnets[i].Node
		found = append(found, Holder{Network: n.Name, Kind: holderRouter, Name: n.Router, Node: node, As: "gateway"})
	case i >= 0:
		found = append(found, Holder{Network: n.Name, Kind: holderNobody, As: "gateway, and the network has no router"})
	}
	within := func(s Subnet) bool { return s.Subnet.Contains(a) }
	at := slices.IndexFunc(n.Subnets, within)
	if len(found) > 0 || at < 0 {
		return found
	}
	if n.Subnets[at].uncounted { // without the right to read NB, the pods of one namespace are all that is known
		return []Holder{{Network: n.Name, Kind: holderUnknown, As: "no pod that you may see has it"}}
	}
	as := "free"
	if slices.ContainsFunc(n.ExcludeSubnets, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	}) {
		as = "in excludeSubnets"
	} else if n.network != nil && !n.leasable(a) {
		as = "not an address of pods"
	}
	return []Holder{{Network: n.Name, Kind: holderNobody, As: as}}
}

// leasable reports whether a pod may have an address of the network.
func (n *Network) leasable(a netip.Addr) bool {
	i := n.network.SubnetOf(a)
	return i >= 0 && (len(n.perNodeSubnet) > 0 || n.network.Leasable(i).Contains(a))
}

func (n *Network) portHolder(p *Port) Holder {
	if p.Pod == "" {
		return Holder{Network: n.Name, Kind: holderPort, Name: p.Name, As: "not ours"}
	}
	return Holder{Network: n.Name, Kind: holderPod, Name: p.Namespace + "/" + p.Pod + "/" + p.Interface, Node: p.Node}
}

// atGateways finds the gateways that have an address, and those whose next hop has it. Networks share gateways.
func atGateways(list []Network, a netip.Addr) (found []Holder) {
	for i := range list {
		n := &list[i]
		if n.Gateway == nil || slices.ContainsFunc(found, func(h Holder) bool { return h.Router == n.Router }) {
			continue
		}
		h := Holder{Router: n.Router, Kind: holderRouter, Name: n.Router, As: "address of the gateway"}
		if len(n.Gateway.Nodes) > 0 {
			h.Node = n.Gateway.Nodes[0]
		}
		is := func(text string) bool {
			word, _, _ := strings.Cut(text, "/")
			other, err := netip.ParseAddr(word)
			return err == nil && other == a
		}
		if slices.ContainsFunc(n.Gateway.NextHops, is) {
			h = Holder{Router: n.Router, Kind: holderHost, As: "next hop of the gateway"}
		} else if !slices.ContainsFunc(n.Gateway.Addresses, is) {
			continue
		}
		found = append(found, h)
	}
	return found
}

func outsideHolder(e *outside.Entry) Holder {
	u := &e.User
	h := Holder{Router: e.Router, Kind: holderPod, Name: u.String(), As: string(e.Kind) + " address"}
	if u.Service != "" {
		h.Kind, h.Name, h.As = holderService, u.Namespace+"/"+u.Service, "outside address"
	}
	h.Name = conf.OneLine(h.Name, conf.MaxReason)
	return h
}

// Holders writes a line for each holder.
func Holders(w io.Writer, list []Holder) error {
	t := table(w)
	fmt.Fprintln(t, "OF\tHOLDER\tAS\tNODE")
	for _, h := range list {
		of := "network " + h.Network
		if h.Network == "" {
			of = "router " + h.Router
		}
		name := h.Kind
		if h.Name != "" {
			name += " " + h.Name
		}
		printf(t, "%s\t%s\t%s\t%s\n", of, name, orDash(h.As), orDash(h.Node))
	}
	return t.Flush()
}
