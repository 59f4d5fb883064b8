package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// Policy is one policy on one network.
type Policy struct {
	Kind       string   `json:"kind"`
	Namespace  string   `json:"namespace,omitempty"`
	Name       string   `json:"name"`
	Network    string   `json:"network,omitempty"`
	Pods       string   `json:"pods,omitempty"` // that the policy is for
	Directions []string `json:"directions"`
	Rules      int      `json:"rules"`
	Ports      *int     `json:"ports,omitempty"` // the number of ports of these pods; absent: nobody counted them
	Ready      bool     `json:"ready"`
	Reason     string   `json:"reason,omitempty"`

	policy *policy.Policy // the accepted one; nil: NB does not have it
	view   *policies.View
}

// Reasons of policies that are not ready.
const (
	rowsDiffer = "its rows in NB are not those of the accepted policies: is ovn-multinet-controller running?"
	stillInNB  = "it is deleted, but NB still has it: is ovn-multinet-controller running?"
)

// Policies combines the policies in NB with those of the API or the manifests, which have the states. Without known,
// objects has none because nobody could read them. The result is sorted.
func Policies(objects []*policy.Object, known bool, views []*policies.View) []Policy {
	list, accepted := []Policy{}, map[string]bool{}
	states := map[string]*policy.Object{}
	for _, o := range objects {
		states[o.ID()] = o
	}
	for _, v := range views {
		for _, p := range v.Set.Policies {
			accepted[p.ID()] = true
			ports := len(v.Members[p.Subject])
			line := Policy{Network: v.Network, Ports: &ports, Ready: true, policy: p, view: v}
			line.describe(p.Namespace, p.Name, p)
			switch o := states[p.ID()]; {
			case o != nil:
				line.judge(o)
			case known:
				line.Ready, line.Reason = false, stillInNB
			}
			if line.Ready && v.Differs {
				line.Ready, line.Reason = false, rowsDiffer
			}
			list = append(list, line)
		}
	}
	for _, o := range objects {
		if !accepted[o.ID()] {
			line := Policy{Ports: new(int)}
			line.describe(o.Namespace, o.Name, o.Policy)
			line.judge(o)
			list = append(list, line)
		}
	}
	slices.SortFunc(list, func(a, b Policy) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name), strings.Compare(a.Network, b.Network))
	})
	return list
}

func kindOf(namespace string) string {
	if namespace == "" {
		return policy.ClusterKind
	}
	return policy.Kind
}

// describe notes what the policy says; p is nil if it cannot be parsed.
func (l *Policy) describe(namespace, name string, p *policy.Policy) {
	l.Kind, l.Namespace, l.Name, l.Directions = kindOf(namespace), namespace, name, []string{}
	if p == nil {
		return
	}
	l.Network = cmp.Or(l.Network, conf.OneLine(strings.Join(p.Networks, ","), conf.MaxReason))
	l.Pods = p.Subject.String()
	for _, d := range []struct {
		word  string
		rules *policy.Rules
	}{{"ingress", p.Ingress}, {"egress", p.Egress}} {
		if d.rules != nil {
			l.Directions, l.Rules = append(l.Directions, d.word), l.Rules+len(*d.rules)
		}
	}
}

// judge sets Ready and Reason from the state that the controller wrote.
func (l *Policy) judge(o *policy.Object) {
	var state netmodel.NetworkState
	if json.Unmarshal([]byte(o.State), &state) != nil {
		l.Ready, l.Reason = false, notSeen
		return
	}
	l.Ready, l.Reason = state.Ready, conf.OneLine(state.Reason, conf.MaxReason) // tenants can write it
}

// selected is a selector in words.
func selected(s policy.Selector, namespace string) string {
	if s.Anywhere {
		return s.String()
	}
	joint := s.Across != "" // then it is a number and a hash
	s.Across = ""
	words := s.String() + " of namespace " + namespace
	if joint {
		words += " on the policy's networks"
	}
	return words
}

// OfNamespace returns the MultiNetworkPolicies of a namespace and all ClusterNetworkPolicies.
func OfNamespace(list []Policy, namespace string) []Policy {
	return slices.DeleteFunc(slices.Clone(list), func(p Policy) bool {
		return p.Namespace != "" && p.Namespace != namespace
	})
}

// PolicyDetails is one policy with its rules, and with the groups of ports that the rules name.
type PolicyDetails struct {
	Kind      string       `json:"kind"`
	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name"`
	Ready     bool         `json:"ready"`
	Reason    string       `json:"reason,omitempty"`
	Tier      policy.Tier  `json:"tier,omitempty"`
	Priority  int          `json:"priority,omitempty"`
	Pods      string       `json:"pods,omitempty"`
	Networks  []string     `json:"networks"`
	Rules     []PolicyRule `json:"rules"` // in the order in which OVN asks them, ingress first
	Groups    []Group      `json:"groups"`
}

// PolicyRule is a rule of a policy.
type PolicyRule struct {
	Direction string        `json:"direction"`
	Rule      string        `json:"rule"` // number and name, or "deny": what no rule allows
	Action    policy.Action `json:"action"`
	Peers     []string      `json:"peers"` // empty: everyone
	Ports     []string      `json:"ports"` // empty: all
}

// Group is the ports of a network that a selector selects.
type Group struct {
	Network string `json:"network"`
	Pods    string `json:"pods"`
	Ports   []Port `json:"ports"`
}

// FindPolicy returns a policy with its rules and groups, or nil. The name is "<namespace>/<name>", the name of a
// MultiNetworkPolicy in the namespace, or the name of a ClusterNetworkPolicy, which may begin with a slash.
func FindPolicy(list []Policy, networks []view.Network, namespace, name string) *PolicyDetails {
	ids := [][2]string{{namespace, name}, {"", name}}
	if of, rest, ok := strings.Cut(name, "/"); ok {
		ids = [][2]string{{of, rest}}
	}
	for _, id := range ids {
		lines := slices.DeleteFunc(slices.Clone(list), func(p Policy) bool { return [2]string{p.Namespace, p.Name} != id })
		if len(lines) > 0 {
			return details(lines, networks)
		}
	}
	return nil
}

// details combines the lines of one policy.
func details(lines []Policy, networks []view.Network) *PolicyDetails {
	first := lines[0]
	d := &PolicyDetails{
		Kind: first.Kind, Namespace: first.Namespace, Name: first.Name, Ready: true, Pods: first.Pods,
		Networks: []string{}, Rules: []PolicyRule{}, Groups: []Group{},
	}
	ports := portsByKey(networks)
	for _, l := range lines {
		if !l.Ready || l.Reason != "" {
			d.Ready, d.Reason = d.Ready && l.Ready, l.Reason
		}
		if l.policy == nil {
			continue
		}
		d.Networks = append(d.Networks, l.Network)
		d.Tier, d.Priority = l.policy.Tier, l.policy.Priority
		if len(d.Rules) == 0 {
			d.Rules = rulesOf(l.view, l.policy)
		}
		for _, s := range selectorsOf(l.view, l.policy) {
			g := Group{Network: l.Network, Pods: selected(s, l.Namespace), Ports: []Port{}}
			for _, key := range l.view.Members[s] {
				if p := ports[key]; p != nil {
					g.Ports = append(g.Ports, portOf(p))
				}
			}
			slices.SortFunc(g.Ports, func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
			d.Groups = append(d.Groups, g)
		}
	}
	return d
}

func portsByKey(networks []view.Network) map[string]*view.Port {
	ports := map[string]*view.Port{}
	for i := range networks {
		for j := range networks[i].Ports {
			p := &networks[i].Ports[j]
			ports[p.Key] = p
		}
	}
	return ports
}

// aclsOf returns the ACLs of a policy in the order in which OVN asks them, ingress first.
func aclsOf(v *policies.View, p *policy.Policy) []policy.ACL {
	acls := slices.DeleteFunc(slices.Clone(v.ACLs), func(a policy.ACL) bool { return a.Policy != p.ID() })
	slices.SortStableFunc(acls, func(a, b policy.ACL) int {
		if a.ToPod != b.ToPod {
			return map[bool]int{true: -1, false: 1}[a.ToPod]
		}
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(b.Priority, a.Priority))
	})
	return acls
}

func rulesOf(v *policies.View, p *policy.Policy) []PolicyRule {
	rules := []PolicyRule{}
	for _, a := range aclsOf(v, p) {
		direction, rule, _ := strings.Cut(a.Rule, " ")
		r := PolicyRule{
			Direction: direction, Rule: conf.OneLine(rule, conf.MaxReason), Action: a.Action,
			Peers: []string{}, Ports: []string{},
		}
		if a.When != nil {
			r.Peers, r.Ports = peersOf(a.When, p.Namespace), portsOf(a.When)
		}
		rules = append(rules, r)
	}
	return rules
}

// peersOf lists the peers of a rule; none: everyone.
func peersOf(r *policy.Rule, namespace string) []string {
	peers := []string{}
	for _, s := range r.Peers {
		peers = append(peers, selected(s, namespace))
	}
	for _, cidr := range r.CIDRs {
		peers = append(peers, cidr.String())
	}
	if len(peers) == 0 && !r.Any {
		peers = append(peers, "nobody")
	}
	return peers
}

// portsOf lists the ports of a rule; none: all.
func portsOf(r *policy.Rule) []string {
	ports := []string{}
	for _, p := range r.Ports {
		switch {
		case p.Last == 0:
			ports = append(ports, p.Protocol)
		case p.First == p.Last:
			ports = append(ports, fmt.Sprintf("%s/%d", p.Protocol, p.First))
		default:
			ports = append(ports, fmt.Sprintf("%s/%d-%d", p.Protocol, p.First, p.Last))
		}
	}
	return ports
}

// selectorsOf returns the selector of the pods that a policy is for, and then those of its rules.
func selectorsOf(v *policies.View, p *policy.Policy) []policy.Selector {
	all := []policy.Selector{p.Subject}
	for _, a := range aclsOf(v, p) {
		if a.When == nil {
			continue
		}
		for _, s := range append([]policy.Selector{a.Subject}, a.When.Peers...) {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}
