package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Priorities of ACLs. Higher ones win (ovn-nb(5), table ACL).
const (
	adminPriority    = 30000 // of the first rule of ClusterNetworkPolicies in the tier Admin; the next ones are lower
	allowPriority    = 10002 // what a rule of a MultiNetworkPolicy allows
	logPriority      = 10001 // what no rule of a MultiNetworkPolicy that logs allows
	denyPriority     = 10000 // what no rule of another MultiNetworkPolicy allows
	baselinePriority = 9999  // of the first rule in the tier Baseline; the next ones are lower
	// defaultPriority is the priority of the ACL that sends the packets of a pod through connection tracking. Without
	// a stateful ACL on the switch, OVN would drop the replies of a pod whose ingress is restricted.
	defaultPriority = 1
	passPriority    = 0 // of the ACLs that ask the next tier if no other ACL of the tier matches
)

// Tiers of ACLs (ovn-nb(5), since OVN 23.06). The priorities alone would do, were it not for Pass. It needs a next
// tier.
const (
	adminTier = iota
	ownersTier
	lastTier
)

// ACL is a row of the table ACL.
type ACL struct {
	Policy   string // Policy.ID; "" if the row serves all policies of its group
	Rule     string // such as "ingress 0", "ingress deny" or "replies"
	Subject  Selector
	When     *Rule // what the row matches; nil: all packets of the direction
	ToPod    bool  // direction to-lport; otherwise from-lport
	Tier     int
	Priority int
	Match    string // the same as an expression of OVN
	Action   Action
	Log      bool // OVN logs the packets that the row denies
}

// ACLs returns the ACLs of each group of restricted ports. name returns the name of the group of a selector. OVN
// without tiers has no Pass, and needs none of the ACLs with Pass.
func (s *Set) ACLs(name func(Selector) string) map[Selector][]ACL {
	all := map[Selector][]ACL{}
	add := func(acls ...ACL) {
		for _, a := range acls {
			if all[a.Subject] == nil && a.Subject.Port == "" { // a subject with a port is in the group without it, too
				all[a.Subject] = s.defaults(a.Subject, name)
			}
			all[a.Subject] = append(all[a.Subject], a)
		}
	}
	for _, word := range []string{ingress, egress} {
		next := map[Tier]int{Admin: adminPriority, Baseline: baselinePriority}
		for _, p := range s.Policies {
			if p.Tier == "" {
				add(s.namespaced(p, word, name)...)
				continue
			}
			acls := p.ordered(word, next[p.Tier], name)
			next[p.Tier] -= len(acls)
			add(acls...)
		}
	}
	for subject, acls := range all {
		if subject.Port == "" {
			all[subject] = append(acls, passes(subject, acls, name)...)
		}
	}
	return all
}

// passes returns an ACL with Pass for each tier before the last one that has ACLs for packets to the ports.
//
// When an ACL denies a connection that was allowed before, OVN notes this in connection tracking (ct_mark.blocked).
// Since OVN 23.06, the first tier without a matching ACL takes the note back, lets the packet pass, and asks no later
// tier: every other packet would pass. (OVN's commit 2c67789ce mends this; no release up to 26.03.2 has it.) After
// Pass, OVN asks the next tier. Packets that a port sends need no Pass: OVN has no such rule where it asks ACLs after
// its load balancer.
func passes(subject Selector, acls []ACL, name func(Selector) string) (all []ACL) {
	last := 0
	for _, a := range acls {
		if a.ToPod && a.Policy != "" {
			last = max(last, a.Tier)
		}
	}
	for tier := range last {
		all = append(all, ACL{
			Rule: fmt.Sprintf("to tier %d", tier+1), Subject: subject, ToPod: true, Tier: tier, Priority: passPriority,
			Match: "outport == @" + name(subject), Action: Pass,
		})
	}
	return all
}

// defaults returns the ACLs that each group of restricted ports has.
func (s *Set) defaults(subject Selector, name func(Selector) string) []ACL {
	from := ACL{
		Rule: "replies", Subject: subject, Tier: lastTier, Priority: defaultPriority,
		Match: "inport == @" + name(subject) + " && ip", Action: Accept,
	}
	if s.Namespace != "" {
		return []ACL{from}
	}
	// After Pass, OVN enters a connection into connection tracking only if another ACL accepts it.
	to := from
	to.Rule, to.ToPod, to.Match = "passed", true, "outport == @"+name(subject)+" && ip"
	return []ACL{from, to}
}

// Directions of rules.
const (
	ingress = "ingress"
	egress  = "egress"
)

// fromOthers keeps out the connection of a pod to itself by the virtual address of a service. OVN gives it the virtual
// address as its source, so no peer of a rule matches. It is the only packet of IP with this flag (ovn-sb(5)) that
// somebody has sent: the others are OVN's own answers, and the flag ends with the switch.
const fromOthers = " && flags.loopback == 0"

// rules returns the rules of one direction.
func (p *Policy) rules(word string) *Rules {
	if word == ingress {
		return p.Ingress
	}
	return p.Egress
}

// acl returns an ACL of the policy for one direction. It matches all packets.
func (p *Policy) acl(word, rule string, subject Selector, name func(Selector) string) ACL {
	a := ACL{Policy: p.ID(), Rule: word + " " + rule, Subject: subject, ToPod: word == ingress}
	if a.ToPod {
		a.Match = "outport == @" + name(subject)
	} else {
		a.Match = "inport == @" + name(subject)
	}
	return a
}

// namespaced returns the ACLs of a MultiNetworkPolicy for one direction.
func (s *Set) namespaced(p *Policy, word string, name func(Selector) string) []ACL {
	rules := p.rules(word)
	if rules == nil {
		return nil
	}
	deny := p.acl(word, "deny", p.Subject, name)
	deny.Tier, deny.Priority, deny.Action = ownersTier, denyPriority, Deny
	if deny.Log = p.LogDenied; deny.Log { // decides before another policy that denies the packet too, and does not log
		deny.Priority = logPriority
	}
	deny.Match += " && ip" // keeps ARP out: it must always work. OVN exempts neighbour discovery itself.
	if deny.ToPod {
		deny.Match += fromOthers
	}
	all := []ACL{deny}
	for i := range *rules {
		for _, v := range s.variants(p, word == ingress, &(*rules)[i]) {
			a := p.ruleACL(word, fmt.Sprintf("%d %s", i, v.port), v.subject, v.rule, name)
			a.Tier, a.Priority = ownersTier, allowPriority
			all = append(all, a)
		}
	}
	return all
}

// ordered returns the ACLs of a ClusterNetworkPolicy for one direction. The first one has the given priority.
func (p *Policy) ordered(word string, first int, name func(Selector) string) []ACL {
	rules := p.rules(word)
	if rules == nil {
		return nil
	}
	var all []ACL
	for i := range *rules {
		r := &(*rules)[i]
		a := p.ruleACL(word, fmt.Sprintf("%d %s", i, r.Name), p.Subject, r, name)
		a.Tier, a.Priority = adminTier, first-i
		if p.Tier == Baseline {
			a.Tier = lastTier
			if a.Action == Pass { // nothing comes after this tier, and what nothing denies is allowed
				a.Action = Accept
			}
		}
		a.Log = p.LogDenied && a.Action == Deny
		all = append(all, a)
	}
	return all
}

// ruleACL returns the ACL of a rule. title is its number in the policy with a name.
func (p *Policy) ruleACL(word, title string, subject Selector, r *Rule, name func(Selector) string) ACL {
	a := p.acl(word, strings.TrimSpace(title), subject, name)
	a.When, a.Action = r, r.Action
	words := r.match(a.ToPod, subject, name)
	for i := range words {
		words[i] = a.Match + " && " + words[i]
	}
	a.Match = words[0]
	if len(words) > 1 {
		a.Match = "(" + strings.Join(words, ") || (") + ")"
	}
	return a
}

// match is the rule as expressions of OVN (ovn-sb(5), column match of Logical_Flow). Packets match the rule if they
// match one of the expressions. Each expression compares a field with one set of values and has no other "||":
// ovn-controller makes a flow for each value then. Of fields that are joined by "||" within a longer expression it
// makes a flow for each combination of ports of the group, peers and ports of the rule.
func (r *Rule) match(toPod bool, subject Selector, name func(Selector) string) []string {
	peers, ports := r.matchPeers(toPod, subject, name), matchPorts(r.Ports)
	switch {
	case r.Any && len(ports) == 0:
		return []string{"(ip4 || ip6)"}
	case r.Any:
		return ports
	case len(ports) == 0:
		return peers
	}
	var both []string
	for _, peer := range peers {
		for _, port := range ports {
			both = append(both, peer+" && "+port)
		}
	}
	return both
}

// matchPeers compares the address of the other side: the source of what goes to the pod.
func (r *Rule) matchPeers(toPod bool, subject Selector, name func(Selector) string) (words []string) {
	side := "dst"
	if toPod {
		side = "src"
	}
	var v4, v6 []string
	for _, peer := range r.Peers { // northd makes two address sets of each group (ovn-nb(5), table Address_Set)
		v4, v6 = append(v4, "$"+name(peer)+"_ip4"), append(v6, "$"+name(peer)+"_ip6")
	}
	for _, cidr := range r.CIDRs {
		if cidr.Addr().Is4() {
			v4 = append(v4, cidr.String())
		} else {
			v6 = append(v6, cidr.String())
		}
	}
	for _, family := range []struct {
		field string
		set   []string
	}{{"ip4." + side, v4}, {"ip6." + side, v6}} {
		if len(family.set) > 0 {
			words = append(words, family.field+" == {"+strings.Join(family.set, ", ")+"}")
		}
	}
	if len(words) == 0 {
		return []string{"0"} // every cidr was excepted: nobody is a peer
	}
	if toPod && r.Action != Accept && r.onVLAN() {
		words = append(words, "ip4.src == 0.0.0.0 && ip4.dst == $"+name(subject)+"_ip4")
	}
	return words
}

// matchPorts compares protocol and port of the destination, in one expression for each protocol.
func matchPorts(ports []Port) (words []string) {
	values := map[string][]string{} // by protocol; none: all ports
	for _, p := range ports {
		if all, known := values[p.Protocol]; p.Last == 0 || known && len(all) == 0 {
			values[p.Protocol] = nil
			continue
		}
		values[p.Protocol] = append(values[p.Protocol], p.masked()...)
	}
	for _, protocol := range slices.Sorted(maps.Keys(values)) {
		word := protocol
		if set := values[protocol]; len(set) > 0 {
			word += ".dst == {" + strings.Join(set, ", ") + "}"
		}
		words = append(words, word)
	}
	return words
}

// masked is the range of ports as constants of OVN, which may have masks: 80, 0x50/0xfff0.
func (p *Port) masked() (constants []string) {
	for first, end := int(p.First), int(p.Last)+1; first < end; {
		size := 1
		for first%(2*size) == 0 && first+2*size <= end {
			size *= 2
		}
		if size == 1 {
			constants = append(constants, fmt.Sprint(first))
		} else {
			constants = append(constants, fmt.Sprintf("%#x/%#x", first, 1<<16-size))
		}
		first += size
	}
	return constants
}
