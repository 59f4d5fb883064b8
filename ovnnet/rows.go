package ovnnet

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Keys of external_ids. A row with neither of the first two is not ours.
const (
	keyNetwork = "ovn-multinet/network"
	keyRouter  = "ovn-multinet/router"
	keyGateway = "gateway_ip"
	// Of a network's port on a router: the key of the switch's end. Of that, of a localnet network's switch and of a
	// router's gateway: the keys of its claims.
	keyPort   = "ovn-multinet/port"
	keyClaims = "ovn-multinet/claims"
	// Of a claim: the name of its port.
	keyPortName = "ovn-multinet/port-name"
	// Of a pod's port.
	keySandbox   = "ovn-multinet/sandbox"
	keyNamespace = "ovn-multinet/namespace"
	keyPod       = "ovn-multinet/pod"
	keyInterface = "ovn-multinet/interface"
	// Of a pod's port, a node's switch and a node's own row: its name.
	keyNode = "ovn-multinet/node"
	// Of the switch of a network that is shared by name: the namespace that made the network. It stays as long as the switch.
	keyOwner = "ovn-multinet/owner"
	// Of a layer3 network's own switch: the controller's --widest-ipam-subnet, where the network has excludeSubnets and
	// the value is not the default. Agents make the nodes' switches by it.
	keyWidestIPAM = "ovn-multinet/widest-ipam-subnet"
)

// rows are those of one network, as they are or as they ought to be.
type rows struct {
	// own is the network's switch, which carries what is in force. On layer3 it has no ports.
	own *part
	// nodes are the parts of the nodes that have blocks of a layer3 network, by the keys of their switches.
	nodes map[string]*part
	// routes and nats are the network's in routers, by their keys.
	routes map[string]*nb.LogicalRouterStaticRoute
	nats   map[string]*nb.NAT
	// wire are a localnet network's claims on addresses of its wire.
	wire *wireClaims
}

// part is one logical switch; nil: no such row. Both ends of its port on a router are there or neither is.
type part struct {
	sw       *nb.LogicalSwitch
	end      *nb.LogicalSwitchPort // the switch's end: it holds the lease of the first gateway address
	claims   []*nb.Copp            // on the further gateway addresses
	port     *nb.LogicalRouterPort
	provider *nb.LogicalSwitchPort // of localnet: the way out
	blocks   []*nb.Copp            // of a node: claims on its blocks
}

// parts are those that have a switch.
func (r *rows) parts() []*part {
	var list []*part
	if r.own.sw != nil {
		list = append(list, r.own)
	}
	for _, key := range slices.Sorted(maps.Keys(r.nodes)) {
		list = append(list, r.nodes[key])
	}
	return list
}

// wanted is what a network that takes ports of the NADs ought to have, but for its nodes' parts.
func (n *Networks) wanted(network *netmodel.Network, nads []string) *rows {
	r := &rows{own: wantedPart(network, nads), nodes: map[string]*part{}, wire: wantedOfNetwork(network)}
	r.wire.mark(r.own.sw.ExternalIDs)
	r.routes, r.nats = n.wantedRoutes(network)
	return r
}

// wantedPart is a switch: of a network, or of a node's view of it.
func wantedPart(network *netmodel.Network, nads []string) *part {
	p := &part{sw: switchRow(network, nads)}
	id, router := network.ID(), network.RouterName()
	if network.Topology == netmodel.Localnet {
		p.provider = providerRow(ovndb.PartKey("localnet", id), id+":localnet", network.Physical, network.VLAN, map[string]string{keyNetwork: id})
	}
	if network.Node != "" {
		for _, block := range network.Subnets {
			p.blocks = append(p.blocks, &nb.Copp{
				UUID: ovndb.BlockKey(id, block), Name: "ovn-multinet " + id + " block " + block.String(),
				ExternalIDs: map[string]string{keyNetwork: id, keyNode: network.Node},
			})
		}
	}
	if router == "" || len(network.Gateways) == 0 {
		return p
	}
	name := network.SwitchName()
	gateway := network.Gateways[0]
	mac, claimed := ovndb.LeaseMAC(network.Subnets[0], gateway)
	marks := map[string]string{keyNetwork: id, keyRouter: router}
	p.port = &nb.LogicalRouterPort{
		UUID: ovndb.RouterPortKey(name), Name: router + ":" + name, MAC: mac.String(), ExternalIDs: maps.Clone(marks),
	}
	// The colon is in no name of a namespace, pod or interface: a pod's port cannot be called so.
	p.end = &nb.LogicalSwitchPort{
		UUID: ovndb.AddressKey(network.AddressBook(), gateway),
		Name: name + ":" + router, Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": p.port.Name}, ExternalIDs: maps.Clone(marks),
	}
	for i, g := range network.Gateways {
		p.port.Networks = append(p.port.Networks, netip.PrefixFrom(g, network.Subnets[i].Bits()).String())
		if i > 0 {
			p.claim(ovndb.AddressKey(network.AddressBook(), g), "address "+g.String())
		}
	}
	if claimed {
		p.claim(ovndb.MACKey(network.AddressBook(), mac), "MAC "+mac.String())
	}
	p.port.ExternalIDs[keyPort] = p.end.UUID
	return p
}

func (p *part) claim(key, what string) {
	id := p.end.ExternalIDs[keyNetwork]
	p.claims = append(p.claims, &nb.Copp{UUID: key, Name: "ovn-multinet " + id + " " + what,
		ExternalIDs: map[string]string{keyNetwork: id, keyPort: p.end.UUID, keyPortName: p.end.Name}})
	p.end.ExternalIDs[keyClaims] = strings.TrimSpace(p.end.ExternalIDs[keyClaims] + " " + key)
}

// providerRow is the port by which a switch is a provider's network: ovn-controller connects it on each node to the bridge
// that ovn-bridge-mappings names.
func providerRow(key, name, physical string, vlan int, marks map[string]string) *nb.LogicalSwitchPort {
	row := &nb.LogicalSwitchPort{
		UUID: key, Name: name, Type: "localnet", Addresses: []string{"unknown"},
		Options: map[string]string{"network_name": physical}, ExternalIDs: marks,
	}
	if vlan != 0 { // northd copies the one into the other, but never takes it away again
		row.TagRequest, row.Tag = &vlan, &vlan
	}
	return row
}

// switchRow is the row of a network, or of a node's view of it. OVN's own allocator, which machines outside Kubernetes may
// use on our switches, must never hand out what we lease.
func switchRow(network *netmodel.Network, nads []string) *nb.LogicalSwitch {
	row := &nb.LogicalSwitch{
		UUID: ovndb.SwitchKey(network.SwitchName()), Name: network.SwitchName(), OtherConfig: map[string]string{},
		ExternalIDs: map[string]string{keyNetwork: network.ID(), ovndb.ConfigKey: network.Canonical()},
	}
	revision := network.Revision()
	for _, nad := range nads {
		row.ExternalIDs[ovndb.AcceptedPrefix+nad] = revision
	}
	if _, wire := network.PhysicalVLAN(); wire {
		row.ExternalIDs[ovndb.BookKey] = network.AddressBook()
	}
	if network.Node != "" {
		row.ExternalIDs[keyNode], row.ExternalIDs[ovndb.BlocksKey] = network.Node, network.NodeSubnetsText()
	}
	var gateways []string
	for i, gateway := range network.Gateways {
		gateways = append(gateways, gateway.String())
		if gateway.Is4() {
			setIPAM(row, network, i)
		}
	}
	if len(gateways) > 0 {
		row.ExternalIDs[keyGateway] = strings.Join(gateways, " ")
	}
	return row
}

// ours lists what is not for others: the gateway and all that we lease, as ranges (OVN ignores a CIDR here).
func ours(network *netmodel.Network, i int) string {
	words := []string{network.Gateways[i].String()}
	for _, span := range network.Pool(i).Spans() {
		if span.First == span.Last {
			words = append(words, span.First.String())
		} else {
			words = append(words, span.First.String()+".."+span.Last.String())
		}
	}
	return strings.Join(words, " ")
}

// accepts lists the NADs whose ports a switch takes.
func accepts(sw *nb.LogicalSwitch) []string {
	var nads []string
	for key := range sw.ExternalIDs {
		if nad, ok := strings.CutPrefix(key, ovndb.AcceptedPrefix); ok {
			nads = append(nads, nad)
		}
	}
	slices.Sort(nads)
	return nads
}

// inForce is the configuration that a switch was made by; nil when its row does not have it.
func inForce(sw *nb.LogicalSwitch) *netmodel.Network {
	text := sw.ExternalIDs[ovndb.ConfigKey]
	namespace, name, own := strings.Cut(sw.ExternalIDs[keyNetwork], "/")
	if !own { // shared by name: of which of its NADs does not matter
		namespace, name = "", ""
	}
	network, err := netmodel.ParseAccepted(namespace, name, []byte(text))
	if text == "" || err != nil {
		return nil
	}
	return network
}

// The routes of a network, by what they are for. A network has one of each kind and family at most.
const (
	// discard, in the router of a layer3 network: what is for a block that no node has must not go the default way.
	discard = "discard"
	// back, in the gateway of a router: the way to the network.
	back = "back"
)

// families tell the subnets of a network apart in row keys: a subnet that changes keeps its rows.
var families = []string{"4", "6"}

func family(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

func routeKey(id, kind, family string) string { return ovndb.PartKey("route "+kind+family, id) }

func natKey(id, family string) string { return ovndb.PartKey("snat"+family, id) }

// wantedRoutes are a network's routes, in its router and in that's gateway, and what the gateway hides.
func (n *Networks) wantedRoutes(network *netmodel.Network) (map[string]*nb.LogicalRouterStaticRoute, map[string]*nb.NAT) {
	routes, nats := map[string]*nb.LogicalRouterStaticRoute{}, map[string]*nb.NAT{}
	id, router := network.ID(), network.RouterName()
	for _, subnet := range network.Subnets {
		marks := map[string]string{keyNetwork: id, keyRouter: router}
		f := family(subnet.Addr())
		if network.Topology == netmodel.Layer3 {
			key := routeKey(id, discard, f)
			routes[key] = &nb.LogicalRouterStaticRoute{UUID: key, IPPrefix: subnet.String(), Nexthop: "discard", ExternalIDs: maps.Clone(marks)}
		}
		gateway := n.withGateway(network.Router)
		i := -1
		if gateway != nil {
			i = slices.IndexFunc(gateway.External, func(e netip.Prefix) bool { return family(e.Addr()) == f })
		}
		if i < 0 {
			continue
		}
		key := routeKey(id, back, f)
		routes[key] = &nb.LogicalRouterStaticRoute{UUID: key, IPPrefix: subnet.String(), Nexthop: gateway.RouterJoin(i).Addr().String(), ExternalIDs: maps.Clone(marks)}
		if network.SNAT != nil && *network.SNAT || network.SNAT == nil && gateway.SNAT {
			key := natKey(id, f)
			nats[key] = &nb.NAT{UUID: key, Type: nb.NATTypeSNAT, LogicalIP: subnet.String(), ExternalIP: gateway.External[i].Addr().String(), ExternalIDs: marks}
		}
	}
	return routes, nats
}
