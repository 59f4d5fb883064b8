package ovnnet

import (
	"context"
	"errors"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Listed is what NB has accepted of a network.
type Listed struct {
	NADs   []string          // the NADs whose ports the network takes
	Config *netmodel.Network // nil: there is none that can be parsed
}

// List returns this cluster's networks by ID. A network is listed as long as it has a switch, or the row that says what
// is accepted.
func (n *Networks) List(ctx context.Context) (map[string]*Listed, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids"}},
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, nbrows.KindAccepted, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.Db, results[0])
	if err != nil {
		return nil, err
	}
	networks := map[string]*Listed{}
	for _, sw := range switches {
		switch id, node := sw.ExternalIDs[nbrows.KeyNetwork], sw.ExternalIDs[nbrows.KeyNode]; {
		case id == "", ovndb.OtherCluster(sw.ExternalIDs) != "":
		case sw.UUID == ovndb.SwitchKey(id):
			networks[id] = &Listed{}
		case node != "" && sw.UUID == nbrows.NodeSwitchKey(id, node):
			networks[id] = &Listed{} // the network's own switch may be gone
		}
	}
	accepted, err := ovndb.Rows[nb.Copp](n.Db, results[1])
	for _, row := range accepted {
		id := row.ExternalIDs[nbrows.KeyNetwork]
		if row.UUID == ovndb.AcceptedKey(id) && ovndb.OtherCluster(row.ExternalIDs) == "" {
			networks[id] = &Listed{nbrows.AcceptedNADs(row), n.AcceptedConfig(row)}
		}
	}
	n.ForgetAccepted(func(id string) bool { return networks[id] == nil })
	return networks, err
}

// DeleteUnusedRouters deletes our routers that have no ports and no routes. Such a router exists if a controller ended
// after it had detached or deleted the router's last network, and before it deleted the router.
func (n *Networks) DeleteUnusedRouters(ctx context.Context) error {
	routers, err := n.Routers(ctx)
	if err != nil {
		return err
	}
	for _, r := range routers {
		if name := r.ExternalIDs[nbrows.KeyRouter]; name != "" && r.UUID == ovndb.RouterKey(name) &&
			len(r.Ports)+len(r.StaticRoutes) == 0 {
			if err := n.DeleteUnusedRouter(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stored is what NB stores about a network.
type Stored struct {
	Exists bool              // the network has a switch
	Owner  string            // the network owner, if several NADs share the network by name; "": the row does not name one
	Config *netmodel.Network // the accepted configuration; nil: the row has none that can be parsed
	NADs   []string          // the NADs whose ports the network takes
}

// Router returns the full name of the router that the accepted configuration names; "": none.
func (s *Stored) Router() string {
	if s.Config == nil {
		return ""
	}
	return s.Config.RouterName()
}

// Stored reads what NB stores about a network.
func (n *Networks) Stored(ctx context.Context, id string) (*Stored, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(id), "_uuid", "external_ids"),
		ovndb.Select(nb.CoppTable, ovndb.AcceptedKey(id)),
	})
	if err != nil {
		return nil, err
	}
	var sw *nb.LogicalSwitch
	var accepted *nb.Copp
	err = errors.Join(nbrows.One(n.Db, results[0], &sw), nbrows.One(n.Db, results[1], &accepted))
	if err != nil || sw == nil || sw.ExternalIDs[nbrows.KeyNetwork] != id {
		return &Stored{}, err
	}
	return &Stored{
		Exists: true, Owner: sw.ExternalIDs[nbrows.KeyOwner],
		Config: n.AcceptedConfig(accepted), NADs: nbrows.AcceptedNADs(accepted),
	}, nil
}

// IsShared reports whether a network belongs to all NADs that use its name. The ID of a network of one NAD has a
// namespace.
func IsShared(id string) bool {
	_, _, own := strings.Cut(id, "/")
	return !own
}

// SettleOwner chooses a network owner if somebody has deleted the owner from the row by hand: the namespace of an
// accepted NAD, if possible a namespace for which mayJoin is false.
func (s *Stored) SettleOwner(mayJoin func(namespace string) bool) {
	if s.Owner != "" {
		return
	}
	for _, nad := range s.NADs {
		namespace, _, _ := strings.Cut(nad, "/")
		if s.Owner == "" || mayJoin(s.Owner) && !mayJoin(namespace) {
			s.Owner = namespace
		}
	}
}
