package outside

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// write adds the operations that make the present rows the wanted ones.
func (o *Outside) write(ctx context.Context, b *nbrows.Batch, have *present, wanted *rows) error {
	have.writeBook(b)
	var err error
	if have.key.User.Service != "" {
		err = o.setBalancing(ctx, b, have, wanted.balancing)
	} else {
		have.setNATs(b, wanted.nats)
		err = o.endConnections(ctx, b, have, wanted)
	}
	if wanted.entry != nil {
		nbrows.Put(b, nb.CoppTable, wanted.entry.UUID, have.row, wanted.entry)
	} else {
		b.Add(ovndb.Delete(nb.CoppTable, have.row.UUID))
	}
	return err
}

// writeBook changes the claims and the lists of addresses into the wanted ones.
func (have *present) writeBook(b *nbrows.Batch) {
	for _, key := range nbrows.SortedKeys(have.claims) {
		c := have.claims[key]
		switch {
		case c.Claim == nil && c.ids != nil: // a port's row must not get the key meanwhile
			b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, key))
			nbrows.Put(b, nb.CoppTable, key, nil,
				&nb.Copp{UUID: key, Name: "ovn-multinet " + have.book + " " + c.what, ExternalIDs: c.ids})
		case c.Claim == nil || maps.Equal(c.ids, c.Claim.ExternalIDs):
		case containsAll(c.ids, c.Claim.ExternalIDs): // one user more: the others need not be sent
			base := maps.Clone(c.Claim.ExternalIDs)
			maps.DeleteFunc(base, func(key, _ string) bool { return isUser(key) })
			b.Add(ovndb.HoldsAll(nb.CoppTable, key, "external_ids", base),
				ovndb.SetPair(nb.CoppTable, key, "external_ids", userPrefix+have.key.User.String(), ""))
		default:
			b.Add(ovndb.HasMap(nb.CoppTable, key, "external_ids", c.Claim.ExternalIDs))
			if c.ids == nil {
				b.Add(ovndb.Delete(nb.CoppTable, key))
			} else {
				b.Add(ovndb.Update(nb.CoppTable, key, map[string]any{"external_ids": ovndb.Map(c.ids)}))
			}
		}
	}
	for _, pool := range nbrows.SortedKeys(have.limits) {
		l := have.limits[pool]
		row := have.limitRow(pool, l)
		same := l.row != nil && maps.Equal(row.ExternalIDs, l.row.ExternalIDs)
		if l.row == nil && len(l.used) == 0 || same && !have.gains {
			continue
		}
		if l.row != nil { // two controllers must not both add the last address that the limit allows, or one not at all
			b.Add(ovndb.HasMap(nb.CoppTable, l.key, "external_ids", l.row.ExternalIDs))
		}
		if same {
			continue
		}
		if len(l.used) == 0 {
			b.Add(ovndb.Delete(nb.CoppTable, l.key))
			continue
		}
		nbrows.Put(b, nb.CoppTable, l.key, l.row, row)
	}
}

// setNATs changes the present NAT rows into the wanted ones.
func (have *present) setNATs(b *nbrows.Batch, wanted map[string]*nb.NAT) {
	in := nbrows.InRouter(ovndb.GatewayKey(have.key.Router), "nat")
	for _, key := range nbrows.SortedKeys(have.nats) {
		if wanted[key] == nil {
			b.Add(ovndb.UnlinkOne(in.Table, in.Key, in.Column, key))
		}
	}
	for _, key := range nbrows.SortedKeys(wanted) {
		nbrows.PutIn(b, nb.NATTable, key, have.nats[key], wanted[key], in, in)
	}
}

// setBalancing changes the present rows of a Service into the wanted ones. The first load balancer of a router makes
// the group, and the last one deletes it.
func (o *Outside) setBalancing(ctx context.Context, b *nbrows.Batch, have *present, wanted balancing) error {
	router := have.key.Router
	in := nbrows.Holder{
		Table: nb.LogicalSwitchTable, Key: nbrows.GatewaySwitchKey(router, nbrows.PartExternal), Column: "acls",
	}
	for _, key := range nbrows.SortedKeys(have.acls) {
		if wanted.acls[key] == nil {
			b.Add(ovndb.UnlinkOne(in.Table, in.Key, in.Column, key))
		}
	}
	for _, key := range nbrows.SortedKeys(wanted.acls) {
		nbrows.PutIn(b, nb.ACLTable, key, have.acls[key], wanted.acls[key], in, in)
	}
	var keys, gone []string // wanted load balancers, and present ones
	for _, protocol := range nbrows.Protocols {
		old, row := have.balancers[protocol], wanted.balancers[protocol]
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
	err := ended.EndServed(ctx, b, nbrows.RouterScope(router), have.balancers, wanted.balancers, time.Now())
	if err != nil {
		return err
	}
	scope := nbrows.OutsideScope(router)
	group := ovndb.ServiceGroupKey(scope)
	if len(keys) == 0 {
		return o.store.ExitGroup(ctx, b, group, gone, func() { b.DeleteServiceGroup(scope) })
	}
	return o.store.EnterGroup(ctx, b, group, keys, func() error { return o.createGroup(ctx, b, router) })
}

// createGroup makes the group of a router's outside load balancers. The gateway refers to it, and so do the switches of
// the router's networks. A network that joins the router later gets it from the package services.
func (o *Outside) createGroup(ctx context.Context, b *nbrows.Batch, router string) error {
	main, scope := ovndb.RouterKey(router), nbrows.OutsideScope(router)
	results, err := o.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, main, "_uuid", "ports"),
	})
	if err != nil {
		return err
	}
	var row *nb.LogicalRouter
	if err := nbrows.One(o.store.Db, results[0], &row); err != nil {
		return err
	}
	if row == nil {
		return fmt.Errorf("router %s is not there: %w", router, ErrNotReady)
	}
	keys := map[string]bool{}
	if err := o.store.AddSwitches(ctx, keys, router, row.Ports, func(string) bool { return true }); err != nil {
		return err
	}
	switches, err := ovndb.ReadByKey[nb.LogicalSwitch](
		ctx, o.store.Db, nb.LogicalSwitchTable, nbrows.SortedKeys(keys), "_uuid")
	if err != nil {
		return err
	}
	group := ovndb.ServiceGroupKey(scope)
	nbrows.Put(b, nb.LoadBalancerGroupTable, group, nil,
		&nb.LoadBalancerGroup{UUID: group, Name: nbrows.GroupPrefix + scope})
	refer := func(table, key string) {
		b.Add(ovndb.Present(table, key), ovndb.Link(table, key, nbrows.ServiceGroups, group))
	}
	refer(nb.LogicalRouterTable, ovndb.GatewayKey(router))
	for _, sw := range switches {
		refer(nb.LogicalSwitchTable, sw.UUID)
	}
	b.First(nbrows.HoldsPorts(nb.LogicalRouterTable, main, row.Ports)) // no network has joined the router meanwhile
	return nil
}
