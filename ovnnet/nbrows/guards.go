package nbrows

import (
	"fmt"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Each switch with pods has ACLs, its guards, that deny what a DHCP server sends. They are ACLs of the switch, so they
// exist before a pod's first packet, and no port needs a membership. They track no connection, and do not make OVN
// track one. No ACL of a policy decides about these packets: OVN asks those after the load balancer, and these before.
// On a network with DHCP, two more let requests of DHCP pass to OVN, and no further. On a network with virtual
// addresses of pods, one denies VRRP of other pods.

// fromDHCPServer matches what a DHCP server sends. Open vSwitch shows no ports of fragments, also not of the first one.
// No server's answer is so long that it needs fragments. So UDP in fragments is denied to where these answers go: to
// all, and in IPv6 to a link-local address. Without its first fragment, a datagram is of no use.
const fromDHCPServer = "(udp.src == {67, 547} || " +
	"(udp && ip.is_frag && (ip4.dst == 255.255.255.255 || ip6.dst == {fe80::/10, ff02::1})))"

// toDHCP matches what machines on a network ask of DHCP that OVN answers: all servers, or its own address; "": OVN
// answers none.
func toDHCP(network *netmodel.Network) string {
	if network.DHCP == nil {
		return ""
	}
	var asked []string
	for i, subnet := range network.Subnets {
		match := "(ip6.dst == ff02::1:2 && udp.src == 546 && udp.dst == 547)"
		if subnet.Addr().Is4() {
			match = fmt.Sprintf("(ip4.dst == {255.255.255.255, %s} && udp.src == 68 && udp.dst == 67)", network.Gateway(i))
		}
		asked = append(asked, match)
	}
	return strings.Join(asked, " || ")
}

// guardACL is one of the guards. Its name is in its row key.
type guardACL struct {
	name      string
	direction string
	priority  int
	action    string
}

var (
	// exempts lets pass what the ports send that may. The next one would deny it. The priority is the highest one.
	exempts = guardACL{"exempt", fromPort, 32767, "allow"}
	denies  = guardACL{"drop", fromPort, 32766, "drop"}
	// untracks decides nothing, because denies has the same match. But OVN sends nothing through connection tracking that
	// an ACL with this action matches. On a switch with stateful ACLs, OVN lets replies of a tracked connection pass.
	untracks = guardACL{"untrack", fromPort, 32765, "allow-stateless"}
	// admits lets requests of DHCP pass whatever policies deny, if OVN answers them: it does so after all ACLs of
	// packets from ports. It does not answer what is no request, and ends keeps that from all ports.
	admits = guardACL{"admit", fromPort, 32767, "allow"}
	ends   = guardACL{"end", toPort, 32767, "drop"}
)

// The directions of ACLs, as seen from OVN.
const (
	fromPort = "from-lport"
	toPort   = "to-lport"
)

var guards = []guardACL{exempts, denies, untracks, admits, ends, othersVRRP}

// GuardCount is the number of rows that ReadGuards reads.
var GuardCount = len(guards)

// key is the row key of a guard of a switch.
func (g guardACL) key(sw string) string { return ovndb.PartKey("DHCP guard "+g.name, sw) }

func (g guardACL) row(key, match string) *nb.ACL {
	row := &nb.ACL{UUID: key, Direction: g.direction, Priority: g.priority, Match: match, Action: g.action}
	if g == admits || g == sendsVRRP || g == othersVRRP {
		row.Options = map[string]string{"apply-after-lb": "true"} // as those of policies
	}
	return row
}

// ReadGuards adds the guards of a switch, for rows by row key.
func ReadGuards(r *Reads, sw string, rows map[string]*nb.ACL) {
	for _, g := range guards {
		ReadInto(r, nb.ACLTable, g.key(sw), g.key(sw), rows)
	}
}

// wantedGuards returns the guards of a switch, by row key. Servers outside send by the port to a physical network or by
// the port to a router: these ports are exempt.
func (p *Switch) wantedGuards() map[string]*nb.ACL {
	var ports []string
	for _, port := range []*nb.LogicalSwitchPort{p.ToRouter, p.Localnet} {
		if port != nil {
			ports = append(ports, fmt.Sprintf("%q", port.Name))
		}
	}
	rows := map[string]*nb.ACL{}
	for _, g := range guards {
		match := fromDHCPServer
		switch g {
		case exempts:
			if match = "inport == {" + strings.Join(ports, ", ") + "} && " + match; len(ports) == 0 {
				continue
			}
		case admits, ends:
			if match = p.toDHCP; match == "" {
				continue
			}
		case othersVRRP:
			if match = vrrpOfOthers(p.localnetName()); !p.virtual {
				continue
			}
		}
		row := g.row(g.key(p.Row.Name), match)
		row.ExternalIDs = map[string]string{KeyNetwork: p.Row.ExternalIDs[KeyNetwork]}
		rows[row.UUID] = row
	}
	return rows
}

// setGuards makes the guards of a switch the wanted ones.
func (b *Batch) setGuards(have, wanted *Switch) {
	in := Holder{Table: nb.LogicalSwitchTable, Key: wanted.Row.UUID, Column: "acls"}
	Compare(b, nb.ACLTable, have.Guards, wanted.wantedGuards(), func(string, *nb.ACL) Holder { return in })
}

// DHCPServersKey is the row key of the port group of the ports that may answer as DHCP servers.
var DHCPServersKey = ovndb.PartKey("DHCP servers", "")

// AddDHCPServers adds the operations that create this group. Its name is netmodel.DHCPServersGroup.
func (b *Batch) AddDHCPServers() {
	match := "inport == @" + netmodel.DHCPServersGroup + " && " + fromDHCPServer
	row := exempts.row(ovndb.PartKey("DHCP servers "+exempts.name, ""), match)
	// The group has no key of ours in external_ids: agents take such a group for one of policies, which no profile is.
	Put(b, nb.PortGroupTable, DHCPServersKey, nil,
		&nb.PortGroup{UUID: DHCPServersKey, Name: netmodel.DHCPServersGroup})
	Put(b, nb.ACLTable, row.UUID, nil, row)
	b.Add(ovndb.Link(nb.PortGroupTable, DHCPServersKey, "acls", row.UUID))
}
