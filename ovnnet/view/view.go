package view

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// View is a network as it is in the database.
type Network struct {
	ID       string
	Accepted []string          // the NADs whose ports it takes
	Config   *netmodel.Network // in force; nil when its switch does not say
	Usage    []Usage           // by subnet; of layer3 by node, and by block
	Ports    []Port            // by name; the router's and the provider's are not among them
	Gateway  *gateway.View     // that the network's router has; nil: none
	SNAT     []SNAT            // what the gateway hides of the network
}

// Usage is how full a subnet is, or a node's block of one.
type Usage struct {
	Node       string
	Subnet     netip.Prefix
	Gateway    netip.Addr
	Used, Free uint64 // of what may be leased
}

// PortView is a port on a network. Namespace is empty for one that is not ours.
type Port struct {
	Name                            string
	Namespace, Pod, Interface, Node string
	MAC                             net.HardwareAddr
	Addresses                       []netip.Addr
	// Up says that ovn-controller has bound it.
	Up bool
}

// Views reads every network.
// Views
func Read(ctx context.Context, db *ovndb.DB) ([]Network, error) {
	n := &reader{nbrows.NewStore(db)}
	return n.all(ctx)
}

type reader struct{ *nbrows.Store }

func (n *reader) all(ctx context.Context) ([]Network, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids", "ports"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.Db, results[0])
	if err != nil {
		return nil, err
	}
	var views []Network
	nodes := map[string][]*nb.LogicalSwitch{}
	for _, sw := range switches {
		if id, node := sw.ExternalIDs[nbrows.KeyNetwork], sw.ExternalIDs[nbrows.KeyNode]; node != "" && sw.UUID == nbrows.NodeSwitchKey(id, node) {
			nodes[id] = append(nodes[id], sw)
		}
	}
	gateways := map[string]*gateway.View{}
	for _, sw := range switches {
		id := sw.ExternalIDs[nbrows.KeyNetwork]
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
	slices.SortFunc(views, func(a, b Network) int { return strings.Compare(a.ID, b.ID) })
	return views, nil
}

func (n *reader) view(ctx context.Context, sw *nb.LogicalSwitch, nodes []*nb.LogicalSwitch) (*Network, error) {
	v := &Network{ID: sw.ExternalIDs[nbrows.KeyNetwork], Accepted: nbrows.AcceptedNADs(sw), Config: nbrows.AcceptedConfig(sw)}
	if err := n.viewPorts(ctx, v, sw.Ports); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b *nb.LogicalSwitch) int {
		return strings.Compare(a.ExternalIDs[nbrows.KeyNode], b.ExternalIDs[nbrows.KeyNode])
	})
	for _, part := range nodes {
		if err := n.viewPorts(ctx, v, part.Ports); err != nil {
			return nil, err
		}
		if v.Config == nil {
			continue
		}
		if blocks := v.Config.ParseNodeSubnets(part.ExternalIDs[ovndb.BlocksKey]); blocks != nil {
			v.count(v.Config.ForNode(part.ExternalIDs[nbrows.KeyNode], blocks))
		}
	}
	slices.SortFunc(v.Ports, func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
	if v.Config != nil && v.Config.Topology != netmodel.Layer3 {
		v.count(v.Config)
	}
	return v, nil
}

func (n *reader) viewPorts(ctx context.Context, v *Network, keys []string) error {
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.Db, nb.LogicalSwitchPortTable, keys, "name", "type", "addresses", "external_ids", "up")
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

func portView(port *nb.LogicalSwitchPort) Port {
	p := Port{Name: port.Name, Up: port.Up != nil && *port.Up}
	if x := port.ExternalIDs; x[nbrows.KeySandbox] != "" {
		p.Namespace, p.Pod, p.Interface, p.Node = x[nbrows.KeyNamespace], x[nbrows.KeyPod], x[nbrows.KeyInterface], x[nbrows.KeyNode]
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
func (v *Network) count(network *netmodel.Network) {
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

// SNATView is a subnet that leaves under another address.
type SNAT struct{ Subnet, As string }

// viewGateway adds the gateway of the network's router, each read once.
func (n *reader) viewGateway(ctx context.Context, v *Network, known map[string]*gateway.View) error {
	if v.Config == nil || v.Config.Router == "" {
		return nil
	}
	router := v.Config.Router
	g, read := known[router]
	if !read {
		var err error
		if g, err = gateway.New(n.Store, nil).View(ctx, router); err != nil {
			return err
		}
		known[router] = g
	}
	if v.Gateway = g; g == nil {
		return nil
	}
	nats, err := ovndb.ReadByKey[nb.NAT](ctx, n.Db, nb.NATTable, []string{nbrows.NatKey(v.ID, "4"), nbrows.NatKey(v.ID, "6")})
	for _, nat := range nats {
		v.SNAT = append(v.SNAT, SNAT{nat.LogicalIP, nat.ExternalIP})
	}
	return err
}
