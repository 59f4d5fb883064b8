package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Priorities of ACLs. Higher ones win (ovn-nb(5), table ACL). Those above and below are for the operator's policies.
const (
	allowPriority = 10001 // what a rule allows
	denyPriority  = 10000 // what no rule of a policy allows
	// repliesPriority is the priority of the ACL that sends the packets of a pod through connection tracking. Without a
	// stateful ACL on the switch, OVN would drop the replies of a pod whose ingress is restricted.
	repliesPriority = 1
)

// Set has the policies of one namespace that are for one network.
type Set struct {
	Network   string // the ID of the network
	Namespace string
	Policies  []*Policy
}

// NewSet makes a set. refused has the policies that exceed the limits of a namespace, which are the youngest ones, with
// the reason.
func NewSet(network, namespace string, policies []*Policy) (s *Set, refused map[*Policy]error) {
	s, refused = &Set{Network: network, Namespace: namespace}, map[*Policy]error{}
	byAge := slices.SortedFunc(slices.Values(policies), func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	selectors := map[Selector]bool{}
	for _, p := range byAge {
		more := map[Selector]bool{}
		for _, selector := range p.selectors() {
			if !selectors[selector] {
				more[selector] = true
			}
		}
		switch {
		case len(s.Policies) >= MaxPolicies:
			refused[p] = fmt.Errorf("namespace %s has more than %d policies for network %s, and this is not one of the oldest",
				namespace, MaxPolicies, network)
		case len(selectors)+len(more) > MaxSelectors:
			refused[p] = fmt.Errorf("the policies of namespace %s for network %s have more than %d different selectors",
				namespace, network, MaxSelectors)
		default:
			s.Policies = append(s.Policies, p)
			maps.Copy(selectors, more)
		}
	}
	return s, refused
}

// subject is the selector of the pods that the policy restricts.
func (p *Policy) subject() Selector { return Selector{Pods: p.Pods} }

func (p *Policy) selectors() []Selector {
	all := []Selector{p.subject()}
	for _, rules := range []*Rules{p.Ingress, p.Egress} {
		if rules != nil {
			for _, r := range *rules {
				all = append(all, r.Peers...)
			}
		}
	}
	return all
}

// Selectors are the different selectors of the policies. Each needs a group of ports.
func (s *Set) Selectors() []Selector {
	all := map[Selector]bool{}
	for _, p := range s.Policies {
		for _, selector := range p.selectors() {
			all[selector] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b Selector) int { return strings.Compare(a.String(), b.String()) })
}

// ACL is a row of the table ACL.
type ACL struct {
	Policy   string // "<namespace>/<name>"; "" if the row serves all policies of its group
	Rule     string // such as "ingress 0", "ingress deny" or "replies"
	ToPod    bool   // direction to-lport; otherwise from-lport
	Priority int
	Match    string
	Allow    bool // allow-related; otherwise drop
}

// ACLs returns the ACLs of each group of restricted ports. name returns the name of the group of a selector.
func (s *Set) ACLs(name func(Selector) string) map[Selector][]ACL {
	all := map[Selector][]ACL{}
	for _, p := range s.Policies {
		subject := p.subject()
		group := "@" + name(subject)
		if all[subject] == nil {
			all[subject] = []ACL{{
				Rule: "replies", Priority: repliesPriority, Match: "inport == " + group + " && ip", Allow: true,
			}}
		}
		all[subject] = append(all[subject], p.direction("ingress", "outport == "+group, p.Ingress, name)...)
		all[subject] = append(all[subject], p.direction("egress", "inport == "+group, p.Egress, name)...)
	}
	return all
}

func (p *Policy) direction(word, port string, rules *Rules, name func(Selector) string) []ACL {
	if rules == nil {
		return nil
	}
	toPod := word == "ingress"
	// "ip" keeps ARP out: it must always work. OVN exempts neighbour discovery itself.
	all := []ACL{{
		Policy: p.ID(), Rule: word + " deny", ToPod: toPod, Priority: denyPriority, Match: port + " && ip",
	}}
	for i, r := range *rules {
		all = append(all, ACL{
			Policy: p.ID(), Rule: fmt.Sprintf("%s %d", word, i), ToPod: toPod, Priority: allowPriority,
			Match: port + " && " + r.match(toPod, name), Allow: true,
		})
	}
	return all
}

// match is the rule as an expression of OVN (ovn-sb(5), column match of Logical_Flow).
func (r *Rule) match(toPod bool, name func(Selector) string) string {
	words := []string{}
	if !r.Any {
		words = append(words, r.matchPeers(toPod, name))
	}
	if len(r.Ports) > 0 {
		words = append(words, matchPorts(r.Ports))
	}
	if len(words) == 0 {
		return "(ip4 || ip6)"
	}
	return strings.Join(words, " && ")
}

// matchPeers compares the address of the other side: the source of what goes to the pod.
func (r *Rule) matchPeers(toPod bool, name func(Selector) string) string {
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
	var words []string
	for _, family := range []struct {
		field string
		set   []string
	}{{"ip4." + side, v4}, {"ip6." + side, v6}} {
		if len(family.set) > 0 {
			words = append(words, family.field+" == {"+strings.Join(family.set, ", ")+"}")
		}
	}
	if len(words) == 0 {
		return "0" // every cidr was excepted: nobody is a peer
	}
	return "(" + strings.Join(words, " || ") + ")"
}

// matchPorts compares protocol and port of the destination.
func matchPorts(ports []Port) string {
	var words []string
	single := map[string][]string{}
	for _, p := range ports {
		switch {
		case p.Last == 0:
			words = append(words, p.Protocol)
		case p.First == p.Last:
			single[p.Protocol] = append(single[p.Protocol], fmt.Sprint(p.First))
		default:
			words = append(words, fmt.Sprintf("(%[1]s.dst >= %[2]d && %[1]s.dst <= %[3]d)", p.Protocol, p.First, p.Last))
		}
	}
	for _, protocol := range slices.Sorted(maps.Keys(single)) {
		words = append(words, fmt.Sprintf("%s.dst == {%s}", protocol, strings.Join(single[protocol], ", ")))
	}
	return "(" + strings.Join(words, " || ") + ")"
}
