package policy

import (
	"cmp"
	"net/netip"
	"slices"
)

// Placed is a set as OVN has it.
type Placed struct {
	ACLs []ACL
	// Members has the row keys of the ports in each selector's group, and Addresses the addresses of these ports.
	Members   map[Selector]map[string]bool
	Addresses map[Selector]map[netip.Addr]bool
}

// Packet is the first packet of a connection. Replies always pass.
type Packet struct {
	Src, Dst netip.Addr
	Protocol string // "tcp", "udp" or "sctp"
	Port     uint16 // of the destination
}

// Verdict is what OVN does with a packet in one direction of a port.
type Verdict struct {
	Allowed bool
	By      []ACL // the ACLs that decide, all with the same tier and priority; empty: no ACL matches
	Passed  []ACL // ACLs with Pass that matched before
	Asked   []ACL // all ACLs of policies for the port in this direction
}

// Decide decides about a packet as OVN does (ovn-nb(5), table ACL). The ACL with the highest priority that matches
// decides in its tier, and the first tier that decides ends the search. After Pass the next tier is asked. What no ACL
// matches is allowed.
func Decide(sets []*Placed, port string, toPod bool, p *Packet) Verdict {
	v := Verdict{Allowed: true}
	var matching []ACL
	for _, s := range sets {
		for _, a := range s.ACLs {
			// An ACL for replies allows last of all, and one to the next tier comes last in its tier. Without them the
			// verdict is the same.
			if a.Policy == "" || a.ToPod != toPod || !s.Members[a.Subject][port] {
				continue
			}
			v.Asked = append(v.Asked, a)
			if a.When == nil || a.When.matches(p, toPod, s.Addresses) {
				matching = append(matching, a)
			}
		}
	}
	slices.SortStableFunc(matching, func(a, b ACL) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(b.Priority, a.Priority))
	})
	for len(matching) > 0 {
		first := matching[0]
		if first.Action == Pass {
			v.Passed = append(v.Passed, first)
			matching = slices.DeleteFunc(matching, func(a ACL) bool { return a.Tier == first.Tier })
			continue
		}
		v.Allowed = first.Action == Accept
		v.By = slices.DeleteFunc(matching, func(a ACL) bool {
			return a.Tier != first.Tier || a.Priority != first.Priority
		})
		break
	}
	return v
}

// matches reports whether the rule matches a packet, as its expression does (Rule.match).
func (r *Rule) matches(p *Packet, toPod bool, addresses map[Selector]map[netip.Addr]bool) bool {
	peer := p.Dst
	if toPod {
		peer = p.Src
	}
	isPeer := r.Any ||
		slices.ContainsFunc(r.Peers, func(s Selector) bool { return addresses[s][peer] }) ||
		slices.ContainsFunc(r.CIDRs, func(cidr netip.Prefix) bool { return cidr.Contains(peer) })
	return isPeer && (len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(port Port) bool {
		return port.Protocol == p.Protocol && (port.Last == 0 || port.First <= p.Port && p.Port <= port.Last)
	}))
}
