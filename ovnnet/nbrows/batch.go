package nbrows

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Batch collects operations, and the first error of building an operation.
type Batch struct {
	Db  *ovndb.DB
	Ops []ovsdb.Operation
	Err error
	// News says that the operations change rows which agents read only after news: see Store.News.
	News bool
}

func (b *Batch) Add(ops ...ovsdb.Operation) { b.Ops = append(b.Ops, ops...) }

func (b *Batch) add(ops []ovsdb.Operation, err error) {
	b.Add(ops...)
	b.Err = cmp.Or(b.Err, err)
}

// notCompared lists the columns that are not compared. References to other rows are added and deleted one by one, and
// "up" and "enabled" are not ours to write.
var notCompared = []string{
	"ports", "acls", "static_routes", "nat", "load_balancer", "load_balancer_group", "up", "enabled",
}

// Put inserts or updates a row of a root table: OVSDB keeps the row without a reference to it.
func Put[T any](b *Batch, table, key string, have, wanted *T) {
	ops, err := ovndb.Change(b.Db, table, key, have, wanted, optionColumns[table], notCompared...)
	b.add(ops, err)
}

// PutIn inserts or updates a row that another row refers to, and moves the reference if its holder changes. If wanted
// is nil, it removes the reference: then the database deletes the row.
func PutIn[T any](b *Batch, table, key string, have, wanted *T, from, to Holder) {
	ops, err := ovndb.ChangeIn(b.Db, table, key, have, wanted, from, to, optionColumns[table], notCompared...)
	b.add(ops, err)
}

// Holder is the row and the column that refer to another row.
type Holder = ovndb.Holder

// InRouter returns the Holder of a row that a column of a router refers to.
func InRouter(key, column string) Holder {
	return Holder{Table: nb.LogicalRouterTable, Key: key, Column: column}
}

// InSwitch returns the Holder of a port of a switch.
func InSwitch(key string) Holder {
	return Holder{Table: nb.LogicalSwitchTable, Key: key, Column: "ports"}
}

// Unchanged returns the assertion that a network still has the configuration and the owner that were read: a later
// change by another controller is not overwritten. A row that is nil was not there.
func Unchanged(id string, own *nb.LogicalSwitch, accepted *nb.Copp) []ovsdb.Operation {
	sw, row := ovndb.Absent(nb.LogicalSwitchTable, ovndb.SwitchKey(id)), ovndb.Absent(nb.CoppTable, ovndb.AcceptedKey(id))
	if own != nil {
		sw = holdsIfRead(nb.LogicalSwitchTable, own.UUID, KeyOwner, own.ExternalIDs)
	}
	if accepted != nil {
		row = holdsIfRead(nb.CoppTable, accepted.UUID, ovndb.ConfigKey, accepted.ExternalIDs)
	}
	return []ovsdb.Operation{sw, row}
}

// holdsIfRead asserts that a row exists and that its external_ids have the value of a key that was read, if there was
// one.
func holdsIfRead(table, uuid, key string, read map[string]string) ovsdb.Operation {
	if value, ok := read[key]; ok {
		return ovndb.Holds(table, uuid, "external_ids", key, value)
	}
	return ovndb.Present(table, uuid)
}

// Compare inserts, updates and deletes rows of one table until the present rows are the wanted rows. Both maps are by
// row key. in returns the row and the column that refer to a row.
func Compare[T any](b *Batch, table string, present, wanted map[string]*T, in func(key string, row *T) Holder) {
	keys := slices.AppendSeq(SortedKeys(present), maps.Keys(wanted))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		var from, to Holder
		old, row := present[key], wanted[key]
		if old != nil {
			from = in(key, old)
		}
		if row != nil {
			to = in(key, row)
		}
		PutIn(b, table, key, old, row, from, to)
	}
}

// First adds assertions before all other operations, if there are any.
func (b *Batch) First(assertions ...ovsdb.Operation) {
	if len(b.Ops) > 0 {
		b.Ops = slices.Concat(assertions, b.Ops)
	}
}

// CompareRoutes compares a network's routes: a discard route is in the router, another route in the router's gateway.
func (b *Batch) CompareRoutes(present, wanted map[string]*nb.LogicalRouterStaticRoute) {
	Compare(b, nb.LogicalRouterStaticRouteTable, present, wanted, func(_ string, r *nb.LogicalRouterStaticRoute) Holder {
		if InMainRouter(r) {
			return InRouter(ovndb.RouterKey(r.ExternalIDs[KeyRouter]), "static_routes")
		}
		return InRouter(ovndb.GatewayKey(r.ExternalIDs[KeyRouter]), "static_routes")
	})
}

// CompareNATs compares a network's NAT rows in the gateway.
func (b *Batch) CompareNATs(present, wanted map[string]*nb.NAT) {
	Compare(b, nb.NATTable, present, wanted, func(_ string, r *nb.NAT) Holder {
		return InRouter(ovndb.GatewayKey(r.ExternalIDs[KeyRouter]), "nat")
	})
}

// SetSwitch changes a present switch, its ports to router and physical network, and its claims into the wanted ones.
// have is nil if the switch does not exist.
func (b *Batch) SetSwitch(have, wanted *Switch) {
	if have == nil {
		have = &Switch{}
	}
	Put(b, nb.LogicalSwitchTable, wanted.Row.UUID, have.Row, wanted.Row)
	b.setPort(have, wanted)
	b.deleteClaims(have, wanted) // first, because another row may need the key of a deleted claim
	b.setEnd(have, wanted)
	b.setClaims(have, wanted)
	in := InSwitch(wanted.Row.UUID)
	if have.Localnet != nil || wanted.Localnet != nil {
		key := ovndb.PartKey("localnet", wanted.Row.ExternalIDs[KeyNetwork])
		PutIn(b, nb.LogicalSwitchPortTable, key, have.Localnet, wanted.Localnet, in, in)
	}
	b.setGuards(have, wanted)
	for _, c := range wanted.SubnetClaims {
		Put(b, nb.CoppTable, c.UUID, findClaim(have.SubnetClaims, c.UUID), c)
	}
}

// SamePort reports whether two router ports have the same name, MAC, subnets and external_ids.
func SamePort(a, b *nb.LogicalRouterPort) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.MAC == b.MAC && maps.Equal(a.ExternalIDs, b.ExternalIDs) &&
		sameWords(a.Networks, b.Networks)
}

// sameWords reports whether two lists are equal apart from their order.
func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// setPort inserts, updates or deletes the router's port to the switch.
func (b *Batch) setPort(have, wanted *Switch) {
	in := func(port *nb.LogicalRouterPort) Holder {
		h := Holder{Table: nb.LogicalRouterTable, Column: "ports"}
		if port != nil {
			h.Key = ovndb.RouterKey(port.ExternalIDs[KeyRouter])
		}
		return h
	}
	if have.RouterPort != nil || wanted.RouterPort != nil {
		PutIn(b, nb.LogicalRouterPortTable, ovndb.RouterPortKey(wanted.Row.Name), have.RouterPort, wanted.RouterPort,
			in(have.RouterPort), in(wanted.RouterPort))
	}
}

// setEnd inserts, updates or deletes the switch's port to the router.
func (b *Batch) setEnd(have, wanted *Switch) {
	const table = nb.LogicalSwitchPortTable
	moved := have.ToRouter != nil && (wanted.ToRouter == nil || have.ToRouter.UUID != wanted.ToRouter.UUID)
	if moved {
		// Delete the row itself too. The database would delete it only at the end of the transaction, and until then a
		// claim could not get its key.
		b.Add(ovndb.Unlink(nb.LogicalSwitchTable, "ports", have.ToRouter.UUID), ovndb.Delete(table, have.ToRouter.UUID))
	}
	switch {
	case wanted.ToRouter == nil:
	case have.ToRouter == nil || moved:
		b.Add(ovndb.Absent(nb.CoppTable, wanted.ToRouter.UUID))
		Put(b, table, wanted.ToRouter.UUID, nil, wanted.ToRouter)
		b.Add(ovndb.Link(nb.LogicalSwitchTable, wanted.Row.UUID, "ports", wanted.ToRouter.UUID))
	default:
		Put(b, table, wanted.ToRouter.UUID, have.ToRouter, wanted.ToRouter)
	}
}

// findClaim returns the claim with that key; nil if there is none.
func findClaim(list []*nb.Copp, key string) *nb.Copp {
	i := slices.IndexFunc(list, func(c *nb.Copp) bool { return c.UUID == key })
	if i < 0 {
		return nil
	}
	return list[i]
}

// deleteClaims deletes the claims of the switch's port to the router that are not wanted.
func (b *Batch) deleteClaims(have, wanted *Switch) {
	for _, c := range have.Claims {
		if findClaim(wanted.Claims, c.UUID) == nil {
			b.Add(ovndb.Delete(nb.CoppTable, c.UUID))
		}
	}
}

// setClaims inserts or updates the wanted claims of the switch's port to the router.
func (b *Batch) setClaims(have, wanted *Switch) {
	for _, c := range wanted.Claims {
		old := findClaim(have.Claims, c.UUID)
		if old == nil {
			b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, c.UUID))
		}
		Put(b, nb.CoppTable, c.UUID, old, c)
	}
}

// DeleteSwitch deletes a switch with its ports and claims.
func (b *Batch) DeleteSwitch(p *Switch) {
	if p.RouterPort != nil {
		b.Add(ovndb.Unlink(nb.LogicalRouterTable, "ports", p.RouterPort.UUID))
	}
	for _, c := range slices.Concat(p.Claims, p.SubnetClaims) {
		b.Add(ovndb.Delete(nb.CoppTable, c.UUID))
	}
	b.Add(ovndb.Delete(nb.LogicalSwitchTable, p.Row.UUID))
}

// SortedKeys returns the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
