package nbrows

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Kubernetes knows nodes, OVN knows chassis. Each node's agent says in NB which chassis its node is, in a row of the table
// that has claims too.

const (
	KeyKind    = "ovn-multinet/kind"
	KindNode   = "node"
	KeyChassis = "ovn-multinet/chassis"
)

// Keys of external_ids. A row with neither of the first two is not ours.
const (
	KeyNetwork = "ovn-multinet/network"
	KeyRouter  = "ovn-multinet/router"
	keyGateway = "gateway_ip"
	// Of a network's port on a router: the key of the switch's end. Of that, of a localnet network's switch and of a
	// router's gateway: the keys of its claims.
	KeyPort   = "ovn-multinet/port"
	KeyClaims = "ovn-multinet/claims"
	// Of a claim: the name of its port.
	KeyPortName = "ovn-multinet/port-name"
	// Of a pod's port.
	KeySandbox   = "ovn-multinet/sandbox"
	KeyNamespace = "ovn-multinet/namespace"
	KeyPod       = "ovn-multinet/pod"
	KeyInterface = "ovn-multinet/interface"
	// Of a pod's port, a node's switch and a node's own row: its name.
	KeyNode = "ovn-multinet/node"
	// Of the switch of a network that is shared by name: the namespace that made the network. It stays as long as the switch.
	KeyOwner = "ovn-multinet/owner"
	// Of a layer3 network's own switch: the controller's --widest-ipam-subnet, where the network has excludeSubnets and
	// the value is not the default. Agents make the nodes' switches by it.
	KeyWidestIPAM = "ovn-multinet/widest-ipam-subnet"
)

// part is one logical switch; nil: no such row. Both ends of its port on a router are there or neither is.
type Switch struct {
	Row          *nb.LogicalSwitch
	ToRouter     *nb.LogicalSwitchPort // the switch's end: it holds the lease of the first gateway address
	Claims       []*nb.Copp            // on the further gateway addresses
	RouterPort   *nb.LogicalRouterPort
	Localnet     *nb.LogicalSwitchPort // of localnet: the way out
	SubnetClaims []*nb.Copp            // of a node: claims on its blocks
}

// wantedPart is a switch: of a network, or of a node's view of it.
func NewSwitch(network *netmodel.Network, nads []string) *Switch {
	p := &Switch{Row: switchRow(network, nads)}
	id, router := network.ID(), network.RouterName()
	if network.Topology == netmodel.Localnet {
		p.Localnet = ProviderRow(ovndb.PartKey("localnet", id), id+":localnet", network.Physical, network.VLAN, map[string]string{KeyNetwork: id})
	}
	if network.Node != "" {
		for _, block := range network.Subnets {
			p.SubnetClaims = append(p.SubnetClaims, &nb.Copp{
				UUID: ovndb.BlockKey(id, block), Name: "ovn-multinet " + id + " block " + block.String(),
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
	// The colon is in no name of a namespace, pod or interface: a pod's port cannot be called so.
	p.ToRouter = &nb.LogicalSwitchPort{
		UUID: ovndb.AddressKey(network.AddressBook(), gateway),
		Name: name + ":" + router, Type: "router", Addresses: []string{"router"},
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

func (p *Switch) claim(key, what string) {
	id := p.ToRouter.ExternalIDs[KeyNetwork]
	p.Claims = append(p.Claims, &nb.Copp{UUID: key, Name: "ovn-multinet " + id + " " + what,
		ExternalIDs: map[string]string{KeyNetwork: id, KeyPort: p.ToRouter.UUID, KeyPortName: p.ToRouter.Name}})
	p.ToRouter.ExternalIDs[KeyClaims] = strings.TrimSpace(p.ToRouter.ExternalIDs[KeyClaims] + " " + key)
}

// ProviderRow is the port by which a switch is a provider's network: ovn-controller connects it on each node to the bridge
// that ovn-bridge-mappings names.
func ProviderRow(key, name, physical string, vlan int, marks map[string]string) *nb.LogicalSwitchPort {
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
		ExternalIDs: map[string]string{KeyNetwork: network.ID(), ovndb.ConfigKey: network.Canonical()},
	}
	revision := network.Revision()
	for _, nad := range nads {
		row.ExternalIDs[ovndb.AcceptedPrefix+nad] = revision
	}
	if _, wire := network.PhysicalVLAN(); wire {
		row.ExternalIDs[ovndb.BookKey] = network.AddressBook()
	}
	if network.Node != "" {
		row.ExternalIDs[KeyNode], row.ExternalIDs[ovndb.BlocksKey] = network.Node, network.NodeSubnetsText()
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
func AcceptedNADs(sw *nb.LogicalSwitch) []string {
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
func AcceptedConfig(sw *nb.LogicalSwitch) *netmodel.Network {
	text := sw.ExternalIDs[ovndb.ConfigKey]
	namespace, name, own := strings.Cut(sw.ExternalIDs[KeyNetwork], "/")
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
	Discard = "discard"
	// back, in the gateway of a router: the way to the network.
	Back = "back"
)

// Families tell the subnets of a network apart in row keys: a subnet that changes keeps its rows.
var Families = []string{"4", "6"}

func Family(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

func RouteKey(id, kind, family string) string { return ovndb.PartKey("route "+kind+family, id) }

func NatKey(id, family string) string { return ovndb.PartKey("snat"+family, id) }
