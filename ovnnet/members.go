package ovnnet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Accepted lists the networks that have a logical switch of ours, each with the NADs whose ports it takes.
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
		case id == "":
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

func (n *Networks) allRouters(ctx context.Context) ([]*nb.LogicalRouter, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalRouterTable, Columns: []string{"_uuid", "external_ids", "ports", "static_routes"}},
	})
	if err != nil {
		return nil, err
	}
	return ovndb.Rows[nb.LogicalRouter](n.db, results[0])
}

// InForce returns the configuration that a network was made by, nil when it was not, and the NADs whose ports it takes.
func (n *Networks) InForce(ctx context.Context, id string) (network *conf.Network, accepted []string, err error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(id), "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, nil, err
	}
	var sw *nb.LogicalSwitch
	if err := one(n.db, results[0], &sw); err != nil || sw == nil || sw.ExternalIDs[keyNetwork] != id {
		return nil, nil, err
	}
	return inForce(sw), accepts(sw), nil
}

// member is one NAD of a network.
type member struct {
	nad     conf.NAD
	network *conf.Network // nil: it is not valid
	err     error         // why it is not accepted
	barred  bool          // and never was meant to be
}

// elect decides what a network is that several NADs describe (of ours, one does). The configuration is the one in
// force as long as a NAD says so, else its owner's; those that say something else are not accepted, and neither are
// those in another namespace than the owner unless the operator lets that namespace join. The owner is the first of
// those accepted so far, else of all: one that only joins comes last, then the oldest comes first. It returns nil when
// no NAD is valid.
func elect(members []*member, inForce *conf.Network, accepted []string, mayJoin func(namespace string) bool) *conf.Network {
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
	owner := valid[0]
	chosen := owner
	if inForce != nil {
		for _, m := range valid {
			if m.network.Revision() == inForce.Revision() && (m.nad.Namespace == owner.nad.Namespace || mayJoin(m.nad.Namespace)) {
				chosen = m
				break
			}
		}
	}
	for _, m := range valid {
		if m.nad.Namespace != owner.nad.Namespace && !mayJoin(m.nad.Namespace) {
			m.barred = true
			m.err = fmt.Errorf("network %s is of namespace %s, and namespace %s may not join it: let it with the controller's --joining-namespaces",
				m.network.ID(), owner.nad.Namespace, m.nad.Namespace)
		} else if err := chosen.network.Differs(m.network); err != nil {
			m.err = fmt.Errorf("it differs from %s, which describes network %s too: %w", chosen.nad.ID(), m.network.ID(), err)
		}
	}
	return chosen.network
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
