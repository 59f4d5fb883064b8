package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// Set has the policies that are for one network: those of one namespace, or the ClusterNetworkPolicies.
type Set struct {
	Network   string // the ID of the network
	Namespace string // "": ClusterNetworkPolicies
	Policies  []*Policy
	// Further are the selectors of peers (Selector.Across) of policies for other networks, which this network reaches. Its
	// ports belong to their groups.
	Further []Selector

	numbers map[Selector][]uint16 // of named ports, by selectors as those of Names; sorted
	beyond  map[Selector]bool     // those of which pods have numbers beyond the limits
}

// NewSet makes a set. refused has the policies that are not part of it, with the reason: those that exceed the limits,
// or those that this OVN cannot serve. tiers reports whether OVN has tiers of ACLs.
func NewSet(network, namespace string, policies []*Policy, tiers bool) (s *Set, refused map[*Policy]error) {
	refused = map[*Policy]error{}
	var all []Candidate
	for _, p := range policies {
		all = append(all, Candidate{ID: p.ID(), Created: p.Created, Policy: p, Networks: []string{network}})
	}
	why := Admit(namespace, all, Room{Limit: cost.Default(), Tiers: tiers}).Refused
	var admitted []*Policy
	for _, p := range policies {
		if err := why[p.ID()]; err != nil {
			refused[p] = err
		} else {
			admitted = append(admitted, p)
		}
	}
	return SetOf(network, namespace, admitted), refused
}

// SetOf makes a set of policies that have been admitted.
func SetOf(network, namespace string, policies []*Policy) *Set {
	s := &Set{Network: network, Namespace: namespace, Policies: slices.Clone(policies)}
	slices.SortFunc(s.Policies, func(a, b *Policy) int {
		if namespace == "" {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Name, b.Name))
		}
		return ByAge(a, b)
	})
	return s
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

// Empty reports whether NB needs no rows of the set.
func (s *Set) Empty() bool { return len(s.Policies)+len(s.Further) == 0 }

// Selectors are the different selectors of the policies, and Further. Each needs a group of ports.
func (s *Set) Selectors() []Selector {
	all := sets.New(s.Further...)
	for _, p := range s.Policies {
		all.Insert(p.selectors()...)
	}
	for name := range s.numbers {
		all.Insert(s.Numbers(name)...)
	}
	return sorted(all)
}

func sorted(all sets.Set[Selector]) []Selector {
	return slices.SortedFunc(maps.Keys(all), func(a, b Selector) int { return strings.Compare(a.String(), b.String()) })
}
