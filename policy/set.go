package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Set has the policies that are for one network: those of one namespace, or the ClusterNetworkPolicies.
type Set struct {
	Network   string // the ID of the network
	Namespace string // "": ClusterNetworkPolicies
	Policies  []*Policy

	numbers map[Selector][]uint16 // of named ports, by selectors as those of Names; sorted
	beyond  map[Selector]bool     // those of which pods have numbers beyond the limits
}

// NewSet makes a set. refused has the policies that are not part of it, with the reason: those that exceed the limits
// of a namespace, which are the youngest ones, or those that this OVN cannot serve. tiers tells whether OVN has tiers
// of ACLs.
func NewSet(network, namespace string, policies []*Policy, tiers bool) (s *Set, refused map[*Policy]error) {
	s = &Set{Network: network, Namespace: namespace}
	if namespace == "" {
		return s, s.addOrdered(policies, tiers)
	}
	return s, s.addByAge(policies)
}

// addByAge adds policies of a namespace.
func (s *Set) addByAge(policies []*Policy) (refused map[*Policy]error) {
	refused = map[*Policy]error{}
	byAge := slices.SortedFunc(slices.Values(policies), func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	selectors := map[Selector]bool{}
	for _, p := range byAge {
		more := map[Selector]bool{}
		for _, selector := range append(p.selectors(), p.allNames()...) { // a name has a number at least
			if !selectors[selector] {
				more[selector] = true
			}
		}
		switch {
		case len(s.Policies) >= MaxPolicies:
			refused[p] = fmt.Errorf("namespace %s has more than %d policies for network %s, and this is not one of the oldest",
				s.Namespace, MaxPolicies, s.Network)
		case len(selectors)+len(more) > MaxSelectors:
			refused[p] = fmt.Errorf("the policies of namespace %s for network %s have more than %d different selectors",
				s.Namespace, s.Network, MaxSelectors)
		default:
			s.Policies = append(s.Policies, p)
			maps.Copy(selectors, more)
		}
	}
	return refused
}

// addOrdered adds ClusterNetworkPolicies in the order in which they are asked. The API leaves the order of policies
// with one priority open; here their names decide.
func (s *Set) addOrdered(policies []*Policy, tiers bool) (refused map[*Policy]error) {
	refused = map[*Policy]error{}
	ordered := slices.SortedFunc(slices.Values(policies), func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Name, b.Name))
	})
	rules := map[string]int{}
	for _, p := range ordered {
		why := error(nil)
		for _, word := range []string{ingress, egress} {
			list := p.rules(word)
			if list == nil {
				continue
			}
			if rules[string(p.Tier)+word] += len(*list); rules[string(p.Tier)+word] > MaxClusterRules {
				why = fmt.Errorf("the policies of the tier %s for network %s have more than %d %s rules up to this policy",
					p.Tier, s.Network, MaxClusterRules, word)
			}
			i := slices.IndexFunc(*list, func(r Rule) bool { return r.Action == Pass })
			if i >= 0 && p.Tier == Admin && !tiers {
				why = fmt.Errorf("spec.%s[%d].action: Pass needs OVN 23.06 or newer, whose ACLs have tiers", word, i)
			}
		}
		if why != nil {
			refused[p] = why
			continue
		}
		s.Policies = append(s.Policies, p)
	}
	return refused
}

// selectors are those of groups, without those of named ports.
func (p *Policy) selectors() []Selector {
	all := []Selector{p.Subject}
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
	for name := range s.numbers {
		for _, selector := range s.Numbers(name) {
			all[selector] = true
		}
	}
	return sorted(all)
}

func sorted(all map[Selector]bool) []Selector {
	return slices.SortedFunc(maps.Keys(all), func(a, b Selector) int { return strings.Compare(a.String(), b.String()) })
}
