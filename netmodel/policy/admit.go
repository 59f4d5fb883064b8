package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Candidate is a policy that is to be served on networks.
type Candidate struct {
	ID       string // Policy.ID
	Created  int64
	Policy   *Policy // nil: it is not in memory; Bytes is its size
	Bytes    int
	Networks []string // IDs of networks
}

// Admit returns the policies of a namespace that cannot be served, by ID, with the reason. Without a namespace, they
// are ClusterNetworkPolicies. A policy is refused on all of its networks or on none. Those that exceed the limits of a
// namespace are the youngest ones. tiers reports whether OVN has tiers of ACLs.
func Admit(namespace string, all []Candidate, tiers bool) (refused map[string]error) {
	refused = map[string]error{}
	a := &admission{namespace, tiers, 0, map[string]*onNetwork{}}
	for _, c := range inOrder(namespace, all) {
		if err := a.add(&c); err != nil {
			refused[c.ID] = err
		}
	}
	return refused
}

// inOrder returns the policies of a namespace from the oldest to the youngest one, and ClusterNetworkPolicies in the
// order in which they are asked. The API leaves the order of policies with one priority open; here their names decide.
func inOrder(namespace string, all []Candidate) []Candidate {
	return slices.SortedFunc(slices.Values(all), func(a, b Candidate) int {
		if namespace == "" && a.Policy != nil && b.Policy != nil {
			return cmp.Or(cmp.Compare(a.Policy.Priority, b.Policy.Priority), strings.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.ID, b.ID))
	})
}

// admission has what the admitted policies use of the limits.
type admission struct {
	namespace string
	tiers     bool
	bytes     int // on all networks
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
	if c.Policy != nil {
		c.Bytes = c.Policy.Bytes()
	}
	for _, network := range c.Networks {
		check := a.ofNamespace
		if a.namespace == "" {
			check = a.ofCluster
		}
		if err := check(c, network); err != nil {
			return err
		}
	}
	for _, network := range c.Networks {
		on := a.of(network)
		on.policies++
		on.bytes += c.Bytes
		a.bytes += c.Bytes
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
	if a.bytes+len(c.Networks)*c.Bytes > MaxNamespaceBytes {
		return fmt.Errorf("the policy needs %d bytes in OVN's database, and the older policies of namespace %s need %d: "+
			"%d is the limit of a namespace", len(c.Networks)*c.Bytes, a.namespace, a.bytes, MaxNamespaceBytes)
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

// ofCluster checks the limits of ClusterNetworkPolicies.
func (a *admission) ofCluster(c *Candidate, network string) error {
	on := a.of(network)
	if on.bytes+c.Bytes > MaxNamespaceBytes {
		return fmt.Errorf("the policy needs %d bytes in OVN's database, and the ClusterNetworkPolicies before it need %d "+
			"for network %s: %d is the limit", c.Bytes, on.bytes, network, MaxNamespaceBytes)
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
	return c.Policy.needsTiers(a.tiers)
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
