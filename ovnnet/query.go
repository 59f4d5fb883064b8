package ovnnet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// View is a network as it is in the database.
type View struct {
	ID       string
	Accepted []string          // the NADs whose ports it takes
	Config   *netmodel.Network // in force; nil when its switch does not say
	Usage    []Usage           // by subnet; of layer3 by node, and by block
	Ports    []PortView        // by name; the router's and the provider's are not among them
	Gateway  *GatewayView      // that the network's router has; nil: none
	SNAT     []SNATView        // what the gateway hides of the network
}

// Usage is how full a subnet is, or a node's block of one.
type Usage struct {
	Node       string
	Subnet     netip.Prefix
	Gateway    netip.Addr
	Used, Free uint64 // of what may be leased
}

// PortView is a port on a network. Namespace is empty for one that is not ours.
type PortView struct {
	Name                            string
	Namespace, Pod, Interface, Node string
	MAC                             net.HardwareAddr
	Addresses                       []netip.Addr
	// Up says that ovn-controller has bound it.
	Up bool
}

// Views reads every network.
func (n *Networks) Views(ctx context.Context) ([]View, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids", "ports"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return nil, err
	}
	var views []View
	nodes := map[string][]*nb.LogicalSwitch{}
	for _, sw := range switches {
		if id, node := sw.ExternalIDs[keyNetwork], sw.ExternalIDs[keyNode]; node != "" && sw.UUID == nodeSwitchKey(id, node) {
			nodes[id] = append(nodes[id], sw)
		}
	}
	gateways := map[string]*GatewayView{}
	for _, sw := range switches {
		id := sw.ExternalIDs[keyNetwork]
		if id == "" || sw.UUID != ovndb.SwitchKey(id) {
			continue
		}
		v, err := n.view(ctx, sw, nodes[id])
		if err != nil {
			return nil, err
		}
		if err := n.viewGateway(ctx, v, gateways); err != nil {
			return nil, err
		}
		views = append(views, *v)
	}
	slices.SortFunc(views, func(a, b View) int { return strings.Compare(a.ID, b.ID) })
	return views, nil
}

func (n *Networks) view(ctx context.Context, sw *nb.LogicalSwitch, nodes []*nb.LogicalSwitch) (*View, error) {
	v := &View{ID: sw.ExternalIDs[keyNetwork], Accepted: accepts(sw), Config: inForce(sw)}
	if err := n.viewPorts(ctx, v, sw.Ports); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b *nb.LogicalSwitch) int {
		return strings.Compare(a.ExternalIDs[keyNode], b.ExternalIDs[keyNode])
	})
	for _, part := range nodes {
		if err := n.viewPorts(ctx, v, part.Ports); err != nil {
			return nil, err
		}
		if v.Config == nil {
			continue
		}
		if blocks := v.Config.ParseNodeSubnets(part.ExternalIDs[ovndb.BlocksKey]); blocks != nil {
			v.count(v.Config.ForNode(part.ExternalIDs[keyNode], blocks))
		}
	}
	slices.SortFunc(v.Ports, func(a, b PortView) int { return strings.Compare(a.Name, b.Name) })
	if v.Config != nil && v.Config.Topology != netmodel.Layer3 {
		v.count(v.Config)
	}
	return v, nil
}

func (n *Networks) viewPorts(ctx context.Context, v *View, keys []string) error {
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.db, nb.LogicalSwitchPortTable, keys, "name", "type", "addresses", "external_ids", "up")
	if err != nil {
		return err
	}
	for _, port := range ports {
		if port.Type == "" {
			v.Ports = append(v.Ports, portView(port))
		}
	}
	return nil
}

func portView(port *nb.LogicalSwitchPort) PortView {
	p := PortView{Name: port.Name, Up: port.Up != nil && *port.Up}
	if x := port.ExternalIDs; x[keySandbox] != "" {
		p.Namespace, p.Pod, p.Interface, p.Node = x[keyNamespace], x[keyPod], x[keyInterface], x[keyNode]
	}
	for _, text := range port.Addresses {
		for _, word := range strings.Fields(text) {
			if mac, err := net.ParseMAC(word); err == nil {
				p.MAC = mac
			} else if a, err := netip.ParseAddr(word); err == nil {
				p.Addresses = append(p.Addresses, a)
			}
		}
	}
	return p
}

// count adds how full the network's subnets are, or the blocks of a node's view.
func (v *View) count(network *netmodel.Network) {
	for i, subnet := range network.Subnets {
		pool := network.Pool(i)
		u := Usage{Node: network.Node, Subnet: subnet, Gateway: network.Gateway(i), Free: pool.Size()}
		for _, p := range v.Ports {
			for _, a := range p.Addresses {
				if pool.Contains(a) {
					u.Used, u.Free = u.Used+1, u.Free-min(u.Free, 1)
				}
			}
		}
		v.Usage = append(v.Usage, u)
	}
}

// GatewayView is the gateway of a router.
type GatewayView struct {
	Addresses []string // on the provider's network, with its subnets' prefix lengths
	NextHops  []string
	Physical  string
	VLAN      int
	Selector  string   // of its nodes
	Nodes     []string // the first that is alive has it
}

// SNATView is a subnet that leaves under another address.
type SNATView struct{ Subnet, As string }

// viewGateway adds the gateway of the network's router, each read once.
func (n *Networks) viewGateway(ctx context.Context, v *View, known map[string]*GatewayView) error {
	if v.Config == nil || v.Config.Router == "" {
		return nil
	}
	router := v.Config.Router
	g, read := known[router]
	if !read {
		have, err := n.readGateway(ctx, router)
		if _, foreign := errors.AsType[*Refused](err); foreign {
			have, err = &foundGateway{}, nil // it is none of ours
		}
		if err != nil {
			return err
		}
		g = have.view(router)
		known[router] = g
	}
	if v.Gateway = g; g == nil {
		return nil
	}
	nats, err := ovndb.ReadByKey[nb.NAT](ctx, n.db, nb.NATTable, []string{natKey(v.ID, "4"), natKey(v.ID, "6")})
	for _, nat := range nats {
		v.SNAT = append(v.SNAT, SNATView{nat.LogicalIP, nat.ExternalIP})
	}
	return err
}

func (have *foundGateway) view(router string) *GatewayView {
	if have.gateway == nil {
		return nil
	}
	g := &GatewayView{Selector: have.gateway.ExternalIDs[keyGatewayNodes]}
	if port := have.ports[portKey(router, partExternal)]; port != nil {
		g.Addresses = slices.Sorted(slices.Values(port.Networks))
	}
	for _, f := range families {
		if r := have.routes[gatewayRouteKey(router, routeNextHop, f)]; r != nil {
			g.NextHops = append(g.NextHops, r.Nexthop)
		}
	}
	if end := have.ends[endKey(router, partProvider)]; end != nil {
		g.Physical = end.Options["network_name"]
		if end.Tag != nil {
			g.VLAN = *end.Tag
		}
	}
	members := slices.SortedFunc(maps.Values(have.chassis), func(a, b *nb.HAChassis) int { return cmp.Compare(b.Priority, a.Priority) })
	for _, m := range members {
		g.Nodes = append(g.Nodes, m.ExternalIDs[keyNode])
	}
	return g
}
