package policy

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// joined returns the ports with overlapping and adjacent ranges joined, in the order of their protocols. A range that
// is inside another one would become further constants in each ACL of the rule.
func joined(ports []Port) []Port {
	sorted := slices.SortedFunc(slices.Values(ports), func(a, b Port) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), strings.Compare(a.Name, b.Name),
			cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last))
	})
	var all []Port
	for _, p := range sorted {
		if len(all) == 0 {
			all = append(all, p)
			continue
		}
		last := &all[len(all)-1]
		switch {
		case p == *last:
		case p.Protocol != last.Protocol || p.Name != "" || last.Name != "":
			all = append(all, p)
		case last.Last == 0: // all ports of the protocol
		case int(p.First) <= int(last.Last)+1:
			last.Last = max(last.Last, p.Last)
		default:
			all = append(all, p)
		}
	}
	return all
}

// Lengths of what the rows of NB have beside the texts of a policy.
const (
	groupNameLength = len("pg_") + 32
	// perACL is the rest of the external_ids, the name, and the beginning of each expression.
	perACL = 300
	// perGroup is the rest of the Port_Group, and of the entry in the index.
	perGroup = 300
)

// nameOfGroup stands for the name of a group: all names have the same length.
var nameOfGroup = strings.Repeat("g", groupNameLength)

// Cost is what the policy needs in OVN on one network, without pods.
func (p *Policy) Cost() (c cost.Cost) {
	c[cost.Bytes], c[cost.Flows] = p.Bytes(), p.Flows()
	c[cost.Groups] = sets.New(p.selectorsAndNames()...).Len()
	return c
}

// Flows is about how many flows the policy needs on a node, on one network.
func (p *Policy) Flows() (flows int) {
	for _, word := range []string{ingress, egress} {
		if rules := p.rules(word); rules != nil {
			flows += denyFlows
			for i := range *rules {
				flows += (*rules)[i].flows()
			}
		}
	}
	return flows
}

// The flows of a direction that denies, and how often OVN has those of a rule: for new and for open connections.
const denyFlows, perRule = 8, 2

// flows is about how many flows a rule becomes. OVN makes one of each peer and of each constant for ports, and joins
// them, in each family.
func (r *Rule) flows() int {
	constants := len(r.Ports)
	for i := range r.Ports {
		if r.Ports[i].Name == "" && r.Ports[i].Last != 0 {
			constants += len(r.Ports[i].masked()) - 1
		}
	}
	if r.Any {
		return perRule * (1 + constants)
	}
	flows := 0
	for _, is4 := range []bool{true, false} {
		peers := len(r.Peers)
		for _, cidr := range r.CIDRs {
			if cidr.Addr().Is4() == is4 {
				peers++
			}
		}
		if peers > 0 {
			flows += perRule * (1 + peers + constants)
		}
	}
	return flows
}

// Bytes is about how many bytes of NB the policy needs on one network: the expressions of its ACLs, its selectors and
// its text. Of named ports, it counts one number each; Set.SetNumbers has a limit for further ones.
func (p *Policy) Bytes() int {
	bytes := len(p.Text)
	for _, selector := range append(p.selectors(), p.allNames()...) {
		bytes += perGroup + 2*len(selector.String())
	}
	for _, word := range []string{ingress, egress} {
		if rules := p.rules(word); rules != nil {
			bytes += perACL
			for i := range *rules {
				bytes += (*rules)[i].bytes(word == ingress)
			}
		}
	}
	return bytes
}

// bytes is about the length of the ACLs of a rule.
func (r *Rule) bytes(toPod bool) int {
	names := map[string]bool{}
	plain := []Port{}
	for _, port := range r.Ports {
		if port.Name == "" {
			plain = append(plain, port)
		} else {
			names[port.Protocol+"/"+port.Name] = true
		}
	}
	bytes := len(names) * r.matchBytes(toPod, []Port{{Protocol: "tcp", First: 65535, Last: 65535}})
	if len(plain) > 0 || len(names) == 0 {
		bytes += r.matchBytes(toPod, plain)
	}
	return bytes
}

// matchBytes is the length of the expressions that Rule.match makes with these ports. It does not make them, because
// they repeat each word of the peers for each word of the ports.
func (r *Rule) matchBytes(toPod bool, ports []Port) int {
	peers, values := r.matchPeers(toPod, Selector{}, func(Selector) string { return nameOfGroup }), matchPorts(ports)
	if r.Any {
		peers = nil
	}
	const joint = len("() || (outport == @ && ) && ") + groupNameLength
	expressions := max(1, len(peers)) * max(1, len(values))
	return perACL + expressions*joint + max(1, len(values))*total(peers) + max(1, len(peers))*total(values)
}

func total(words []string) (bytes int) {
	for _, word := range words {
		bytes += len(word)
	}
	return bytes
}
