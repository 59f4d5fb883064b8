package ovnport

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Keys of external_ids of our rows. A row without them is not ours.
const (
	keyNamespace = "ovn-multinet/namespace"
	keyPod       = "ovn-multinet/pod"
	keyPodUID    = "ovn-multinet/pod-uid"
	keyInterface = "ovn-multinet/interface"
	keyNetwork   = "ovn-multinet/network"
	keyRouter    = "ovn-multinet/router" // of the port of a router on the switch
	keyNode      = "ovn-multinet/node"
	keySandbox   = "ovn-multinet/sandbox"
	keyClaims    = "ovn-multinet/claims"    // of a port: the keys of its claims
	keyPort      = "ovn-multinet/port"      // of a claim: the key of its port
	keyPortName  = "ovn-multinet/port-name" // of a claim
	keyPortUUID  = "ovn-multinet/port-uuid" // of an OVS Interface
	// keyGroups is of a port: the keys of the port groups that it is a member of by its security profiles.
	keyGroups = "ovn-multinet/profile-groups"
)

// ourPrefix is the beginning of each of our keys.
const ourPrefix = "ovn-multinet/"

// bookMark is the pair of external_ids that switches and claims of one address book have.
func bookMark(n *netmodel.Network) (key, value string) {
	if _, wire := n.PhysicalVLAN(); wire {
		return ovndb.BookKey, n.AddressBook()
	}
	return keyNetwork, n.ID()
}

// Owner is the sandbox of a pod that ports belong to.
type Owner struct {
	Namespace string
	Pod       string
	UID       string // the pod's
	Sandbox   string // the full container ID
	Node      string
	Chassis   string // external_ids:system-id of the node's Open vSwitch
}

// Request asks for one port of a pod.
type Request struct {
	Interface string
	Network   *netmodel.Network
	IPs       []netip.Prefix   // fixed addresses; a family without one gets a dynamic address
	MAC       net.HardwareAddr // fixed; nil: made from the lease
	// IPAMClaim is the IPAMClaim "<namespace>/<name>" that has the addresses and the MAC of the port; "": the port has its
	// own. If the IPAMClaim has some already, IPs does not count.
	IPAMClaim string
	// Excluded are addresses that are not leased to the pod: it uses them as gateways.
	Excluded []netip.Addr
	// Older is the port of an older sandbox of this pod, if the caller knows it: Ensure takes it over without a read. If
	// the port does not fit the request, or is gone, the request is served as if Older were nil.
	Older *Older
	// Policy is the membership of the port in the groups of policies.
	Policy Policy
	// Profiles are the security profiles of the port.
	Profiles []Profile
	// Refusal is why the controller refused the NAD, for the error when the network is missing.
	Refusal string
}

// Port is a port in NB.
type Port struct {
	UUID      string // the lease's key
	Name      string
	Network   string
	Interface string
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	Claims    []string    // keys
	Switch    string      // the key of the logical switch
	Groups    []PortGroup // of its security profiles
}

// Older is a port, and the sandbox that had it when the caller last knew.
type Older struct {
	Sandbox string
	Port    Port
}

// portName is unique in NB: neither a namespace nor a pod's name contains a slash.
func portName(o *Owner, ifName string) string { return o.Namespace + "/" + o.Pod + "/" + ifName }

// ownerOf reads the owner from a port's row.
func ownerOf(row *nb.LogicalSwitchPort) Owner {
	x := row.ExternalIDs
	return Owner{
		Namespace: x[keyNamespace], Pod: x[keyPod], UID: x[keyPodUID], Sandbox: x[keySandbox],
		Node: x[keyNode], Chassis: row.Options["requested-chassis"],
	}
}

func claimsOf(row *nb.LogicalSwitchPort) []string { return strings.Fields(row.ExternalIDs[keyClaims]) }

// holder names the pod or router that a port belongs to, for an error.
func holder(row *nb.LogicalSwitchPort) string {
	if router := row.ExternalIDs[keyRouter]; router != "" {
		return "router " + router
	}
	if row.ExternalIDs[keySandbox] == "" {
		return "port " + row.Name + ", which is not ours"
	}
	ids := row.ExternalIDs
	return ids[keyNamespace] + "/" + ids[keyPod] + " (interface " + ids[keyInterface] + ")"
}

// text is the MAC and the addresses of a port, in the form of the columns addresses and port_security.
func (p *Port) text() string {
	words := []string{p.MAC.String()}
	for _, a := range p.Addresses {
		words = append(words, a.Addr().String())
	}
	return strings.Join(words, " ")
}

// security is the value of the column port_security. It names the link-local address, too, which port security lets
// through anyhow: OVN before 24.03 drops neighbour advertisements of link-local addresses that are not named.
// It compares their hop limit with a wrong number.
//
// On a physical network it names 0.0.0.0, which is the sender of ARP probes (RFC 5227): OVN drops them otherwise. Its
// port security lets the probes of IPv6 through anyhow.
//
// A guest on an overlay network may have another link-local address than that of its MAC. On a physical network, this
// could be the address of a router there.
func (p *Port) security(physical, guest bool, virtual []netmodel.VirtualAddress) string {
	text := p.text()
	for i := range virtual {
		text += " " + virtual[i].Address.String()
	}
	has := func(is func(netip.Addr) bool) bool {
		return slices.ContainsFunc(p.Addresses, func(a netip.Prefix) bool { return is(a.Addr()) })
	}
	if has(netip.Addr.Is6) {
		text += " " + conf.LinkLocal(p.MAC).String()
	}
	if has(netip.Addr.Is6) && guest && !physical {
		text += " " + guestLinkLocal
	}
	if physical && has(netip.Addr.Is4) {
		text += " " + netip.IPv4Unspecified().String()
	}
	return text
}

// portRow is the row of a port. northd handles static addresses, with port security of the same addresses, without a
// recompute (OVN 23.09.2 and later).
func portRow(o *Owner, d *draft) *nb.LogicalSwitchPort {
	port := d.port()
	addresses := port.text()
	row := &nb.LogicalSwitchPort{
		UUID: d.key(), Name: d.name, Addresses: []string{addresses},
		Options: map[string]string{"requested-chassis": o.Chassis, "iface-id-ver": o.UID},
		ExternalIDs: map[string]string{
			keyNamespace: o.Namespace, keyPod: o.Pod, keyPodUID: o.UID, keyInterface: d.request.Interface,
			keyNetwork: d.request.Network.ID(), keyNode: o.Node, keySandbox: o.Sandbox,
		},
	}
	if network := d.request.Network; network.DHCP != nil {
		row.Dhcpv4Options, row.Dhcpv6Options = dhcpOf(network)
	}
	if len(port.Claims) > 0 {
		row.ExternalIDs[keyClaims] = strings.Join(port.Claims, " ")
	}
	if id := d.request.IPAMClaim; id != "" { // two pods share the port while the machine migrates
		row.ExternalIDs[ovndb.IPAMClaimMark], row.ExternalIDs[keyTarget] = id, noTarget
		delete(row.Options, "iface-id-ver")
		if name := hostnameOf(id); name != "" && d.request.Network.DHCP != nil {
			row.Options[optionHostname] = strconv.Quote(name) // OVN copies it into an expression
		}
	}
	if version := d.podVersion(o); version != "" {
		row.ExternalIDs[ovndb.PodVersionKey] = version
	}
	if groups := d.groups(); len(groups) > 0 {
		row.ExternalIDs[keyGroups] = strings.Join(groups, " ")
	}
	if d.request.Network.PortSecurity {
		_, physical := d.request.Network.PhysicalVLAN()
		guest := d.request.IPAMClaim != "" || d.request.Network.DHCP != nil
		virtual := d.virtual()
		row.PortSecurity = append([]string{port.security(physical, guest, virtual)}, port.virtualSecurity(virtual)...)
		for i, value := range row.PortSecurity {
			row.PortSecurity[i] = d.request.Network.Secured(o.Namespace, value)
		}
		if len(row.PortSecurity) > 1 { // OVN knows no port with a virtual MAC
			row.Addresses = append(row.Addresses, "unknown")
		}
	} else {
		// Without port security the pod may send from MACs that OVN does not know: OVN floods packets to them.
		row.Addresses = append(row.Addresses, "unknown")
	}
	return row
}

// dhcpOf returns the keys of what DHCP answers on a network, for each family that it has.
func dhcpOf(network *netmodel.Network) (v4, v6 *string) {
	for _, subnet := range network.Subnets {
		key := ovndb.DHCPKey(network.ID(), subnet)
		if subnet.Addr().Is4() {
			v4 = &key
		} else {
			v6 = &key
		}
	}
	return v4, v6
}

// optionHostname is the host name that DHCP offers, in the options of a port.
const optionHostname = "hostname"

// hostnameOf returns the name of a virtual machine as a host name: KubeVirt calls the IPAMClaim <machine>.<network>. A
// host name has 63 characters (RFC 1123, section 2.1) and no dot.
func hostnameOf(claim string) string {
	_, name, _ := strings.Cut(claim, "/")
	name, _, _ = strings.Cut(name, ".")
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// podVersion is the version of the pod that the port's groups are chosen by. A port that another sandbox of the same
// pod had keeps its groups.
func (d *draft) podVersion(o *Owner) string {
	if d.stored != nil && d.stored.ExternalIDs[keyPodUID] == o.UID {
		return d.stored.ExternalIDs[ovndb.PodVersionKey]
	}
	return d.request.Policy.PodVersion
}

// claimRow is the row of the claim on the i-th reservation of a port.
func claimRow(o *Owner, d *draft, i int) *nb.Copp {
	r := &d.reservations[i]
	row := &nb.Copp{
		UUID: r.key, Name: "ovn-multinet " + d.request.Network.ID() + " " + r.String(),
		ExternalIDs: map[string]string{
			keyNetwork: d.request.Network.ID(), keyPort: d.key(), keyPortName: d.name, keyNode: o.Node,
		},
	}
	if id := d.request.IPAMClaim; id != "" { // the claim stays when the pod goes
		delete(row.ExternalIDs, keyNode)
		row.ExternalIDs[ovndb.IPAMClaimMark] = id
	}
	mark, value := bookMark(d.request.Network)
	row.ExternalIDs[mark] = value
	return row
}
