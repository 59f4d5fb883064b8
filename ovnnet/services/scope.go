package services

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// setBalancers makes the load balancers of a service the wanted ones, in the group of that scope. The first load
// balancer of a scope makes the group, and the last one deletes it.
func (s *Services) setBalancers(
	ctx context.Context, b *nbrows.Batch, have *present, scope string, wanted map[string]*nb.LoadBalancer,
) error {
	var keys, gone []string // wanted load balancers, and present ones
	for _, protocol := range nbrows.Protocols {
		old, row := have.balancers[protocol], wanted[protocol]
		if row != nil {
			keys = append(keys, row.UUID)
			nbrows.Put(b, nb.LoadBalancerTable, row.UUID, old, row)
		}
		if old != nil {
			gone = append(gone, old.UUID)
			if row == nil {
				b.Add(ovndb.Delete(nb.LoadBalancerTable, old.UUID))
			}
		}
	}
	if was := have.scope(); was != "" && was != scope {
		if err := s.exitScope(ctx, b, have.id, was, gone); err != nil {
			return err
		}
	}
	if scope == "" {
		return nil
	}
	return s.enterScope(ctx, b, have, scope, keys)
}

// end tells the nodes which connections end with the wanted load balancers.
func (have *present) end(ctx context.Context, b *nbrows.Batch, wanted map[string]*nb.LoadBalancer) error {
	scope := have.scope()
	if have.network != nil { // the nodes look for the list of the scope that the network has now
		scope = nbrows.ServiceScope(have.network)
	}
	if scope == "" {
		return nil
	}
	return ended.EndServed(ctx, b, scope, have.balancers, wanted, time.Now())
}

// enterScope adds the load balancers that are not in the group of the scope, and makes the group if it is missing.
func (s *Services) enterScope(
	ctx context.Context, b *nbrows.Batch, have *present, scope string, keys []string,
) error {
	return s.store.EnterGroup(ctx, b, ovndb.ServiceGroupKey(scope), keys, func() error {
		rows, err := s.readScope(ctx, have.network, scope, true)
		if err != nil {
			return err
		}
		return rows.set(b, have.network, scope)
	})
}

// exitScope removes load balancers from the group of a scope, and deletes the group if it has no others.
func (s *Services) exitScope(
	ctx context.Context, b *nbrows.Batch, id, scope string, balancers []string,
) error {
	return s.store.ExitGroup(ctx, b, ovndb.ServiceGroupKey(scope), balancers, func() { deleteScope(b, id, scope) })
}

// deleteScope deletes the group of a scope, and a network's private router.
func deleteScope(b *nbrows.Batch, id, scope string) {
	if scope == nbrows.NetworkScope(id) {
		b.Add(ovndb.UnlinkOne(nb.LogicalSwitchTable, ovndb.SwitchKey(id), "ports", ovndb.ServicePortKey(id)),
			ovndb.Delete(nb.LogicalRouterTable, ovndb.ServiceRouterKey(id)))
	}
	b.DeleteServiceGroup(scope)
}

// ifEmpty limits an operation on a group to a group without load balancers.
func ifEmpty(op ovsdb.Operation) ovsdb.Operation {
	op.Where = append(op.Where, ovsdb.NewCondition("load_balancer", ovsdb.ConditionEqual, ovndb.UUIDs(nil)))
	return op
}

// deleteEmpty deletes a scope whose group was read without load balancers, if it still has none.
func deleteEmpty(b *nbrows.Batch, id, scope string) {
	b.Add(ifEmpty(ovndb.Present(nb.LoadBalancerGroupTable, ovndb.ServiceGroupKey(scope))))
	deleteScope(b, id, scope)
}

// scopeRows are the rows of a scope. router is the private router, with its port and the switch's port to it, or the
// router of the network, without.
type scopeRows struct {
	group    *nb.LoadBalancerGroup // without its load balancers
	empty    bool                  // the group has none
	router   *nb.LogicalRouter
	port     *nb.LogicalRouterPort
	peer     *nb.LogicalSwitchPort
	switches []*nb.LogicalSwitch
	// guards assert that the router has the ports whose switches were read.
	guards []ovsdb.Operation
}

// readScope reads the rows of a network's scope. With all, these are the switches of all networks on the router, and
// otherwise those of the network.
func (s *Services) readScope(ctx context.Context, n *netmodel.Network, scope string, all bool) (*scopeRows, error) {
	id, router := n.ID(), n.RouterName()
	routerKey := ovndb.ServiceRouterKey(id)
	if router != "" {
		routerKey = ovndb.RouterKey(router)
	}
	key := ovndb.ServiceGroupKey(scope)
	db, have := s.store.Db, &scopeRows{}
	results, err := db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid", "name"),
		ifEmpty(ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid")),
		ovndb.Select(nb.LogicalRouterTable, routerKey),
		ovndb.Select(nb.LogicalRouterPortTable, ovndb.ServiceRouterPortKey(id)),
		ovndb.Select(nb.LogicalSwitchPortTable, ovndb.ServicePortKey(id)),
	})
	if err != nil {
		return nil, err
	}
	have.empty = len(results[1].Rows) > 0
	if err := errors.Join(nbrows.One(db, results[0], &have.group), nbrows.One(db, results[2], &have.router),
		nbrows.One(db, results[3], &have.port), nbrows.One(db, results[4], &have.peer)); err != nil {
		return nil, err
	}
	keys := map[string]bool{ovndb.SwitchKey(id): true}
	if router != "" && have.router != nil && (all || n.Topology == netmodel.Layer3) {
		ports := have.router.Ports
		have.guards = []ovsdb.Operation{nbrows.HoldsPorts(nb.LogicalRouterTable, routerKey, ports)}
		if err := s.store.AddSwitches(ctx, keys, router, ports, func(of string) bool { return all || of == id }); err != nil {
			return nil, err
		}
	}
	have.switches, err = ovndb.ReadByKey[nb.LogicalSwitch](ctx, db, nb.LogicalSwitchTable,
		nbrows.SortedKeys(keys), "_uuid", nbrows.ServiceGroups)
	return have, err
}

// set makes the group, the references to it, and a network's private router.
func (have *scopeRows) set(b *nbrows.Batch, n *netmodel.Network, scope string) error {
	id, key := n.ID(), ovndb.ServiceGroupKey(scope)
	nbrows.Put(b, nb.LoadBalancerGroupTable, key, have.group,
		&nb.LoadBalancerGroup{UUID: key, Name: nbrows.GroupPrefix + scope})
	var routerKey string
	if name := n.RouterName(); name == "" {
		router, port, peer := privateRouter(n)
		routerKey = router.UUID
		nbrows.Put(b, nb.LogicalRouterTable, routerKey, have.router, router)
		in := nbrows.InRouter(routerKey, "ports")
		nbrows.PutIn(b, nb.LogicalRouterPortTable, port.UUID, have.port, port, in, in)
		in = nbrows.InSwitch(ovndb.SwitchKey(id))
		nbrows.PutIn(b, nb.LogicalSwitchPortTable, peer.UUID, have.peer, peer, in, in)
	} else if routerKey = ovndb.RouterKey(name); have.router == nil {
		return nbrows.Refusedf("router %s of network %s is not there; the controller mends it within %v",
			name, id, nbrows.ReconcileEvery)
	}
	refer := func(table, of string, present []string) {
		if !slices.Contains(present, key) {
			b.Add(ovndb.Present(table, of), ovndb.Link(table, of, nbrows.ServiceGroups, key))
		}
	}
	var present []string
	if have.router != nil {
		present = have.router.LoadBalancerGroup
	}
	refer(nb.LogicalRouterTable, routerKey, present)
	for _, sw := range have.switches {
		refer(nb.LogicalSwitchTable, sw.UUID, sw.LoadBalancerGroup)
	}
	b.First(have.guards...) // no network has joined the router meanwhile
	return nil
}

// EnsureNetwork makes the references of a network's switches to groups the wanted ones, and its private router if it
// needs one. Call it after the network was changed, and in each reconcile pass: a network that joins a router gets the
// router's services. It also deletes a group without load balancers.
func (s *Services) EnsureNetwork(ctx context.Context, id string) (changed bool, err error) {
	return s.store.Change(ctx, "network "+id, func(b *nbrows.Batch) error {
		results, err := s.store.Db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.CoppTable, ovndb.AcceptedKey(id))})
		if err != nil {
			return err
		}
		var accepted *nb.Copp
		if err := nbrows.One(s.store.Db, results[0], &accepted); err != nil {
			return err
		}
		n := s.store.AcceptedConfig(accepted)
		if n == nil {
			return nil
		}
		if err := s.changeNetwork(ctx, b, n); err != nil {
			return err
		}
		b.First(ovndb.Holds(
			nb.CoppTable, accepted.UUID, "external_ids", ovndb.ConfigKey, accepted.ExternalIDs[ovndb.ConfigKey]))
		return nil
	})
}

func (s *Services) changeNetwork(ctx context.Context, b *nbrows.Batch, n *netmodel.Network) error {
	scope := nbrows.ServiceScope(n)
	key := ovndb.ServiceGroupKey(scope)
	have, err := s.readScope(ctx, n, scope, false)
	if err != nil {
		return err
	}
	keep := map[string]bool{key: true}
	if n.RouterName() != "" {
		for _, group := range nbrows.GroupsOf(n) {
			keep[group] = true
		}
		if err := s.changeJoined(ctx, b, have, n); err != nil {
			return err
		}
	}
	switch {
	case have.group == nil:
	case have.empty:
		deleteEmpty(b, n.ID(), scope)
	default:
		if err := have.set(b, n, scope); err != nil {
			return err
		}
		b.First(ovndb.Present(nb.LoadBalancerGroupTable, key))
	}
	return s.unlinkOthers(ctx, b, have, keep)
}

// changeJoined makes the switches of a network on a router refer to the group of the router's load balancers with
// outside addresses, if there is one. The package outside makes it. It also deletes this group, and the group that the
// network had without a router, if no load balancer is left: two controllers that each removed one of the last two have
// not seen the group empty.
func (s *Services) changeJoined(ctx context.Context, b *nbrows.Batch, have *scopeRows, n *netmodel.Network) error {
	outside, own := nbrows.OutsideScope(n.RouterName()), nbrows.NetworkScope(n.ID())
	key := ovndb.ServiceGroupKey(outside)
	results, err := s.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid"),
		ifEmpty(ovndb.Select(nb.LoadBalancerGroupTable, ovndb.ServiceGroupKey(own), "_uuid")),
		ifEmpty(ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid")),
	})
	if err != nil {
		return err
	}
	if len(results[1].Rows) > 0 {
		deleteEmpty(b, n.ID(), own)
	}
	if len(results[2].Rows) > 0 {
		deleteEmpty(b, n.ID(), outside)
		return nil
	}
	for _, sw := range have.switches {
		if len(results[0].Rows) > 0 && !slices.Contains(sw.LoadBalancerGroup, key) {
			b.Add(ovndb.Present(nb.LoadBalancerGroupTable, key), ovndb.Present(nb.LogicalSwitchTable, sw.UUID),
				ovndb.Link(nb.LogicalSwitchTable, sw.UUID, nbrows.ServiceGroups, key))
		}
	}
	return nil
}

// unlinkOthers removes references of the switches to groups of ours other than those to keep: the network was on
// another router before.
func (s *Services) unlinkOthers(
	ctx context.Context, b *nbrows.Batch, have *scopeRows, keep map[string]bool,
) error {
	others := map[string]bool{}
	for _, sw := range have.switches {
		for _, group := range sw.LoadBalancerGroup {
			if !keep[group] {
				others[group] = true
			}
		}
	}
	groups, err := ovndb.ReadByKey[nb.LoadBalancerGroup](
		ctx, s.store.Db, nb.LoadBalancerGroupTable, slices.Collect(maps.Keys(others)), "_uuid", "name")
	for _, group := range groups {
		scope, ours := strings.CutPrefix(group.Name, nbrows.GroupPrefix)
		if !ours || group.UUID != ovndb.ServiceGroupKey(scope) {
			continue
		}
		for _, sw := range have.switches {
			if slices.Contains(sw.LoadBalancerGroup, group.UUID) {
				b.Add(ovndb.UnlinkOne(nb.LogicalSwitchTable, sw.UUID, nbrows.ServiceGroups, group.UUID))
			}
		}
	}
	return err
}
