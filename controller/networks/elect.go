package networks

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
	network *netmodel.Network // the configuration in the NAD; nil: the NAD is invalid
	err     error             // why the NAD is not accepted
	barred  bool              // the NAD's namespace may not join the network
}

// elect chooses the configuration of a network among its NADs. It returns nil if no NAD is valid, or if no
// configuration is accepted yet and no valid NAD may decide. Several NADs describe the same network only if they share
// it by name.
//
// The accepted configuration stays as long as one NAD has it. After that the owner's configuration is chosen.
// A NAD of a joining namespace alone never replaces the accepted configuration. elect notes in each NAD that is not
// accepted the reason: it differs from the chosen configuration, or its namespace is not the owner and may not join.
//
// The owner of an existing network is the namespace that made it. A network that does not exist yet has no owner ("").
// Its owner is the namespace of the first valid NAD. In this order accepted NADs come first. Among the others, NADs of
// joining namespaces come last, and older NADs come before newer ones.
func elect(members []*member, owner string, current *netmodel.Network, accepted []string,
	mayJoin func(namespace string) bool) *netmodel.Network {
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
	chosen, by := choose(mayVote, owner, current)
	for _, m := range mayVote {
		if err := chosen.CheckEqual(m.network); err != nil {
			m.err = fmt.Errorf("it differs from %s, which describes network %s too: %w", by, m.network.ID(), err)
		}
	}
	return chosen
}

// choose returns the configuration that elect accepts, and by, the words for its origin in messages. It returns nil if
// there is neither an accepted configuration nor a NAD that may vote.
func choose(mayVote []*member, owner string, current *netmodel.Network) (chosen *netmodel.Network, by string) {
	for _, m := range mayVote {
		if current != nil && m.network.Revision() == current.Revision() {
			return m.network, m.nad.ID()
		}
	}
	i := slices.IndexFunc(mayVote, func(m *member) bool { return m.nad.Namespace == owner })
	switch {
	case i >= 0:
		return mayVote[i].network, mayVote[i].nad.ID()
	case current != nil || len(mayVote) == 0: // the owner has no valid NAD: no other namespace decides
		return current, "the accepted configuration of namespace " + owner
	}
	return mayVote[0].network, mayVote[0].nad.ID()
}

// mayNotJoin is the error of a NAD whose namespace may not join the network.
func mayNotJoin(m *member, owner string) error {
	return fmt.Errorf("network %s is of namespace %s, and namespace %s may not join it: "+
		"let it with the controller's --joining-namespaces", m.network.ID(), owner, m.nad.Namespace)
}

// falseFirst compares two values for a sort that puts false before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
