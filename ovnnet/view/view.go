package view

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
)

// Network is a network as NB has it.
type Network struct {
	ID       string
	Accepted []string          // the NADs whose ports the network takes
	Config   *netmodel.Network // the accepted configuration; nil: there is none that can be parsed
	Usage    []Usage           // one for each subnet; on a layer3 network one for each node and node subnet
	Ports    []Port            // sorted by name, without the ports to the router and to the physical network
	// Smallest is the smallest MTU of all nodes for the network; its MTU is 0 if none is known.
	Smallest pathmtu.Limit
	Gateway  *gateway.View // the gateway of the network's router; nil: none
	SNAT     []SNAT        // the SNAT rules that the gateway has for the network
	Reserved []Reserved    // sorted by IPAMClaim
}

// Reserved is what an IPAMClaim has while no pod has its port.
type Reserved struct {
	IPAMClaim string
	MAC       string
	Addresses []netip.Addr
}

// Usage is how full a subnet or a node subnet is.
type Usage struct {
	Node       string // of a node subnet
	Subnet     netip.Prefix
	Gateway    netip.Addr
	Used, Free uint64 // numbers of leasable addresses
}

// Port is a port on a network. Namespace is empty if the port is not ours.
type Port struct {
	Key                             string // the row key
	Name                            string
	Namespace, Pod, Interface, Node string
	MAC                             net.HardwareAddr
	Addresses                       []netip.Addr
	// IPAMClaim is the one that the port belongs to, as "<namespace>/<name>", and not to one of its pods; "": none.
	IPAMClaim string
	// Up says that ovn-controller has bound the port.
	Up bool
	// Conflicts are the addresses of the port that hosts on the physical network use, too.
	Conflicts []Conflict
}

// Conflict is an address that another host uses, too.
type Conflict struct {
	Addr netip.Addr
	MAC  net.HardwareAddr // of that host
}

// Read reads all networks.
func Read(ctx context.Context, db *ovndb.DB) ([]Network, error) {
	n := &reader{nbrows.NewStore(db)}
	return n.all(ctx)
}

type reader struct{ *nbrows.Store }

func (n *reader) all(ctx context.Context) ([]Network, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids", "ports"}},
		pathmtu.Select(),
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, ovndb.IPAMClaimKind, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	smallest, err := pathmtu.Read(n.Db, results[1])
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
		if id, node := sw.ExternalIDs[nbrows.KeyNetwork], sw.ExternalIDs[nbrows.KeyNode]; node != "" &&
			sw.UUID == nbrows.NodeSwitchKey(id, node) {
			nodes[id] = append(nodes[id], sw)
		}
	}
	claims, err := ovndb.Rows[nb.Copp](n.Db, results[2])
	if err != nil {
		return nil, err
	}
	gateways := map[string]*gateway.View{}
	own := map[string]*nb.LogicalSwitch{}
	for _, sw := range switches {
		if id := sw.ExternalIDs[nbrows.KeyNetwork]; id != "" && sw.UUID == ovndb.SwitchKey(id) {
			own[id] = sw
		}
	}
	accepted, err := n.ReadAccepted(ctx, nbrows.SortedKeys(own))
	if err != nil {
		return nil, err
	}
	for _, id := range nbrows.SortedKeys(own) {
		v, err := n.view(ctx, own[id], accepted[id], nodes[id], claims)
		if err != nil {
			return nil, err
		}
		if v.Config != nil {
			v.Smallest = smallest[v.Config.Physical]
		}
		if err := n.viewGateway(ctx, v, gateways); err != nil {
			return nil, err
		}
		views = append(views, *v)
	}
	return views, nil
}

// view reads one network, by its own switch, what is accepted, and its node switches. claims are the IPAMClaims of all
// networks.
func (n *reader) view(
	ctx context.Context, sw *nb.LogicalSwitch, accepted *nb.Copp, nodes []*nb.LogicalSwitch, claims []*nb.Copp,
) (*Network, error) {
	v := &Network{
		ID: sw.ExternalIDs[nbrows.KeyNetwork], Accepted: nbrows.AcceptedNADs(accepted),
		Config: n.AcceptedConfig(accepted),
	}
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
		if subnets := v.Config.ParseNodeSubnets(part.ExternalIDs[ovndb.NodeSubnetsKey]); subnets != nil {
			v.count(v.Config.ForNode(part.ExternalIDs[nbrows.KeyNode], subnets))
		}
	}
	slices.SortFunc(v.Ports, func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
	v.reserve(claims)
	if v.Config != nil && v.Config.Topology != netmodel.Layer3 {
		v.count(v.Config)
	}
	return v, nil
}

// reserve adds the IPAMClaims of the network that have no port.
func (v *Network) reserve(claims []*nb.Copp) {
	for _, row := range claims {
		id := row.ExternalIDs[ovndb.IPAMClaimMark]
		hasPort := func(p Port) bool { return p.Key == ovndb.IPAMClaimPortKey(id) }
		if row.ExternalIDs[ovndb.IPAMClaimNetwork] != v.ID || slices.ContainsFunc(v.Ports, hasPort) {
			continue
		}
		r := Reserved{IPAMClaim: id}
		for _, word := range strings.Fields(row.ExternalIDs[ovndb.IPAMClaimHas]) {
			if p, err := netip.ParsePrefix(word); err == nil {
				r.Addresses = append(r.Addresses, p.Addr())
			} else {
				r.MAC = word
			}
		}
		v.Reserved = append(v.Reserved, r)
	}
	slices.SortFunc(v.Reserved, func(a, b Reserved) int { return strings.Compare(a.IPAMClaim, b.IPAMClaim) })
}

// viewPorts adds the ports with these keys. A port with a type, such as the port to the router, is left out.
func (n *reader) viewPorts(ctx context.Context, v *Network, keys []string) error {
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, n.Db, nb.LogicalSwitchPortTable, keys, "_uuid", "name", "type", "addresses", "external_ids", "up")
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
	p := Port{Key: port.UUID, Name: port.Name, Up: port.Up != nil && *port.Up}
	if x := port.ExternalIDs; x[nbrows.KeySandbox] != "" {
		p.Namespace, p.Pod, p.Interface, p.Node =
			x[nbrows.KeyNamespace], x[nbrows.KeyPod], x[nbrows.KeyInterface], x[nbrows.KeyNode]
		p.IPAMClaim = x[ovndb.IPAMClaimMark]
	}
	for _, word := range strings.Fields(port.ExternalIDs[ovndb.ConflictsKey]) {
		text, macText, _ := strings.Cut(word, "=")
		a, err := netip.ParseAddr(text)
		mac, macErr := net.ParseMAC(macText)
		if err == nil && macErr == nil {
			p.Conflicts = append(p.Conflicts, Conflict{a, mac})
		}
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

// count adds the usage of the network's subnets, or of the node subnets if network is a node's view.
func (v *Network) count(network *netmodel.Network) {
	for i, subnet := range network.Subnets {
		pool := network.Pool(i)
		u := Usage{Node: network.Node, Subnet: subnet, Gateway: network.Gateway(i), Free: pool.Size()}
		var used []netip.Addr
		for _, p := range v.Ports {
			used = append(used, p.Addresses...)
		}
		for _, r := range v.Reserved {
			used = append(used, r.Addresses...)
		}
		for _, a := range used {
			if pool.Contains(a) {
				u.Used, u.Free = u.Used+1, u.Free-min(u.Free, 1)
			}
		}
		v.Usage = append(v.Usage, u)
	}
}

// SNAT is a subnet, and the external address that replaces its source addresses.
type SNAT struct{ Subnet, As string }

// viewGateway adds the gateway of the network's router. known has the gateways that were read before, by router.
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
	nats, err := ovndb.ReadByKey[nb.NAT](
		ctx, n.Db, nb.NATTable, []string{nbrows.NatKey(v.ID, "4"), nbrows.NatKey(v.ID, "6")})
	for _, nat := range nats {
		v.SNAT = append(v.SNAT, SNAT{nat.LogicalIP, nat.ExternalIP})
	}
	return err
}

// PortsAt reads the ports that have these addresses of a network, by address: each port by its row key, or by that of
// the claim on its further address. An address that no port has is not in the map.
func PortsAt(ctx context.Context, db *ovndb.DB, network string, list []netip.Addr) (map[netip.Addr]Port, error) {
	n := &reader{nbrows.NewStore(db)}
	of, keys := map[string]string{}, make([]string, len(list)) // of has the key of the port, by that of the address
	for i, a := range list {
		keys[i] = ovndb.AddressKey(network, a)
		of[keys[i]] = keys[i]
	}
	claims, err := ovndb.ReadByKey[nb.Copp](ctx, db, nb.CoppTable, keys, "_uuid", "external_ids")
	if err != nil {
		return nil, err
	}
	for _, claim := range claims {
		if port := claim.ExternalIDs[nbrows.KeyPort]; port != "" {
			of[claim.UUID] = port
		}
	}
	v, ports := &Network{}, map[string]Port{}
	if err := n.viewPorts(ctx, v, slices.Compact(slices.Sorted(maps.Values(of)))); err != nil {
		return nil, err
	}
	for _, port := range v.Ports {
		ports[port.Key] = port
	}
	at := map[netip.Addr]Port{}
	for i, a := range list {
		if port, ok := ports[of[keys[i]]]; ok {
			at[a] = port
		}
	}
	return at, nil
}

// TunnelKeys reads how many tunnel keys ovn-northd has for the whole cluster (ovn-nb(5), NB_Global, options:max_tunid);
// 0: it has not said.
func TunnelKeys(ctx context.Context, db *ovndb.DB) (int, error) {
	results, err := db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: "NB_Global", Columns: []string{"options"}},
	})
	if err != nil || len(results[0].Rows) == 0 {
		return 0, err
	}
	options, _ := results[0].Rows[0]["options"].(ovsdb.OvsMap)
	keys, _ := options.GoMap["max_tunid"].(string)
	n, _ := strconv.Atoi(keys) // "" is 0
	return n, nil
}
