package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// A selector of peers selects pods on the policy's network alone, unless other networks reach that one: their pods have
// addresses of their own there. Then one group has the ports of all these networks.

// JointNetworks is Selector.Across of a MultiNetworkPolicy for several networks that reach each other.
func JointNetworks(networks []string) string {
	slices.Sort(networks)
	networks = slices.Compact(networks)
	if len(networks) < 2 {
		return ""
	}
	return fmt.Sprintf("%d networks, %s", len(networks), Hash(map[string]string{"": strings.Join(networks, " ")}))
}

// Across returns the policy with peers on the networks that some words stand for (Selector.Across), each peer once for
// each of the words. Without words, it returns the policy itself.
func (p *Policy) Across(words ...string) *Policy {
	if len(words) == 0 || words[0] == "" {
		if len(p.PeersOn) == 0 {
			return p
		}
		words = nil
	}
	further := *p
	further.PeersOn = words
	for _, rules := range []**Rules{&further.Ingress, &further.Egress} {
		if *rules == nil {
			continue
		}
		all := slices.Clone(**rules)
		for i := range all {
			var peers []Selector
			for _, peer := range all[i].Peers {
				for n := range max(1, len(words)) {
					if peer.Across = ""; len(words) > 0 {
						peer.Across = words[n]
					}
					if !slices.Contains(peers, peer) {
						peers = append(peers, peer)
					}
				}
			}
			all[i].Peers = peers
		}
		*rules = &all
	}
	return &further
}

// Peers are the different selectors of the policy's rules, without those of named ports.
func (p *Policy) Peers() []Selector {
	return sorted(sets.New(p.selectors()[1:]...))
}

// routerWord is before the name of a router in Selector.Across. Other words are those of a VLAN.
const routerWord = "router "

// onVLAN reports whether peers of the rule are on a VLAN of a physical network. Their ports may send from 0.0.0.0,
// which ARP probes need (RFC 5227) and which no group of peers has: such a packet to an address of the subject is
// treated as a peer's. A packet to all hosts, such as a request of DHCP, is not.
func (r *Rule) onVLAN() bool {
	return slices.ContainsFunc(r.Peers, func(peer Selector) bool {
		return peer.Across != "" && !strings.HasPrefix(peer.Across, routerWord)
	})
}
