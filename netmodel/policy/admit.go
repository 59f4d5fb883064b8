package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// Candidate is a policy that is to be served on networks.
type Candidate struct {
	ID       string // Policy.ID
	Created  int64
	Policy   *Policy // nil: it is not in memory; Bytes is its size
	Bytes    int
	Networks []string // IDs of networks
	// Stays tells that this content is accepted already. Policies that are new or edited take no room from it, and it
	// stays when the limits become lower.
	Stays bool
}

// Room is how much the policies of a namespace may need in OVN.
type Room struct {
	Others cost.Cost // what the namespace's objects of other kinds need
	Limit  cost.Cost // of all its objects together
	Tiers  bool      // OVN has tiers of ACLs
}

// Admission is the result of Admit.
type Admission struct {
	Refused map[string]error // why policies cannot be served, by ID
	NoRoom  bool             // some would be served if the namespace had more room
	Needs   cost.Cost        // what the others need
}

// Admit decides which policies of a namespace are served. Without a namespace, they are ClusterNetworkPolicies, which
// have no limit of a namespace. A policy is refused on all of its networks or on none. Those that exceed the limits of
// a namespace are the youngest ones.
func Admit(namespace string, all []Candidate, room Room) *Admission {
	a := &admission{Room: room, namespace: namespace, on: map[string]*onNetwork{}}
	result := &Admission{Refused: map[string]error{}}
	for _, c := range inOrder(namespace, all) {
		if err := a.add(&c); err != nil {
			result.Refused[c.ID] = err
			_, noRoom := errors.AsType[*noRoom](err)
			result.NoRoom = result.NoRoom || noRoom
		}
	}
	result.Needs = a.needs
	return result
}

// noRoom says that the limits of a namespace are reached.
type noRoom struct{ error }

// inOrder returns the policies of a namespace from the oldest to the youngest one, those that stay first. It returns
// ClusterNetworkPolicies in the order in which they are asked. The API leaves the order of policies with one priority
// open; here their names decide.
func inOrder(namespace string, all []Candidate) []Candidate {
	return slices.SortedFunc(slices.Values(all), func(a, b Candidate) int {
		if namespace == "" && a.Policy != nil && b.Policy != nil {
			return cmp.Or(cmp.Compare(a.Policy.Priority, b.Policy.Priority), strings.Compare(a.ID, b.ID))
		}
		stays := func(c *Candidate) int {
			if c.Stays {
				return 0
			}
			return 1
		}
		return cmp.Or(stays(&a)-stays(&b), cmp.Compare(a.Created, b.Created), strings.Compare(a.ID, b.ID))
	})
}

// admission has what the admitted policies use of the limits.
type admission struct {
	Room
	namespace string
	needs     cost.Cost // on all networks
	on        map[string]*onNetwork
}

type onNetwork struct {
	policies, bytes int
	selectors       sets.Set[Selector]
	rules           map[string]int // of ClusterNetworkPolicies, by tier and direction
}

func (a *admission) of(network string) *onNetwork {
	if a.on[network] == nil {
		a.on[network] = &onNetwork{selectors: sets.New[Selector](), rules: map[string]int{}}
	}
	return a.on[network]
}

// add adds a policy, or returns why it is refused.
func (a *admission) add(c *Candidate) error {
	needs := c.cost()
	check := a.ofNamespace
	if a.namespace == "" {
		check = a.ofCluster
	}
	for _, network := range c.Networks {
		if err := check(c, network); err != nil {
			return err
		}
	}
	needs = needs.Times(len(c.Networks))
	if !c.Stays {
		if err := a.checkRoom(needs); err != nil {
			return err
		}
	}
	a.needs = a.needs.Plus(needs)
	for _, network := range c.Networks {
		on := a.of(network)
		on.policies++
		on.bytes += c.Bytes
		if c.Policy == nil {
			continue
		}
		on.selectors.Insert(c.Policy.selectorsAndNames()...)
		for tier, n := range c.Policy.ruleCounts() {
			on.rules[tier] += n
		}
	}
	return nil
}

// selectorsAndNames are the selectors that count: a name of a port has a number at least.
func (p *Policy) selectorsAndNames() []Selector { return append(p.selectors(), p.allNames()...) }

// ofNamespace checks the limits of a namespace.
func (a *admission) ofNamespace(c *Candidate, network string) error {
	on := a.of(network)
	if on.policies >= MaxPolicies {
		return fmt.Errorf("namespace %s has more than %d policies for network %s, and this is not one of the oldest",
			a.namespace, MaxPolicies, network)
	}
	if c.Policy == nil {
		return nil
	}
	more := sets.New(c.Policy.selectorsAndNames()...).Difference(on.selectors)
	if len(on.selectors)+len(more) > MaxSelectors {
		return fmt.Errorf("the policies of namespace %s for network %s have more than %d different selectors",
			a.namespace, network, MaxSelectors)
	}
	return nil
}

// cost is what a policy needs on one network. Of one that is not in memory, only the bytes are known.
func (c *Candidate) cost() (needs cost.Cost) {
	if c.Policy != nil {
		needs = c.Policy.Cost()
		c.Bytes = needs[cost.Bytes]
	}
	needs[cost.Bytes] = c.Bytes
	return needs
}

// checkRoom refuses a policy for which its namespace has no room.
func (a *admission) checkRoom(needs cost.Cost) error {
	if a.namespace == "" {
		return nil
	}
	used := a.Others.Plus(a.needs)
	if r, beyond := needs.Beyond(a.Limit.Less(used)); beyond {
		return &noRoom{cost.Refusal(a.namespace, r, needs, used, a.Limit)}
	}
	return nil
}

// ofCluster checks the limits of ClusterNetworkPolicies.
func (a *admission) ofCluster(c *Candidate, network string) error {
	on := a.of(network)
	if on.bytes+c.Bytes > MaxClusterBytes {
		return fmt.Errorf("the policy needs %d bytes in OVN's database, and the ClusterNetworkPolicies before it need %d "+
			"for network %s: %d is the limit", c.Bytes, on.bytes, network, MaxClusterBytes)
	}
	if c.Policy == nil {
		return nil
	}
	for tier, n := range c.Policy.ruleCounts() {
		if on.rules[tier]+n > MaxClusterRules {
			return fmt.Errorf("the policies of the tier %s for network %s have more than %d %s rules up to this policy",
				c.Policy.Tier, network, MaxClusterRules, strings.TrimPrefix(tier, string(c.Policy.Tier)))
		}
	}
	return c.Policy.needsTiers(a.Tiers)
}

// ruleCounts are the numbers of the rules of a ClusterNetworkPolicy, by tier and direction.
func (p *Policy) ruleCounts() map[string]int {
	counts := map[string]int{}
	for _, word := range []string{ingress, egress} {
		if rules := p.rules(word); rules != nil {
			counts[string(p.Tier)+word] = len(*rules)
		}
	}
	return counts
}

// needsTiers returns an error if the policy needs tiers of ACLs and this OVN has none.
func (p *Policy) needsTiers(tiers bool) error {
	if p.Tier != Admin || tiers {
		return nil
	}
	for _, word := range []string{ingress, egress} {
		rules := p.rules(word)
		if rules == nil {
			continue
		}
		if i := slices.IndexFunc(*rules, func(r Rule) bool { return r.Action == Pass }); i >= 0 {
			return fmt.Errorf("spec.%s[%d].action: Pass needs OVN 23.06 or newer, whose ACLs have tiers", word, i)
		}
	}
	return nil
}

// ByAge compares the ages of two policies: the older one comes first.
func ByAge(a, b *Policy) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.ID(), b.ID()))
}
