package ovnnet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Accepted lists the networks that have a logical switch of this cluster, each with the NADs whose ports it takes.
func (n *Networks) Accepted(ctx context.Context) (map[string][]string, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return nil, err
	}
	networks := map[string][]string{}
	for _, sw := range switches {
		switch id, node := sw.ExternalIDs[keyNetwork], sw.ExternalIDs[keyNode]; {
		case id == "", ovndb.OtherCluster(sw.ExternalIDs) != "":
		case sw.UUID == ovndb.SwitchKey(id):
			networks[id] = accepts(sw)
		case node != "" && sw.UUID == nodeSwitchKey(id, node) && networks[id] == nil:
			networks[id] = nil // its own may be gone
		}
	}
	return networks, nil
}

// DropUnusedRouters deletes our routers that nothing is on: of a controller that ended between a network's last
// transaction and its router's.
func (n *Networks) DropUnusedRouters(ctx context.Context) error {
	routers, err := n.allRouters(ctx)
	if err != nil {
		return err
	}
	for _, r := range routers {
		if name := r.ExternalIDs[keyRouter]; name != "" && r.UUID == ovndb.RouterKey(name) && len(r.Ports)+len(r.StaticRoutes) == 0 {
			if err := n.dropRouter(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// allRouters lists the routers but those of another cluster.
func (n *Networks) allRouters(ctx context.Context) ([]*nb.LogicalRouter, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalRouterTable, Columns: []string{"_uuid", "external_ids", "ports", "static_routes"}},
	})
	if err != nil {
		return nil, err
	}
	routers, err := ovndb.Rows[nb.LogicalRouter](n.db, results[0])
	return slices.DeleteFunc(routers, func(r *nb.LogicalRouter) bool { return ovndb.OtherCluster(r.ExternalIDs) != "" }), err
}

// Standing is what NB says of a network.
type Standing struct {
	There    bool              // the network has a switch
	Owner    string            // of a network that is shared by name: the namespace that made it; "": the row does not say
	InForce  *netmodel.Network // the accepted configuration; nil when the row does not say
	Accepted []string          // the NADs whose ports the network takes
}

// router is the router that the network is attached to; "": none.
func (s *Standing) router() string {
	if s.InForce == nil {
		return ""
	}
	return s.InForce.RouterName()
}

// Standing reads what NB says of a network.
func (n *Networks) Standing(ctx context.Context, id string) (*Standing, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(id), "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	var sw *nb.LogicalSwitch
	if err := one(n.db, results[0], &sw); err != nil || sw == nil || sw.ExternalIDs[keyNetwork] != id {
		return &Standing{}, err
	}
	return &Standing{There: true, Owner: sw.ExternalIDs[keyOwner], InForce: inForce(sw), Accepted: accepts(sw)}, nil
}

// shared tells whether a network belongs to all NADs of its name, and not to one NAD.
func shared(id string) bool { return !strings.Contains(id, "/") }

// settleOwner finds the owner of a shared network when somebody has deleted the owner from its row by hand: the namespace
// of an accepted NAD, if possible of one that does not just join.
func (s *Standing) settleOwner(mayJoin func(namespace string) bool) {
	if s.Owner != "" {
		return
	}
	for _, nad := range s.Accepted {
		namespace, _, _ := strings.Cut(nad, "/")
		if s.Owner == "" || mayJoin(s.Owner) && !mayJoin(namespace) {
			s.Owner = namespace
		}
	}
}

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
