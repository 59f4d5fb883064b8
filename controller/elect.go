package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// member is one NAD of a network.
type member struct {
	nad     netmodel.NAD
	network *netmodel.Network // nil: it is not valid
	err     error             // why it is not accepted
	barred  bool              // its namespace may not join the network
}

// elect decides what a network is that several NADs describe (of ours, one does). The configuration is the accepted one
// as long as a NAD says so, else its owner's; those that say something else are not accepted, and neither are those in
// another namespace than the owner unless the operator lets that namespace join. While the network is there its owner is
// the namespace that made it, and what only a joining NAD says never takes the place of the accepted configuration. Of a
// network that is not there yet (owner "") the owner is the namespace of the first NAD: those accepted so far come first,
// one that only joins comes last, then the oldest comes first. It returns nil when no NAD is valid.
func elect(members []*member, owner string, inForce *netmodel.Network, accepted []string, mayJoin func(namespace string) bool) *netmodel.Network {
	slices.SortFunc(members, func(a, b *member) int {
		return cmp.Or(
			falseFirst(!slices.Contains(accepted, a.nad.ID()), !slices.Contains(accepted, b.nad.ID())),
			falseFirst(mayJoin(a.nad.Namespace), mayJoin(b.nad.Namespace)),
			cmp.Compare(a.nad.Created, b.nad.Created), strings.Compare(a.nad.ID(), b.nad.ID()))
	})
	valid := slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return m.network == nil })
	if len(valid) == 0 {
		return nil
	}
	owner = cmp.Or(owner, valid[0].nad.Namespace)
	var mayVote []*member
	for _, m := range valid {
		if m.nad.Namespace == owner || mayJoin(m.nad.Namespace) {
			mayVote = append(mayVote, m)
			continue
		}
		m.barred = true
		m.err = mayNotJoin(m, owner)
	}
	chosen, by := choose(mayVote, owner, inForce)
	for _, m := range mayVote {
		if err := chosen.CheckEqual(m.network); err != nil {
			m.err = fmt.Errorf("it differs from %s, which describes network %s too: %w", by, m.network.ID(), err)
		}
	}
	return chosen
}

// choose returns the configuration that counts, and says which NAD describes it; nil: there is none.
func choose(mayVote []*member, owner string, inForce *netmodel.Network) (chosen *netmodel.Network, by string) {
	for _, m := range mayVote {
		if inForce != nil && m.network.Revision() == inForce.Revision() {
			return m.network, m.nad.ID()
		}
	}
	i := slices.IndexFunc(mayVote, func(m *member) bool { return m.nad.Namespace == owner })
	switch {
	case i >= 0:
		return mayVote[i].network, mayVote[i].nad.ID()
	case inForce != nil || len(mayVote) == 0: // no valid NAD of the owner is there: nobody else decides for it
		return inForce, "the accepted configuration of namespace " + owner
	}
	return mayVote[0].network, mayVote[0].nad.ID()
}

func mayNotJoin(m *member, owner string) error {
	return fmt.Errorf("network %s is of namespace %s, and namespace %s may not join it: let it with the controller's --joining-namespaces",
		m.network.ID(), owner, m.nad.Namespace)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
