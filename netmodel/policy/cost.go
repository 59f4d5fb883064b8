package policy

import (
	"cmp"
	"slices"
	"strings"
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
