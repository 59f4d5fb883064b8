package nbrows

import (
	"maps"
	"net/netip"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Kubernetes knows nodes, and OVN knows chassis. Each node's agent writes into NB which chassis its node is. This row
// is in the table of claims (Copp).

// Keys and values of external_ids of the rows that agents write for their nodes.
const (
	KeyKind  = "ovn-multinet/kind"
	KindNode = "node"
	// KindPortList is the kind of a node's port list. See package ovnport.
	KindPortList = "port-list"
	// KindEnded is the kind of a node's list of ended connections. See package ended.
	KindEnded = "ended-connections"
	// KindEndedServed is the kind of a scope's list of ended connections of Services.
	KindEndedServed = "ended-connections of services"
	// KindNews is the kind of the row at ovndb.NewsKey.
	KindNews = "news"
	// KindMTU is the kind of the row with the smallest MTUs of all nodes. See package pathmtu.
	KindMTU     = "mtu"
	KeyChassis  = "ovn-multinet/chassis"
	KeyPhysical = "ovn-multinet/physical-networks" // of a node: those that it has bridges for
	// KindAccepted is the kind of the row with what the controller has accepted for a network.
	KindAccepted = "accepted"
)

// Keys of external_ids. A row of a network or router that has neither of the first two keys is not ours.
const (
	KeyNetwork = "ovn-multinet/network"
	KeyRouter  = "ovn-multinet/router"
	// KeyPort is in a router's port to a switch, and has the row key of the switch's port to the router. In a claim it has
	// the row key of the claim's port.
	KeyPort = "ovn-multinet/port"
	// KeyClaims has the row keys of claims. It is in a switch's port to a router, in a localnet network's switch and in a
	// router's gateway.
	KeyClaims = "ovn-multinet/claims"
	// KeyPortName is in a claim, and has the name of the claim's port.
	KeyPortName = "ovn-multinet/port-name"
	// These keys are in a pod's port.
	KeySandbox   = "ovn-multinet/sandbox"
	KeyNamespace = "ovn-multinet/namespace"
	KeyPod       = "ovn-multinet/pod"
	// KeySubnetBehind is in a route to a subnet behind pods, and has the namespace of the pods.
	KeySubnetBehind = "ovn-multinet/behind"
	KeyInterface    = "ovn-multinet/interface"
	// KeyNode has the name of a node. It is in a pod's port, a node switch, a claim on a node subnet, and the row that
	// says which chassis the node is.
	KeyNode = "ovn-multinet/node"
	// KeyOwner is in the switch of a network that several NADs share by name, and has the namespace that made the network.
	// It stays as long as the switch.
	KeyOwner = "ovn-multinet/owner"
	// KeyWidestIPAM is in a layer3 network's own switch, and has the controller's --widest-ipam-subnet, if the network has
	// excludeSubnets and the value is not the default. Agents create node switches by this value.
	KeyWidestIPAM = "ovn-multinet/widest-ipam-subnet"
)

// Switch is one logical switch with its ports and claims. nil means that a row does not exist. A wanted switch has both
// ToRouter and RouterPort, or neither.
type Switch struct {
	Row          *nb.LogicalSwitch
	ToRouter     *nb.LogicalSwitchPort // the switch's port to the router: the lease of the first gateway address
	Claims       []*nb.Copp            // on the further gateway addresses, and on the gateway's MAC
	RouterPort   *nb.LogicalRouterPort // the router's port to the switch
	Localnet     *nb.LogicalSwitchPort // on a localnet network: the port to the physical network
	SubnetClaims []*nb.Copp            // of a node switch: the claims on its node subnets
	Guards       map[string]*nb.ACL    // of a present switch: the ACLs of ReadGuards, by row key
	toDHCP       string                // of a wanted switch: the match of what OVN answers by DHCP; "": it answers none
	virtual      bool                  // of a wanted switch: its network has virtual addresses of pods
}

// NewSwitch returns the wanted rows of a network's own switch, or of a node switch if network is a node's view.
func NewSwitch(network *netmodel.Network) *Switch {
	p := &Switch{Row: switchRow(network), toDHCP: toDHCP(network), virtual: len(network.VirtualAddresses) > 0}
	id, router := network.ID(), network.RouterName()
	if network.Topology == netmodel.Localnet {
		p.Localnet = ProviderRow(ovndb.PartKey("localnet", id), id+":localnet", network.Physical, network.VLAN,
			map[string]string{KeyNetwork: id})
	}
	if network.Node != "" {
		for _, block := range network.Subnets {
			p.SubnetClaims = append(p.SubnetClaims, &nb.Copp{
				UUID: ovndb.NodeSubnetKey(id, block), Name: "ovn-multinet " + id + " block " + block.String(),
				ExternalIDs: map[string]string{KeyNetwork: id, KeyNode: network.Node},
			})
		}
	}
	if router == "" || len(network.Gateways) == 0 {
		return p
	}
	name := network.SwitchName()
	gateway := network.Gateways[0]
	mac, claimed := ovndb.LeaseMAC(network.Subnets[0], gateway)
	marks := map[string]string{KeyNetwork: id, KeyRouter: router}
	p.RouterPort = &nb.LogicalRouterPort{
		UUID: ovndb.RouterPortKey(name), Name: router + ":" + name, MAC: mac.String(), ExternalIDs: maps.Clone(marks),
	}
	p.ToRouter = &nb.LogicalSwitchPort{
		UUID: ovndb.AddressKey(network.AddressBook(), gateway),
		Name: toRouterName(name, router), Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": p.RouterPort.Name}, ExternalIDs: maps.Clone(marks),
	}
	for i, g := range network.Gateways {
		p.RouterPort.Networks = append(p.RouterPort.Networks, netip.PrefixFrom(g, network.Subnets[i].Bits()).String())
		if i > 0 {
			p.claim(ovndb.AddressKey(network.AddressBook(), g), "address "+g.String())
		}
	}
	if claimed {
		p.claim(ovndb.MACKey(network.AddressBook(), mac), "MAC "+mac.String())
	}
	p.RouterPort.ExternalIDs[KeyPort] = p.ToRouter.UUID
	return p
}

// toRouterName is the name of a switch's port to a router. A name of a namespace, pod or interface cannot contain a
// colon: no pod's port can have this name. The router's port has the name <router>:<switch>. OVN has the ports of
// switches and routers in one table, and does not connect two of one name.
func toRouterName(name, router string) string {
	if name == router {
		return name + ":" + router + ":switch"
	}
	return name + ":" + router
}

// localnetName is the name of the port to the physical network; "": there is none.
func (p *Switch) localnetName() string {
	if p.Localnet == nil {
		return ""
	}
	return p.Localnet.Name
}

// claim adds a claim of the switch's port to the router.
func (p *Switch) claim(key, what string) {
	id := p.ToRouter.ExternalIDs[KeyNetwork]
	p.Claims = append(p.Claims, &nb.Copp{UUID: key, Name: "ovn-multinet " + id + " " + what,
		ExternalIDs: map[string]string{KeyNetwork: id, KeyPort: p.ToRouter.UUID, KeyPortName: p.ToRouter.Name}})
	p.ToRouter.ExternalIDs[KeyClaims] = strings.TrimSpace(p.ToRouter.ExternalIDs[KeyClaims] + " " + key)
}

// ProviderRow returns the localnet port of a switch. On each node ovn-controller connects this port to the bridge that
// ovn-bridge-mappings names for the physical network.
func ProviderRow(key, name, physical string, vlan int, marks map[string]string) *nb.LogicalSwitchPort {
	row := &nb.LogicalSwitchPort{
		UUID: key, Name: name, Type: "localnet", Addresses: []string{"unknown"},
		Options: map[string]string{"network_name": physical}, ExternalIDs: marks,
	}
	if vlan != 0 { // both columns: northd copies tag_request into tag, but never deletes the tag again
		row.TagRequest, row.Tag = &vlan, &vlan
	}
	return row
}

// switchRow returns the Logical_Switch row of a network, or of a node's view of a network. Machines outside Kubernetes
// may use OVN's own allocator on our switches: it must never allocate an address that we lease.
func switchRow(network *netmodel.Network) *nb.LogicalSwitch {
	row := &nb.LogicalSwitch{
		UUID: ovndb.SwitchKey(network.SwitchName()), Name: network.SwitchName(), OtherConfig: map[string]string{},
		ExternalIDs: map[string]string{KeyNetwork: network.ID()},
	}
	if _, wire := network.PhysicalVLAN(); wire {
		row.ExternalIDs[ovndb.BookKey] = network.AddressBook()
	}
	if network.Node != "" {
		row.ExternalIDs[KeyNode], row.ExternalIDs[ovndb.NodeSubnetsKey] = network.Node, network.NodeSubnetsText()
	}
	if !network.PortSecurity {
		row.OtherConfig[fdbAge] = fdbAgeSeconds
	}
	for i, gateway := range network.Gateways {
		if gateway.Is4() {
			setIPAM(row, network, i)
		}
	}
	return row
}

// ours returns the addresses that OVN's allocator must not use: the gateway, the virtual addresses and all leasable
// addresses. It writes ranges, because OVN ignores a CIDR in exclude_ips.
func ours(network *netmodel.Network, i int) string {
	words := append([]string{network.Gateways[i].String()}, virtual(network, i)...)
	for _, span := range network.Leasable(i).Spans() {
		if span.First == span.Last {
			words = append(words, span.First.String())
		} else {
			words = append(words, span.First.String()+".."+span.Last.String())
		}
	}
	return strings.Join(words, " ")
}

// virtual are the virtual addresses of pods in the i-th subnet.
func virtual(network *netmodel.Network, i int) (list []string) {
	for _, v := range network.VirtualAddresses {
		if network.Subnets[i].Contains(v.Address) {
			list = append(list, v.Address.String())
		}
	}
	return list
}

// The kinds of a network's routes. A network has at most one route of each kind and address family.
const (
	// Discard is the route in the router of a layer3 network that discards packets for a node subnet that no node has.
	// Without it these packets would follow the default route.
	Discard = "discard"
	// Back is the route in a router's gateway that leads to the network.
	Back = "back"
)

// InMainRouter reports whether a network's route belongs to its router, and not to the router's gateway.
func InMainRouter(r *nb.LogicalRouterStaticRoute) bool {
	return r.Nexthop == Discard || r.ExternalIDs[KeySubnetBehind] != ""
}

// Families are the address families. They are in row keys instead of the subnets: a subnet that changes keeps its rows.
var Families = []string{"4", "6"}

// Family returns the address family of an address.
func Family(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

// RouteKey returns the row key of a network's route.
func RouteKey(id, kind, family string) string { return ovndb.PartKey("route "+kind+family, id) }

// NatKey returns the row key of a network's SNAT.
func NatKey(id, family string) string { return ovndb.PartKey("snat"+family, id) }
