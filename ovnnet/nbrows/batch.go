package nbrows

import (
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Batch collects operations and the first error in making one.
type Batch struct {
	Db  *ovndb.DB
	Ops []ovsdb.Operation
	Err error
}

func (b *Batch) Add(ops ...ovsdb.Operation) { b.Ops = append(b.Ops, ops...) }

func (b *Batch) fail(err error) {
	if err != nil && b.Err == nil {
		b.Err = err
	}
}

func insert[T any](b *Batch, row *T) {
	op, err := b.Db.Insert(row)
	b.fail(err)
	b.Add(op)
}

// Columns of rows that hold other rows are not part of what is compared: those are linked one by one.
var held = []string{"ports", "static_routes", "nat", "up", "enabled"}

// differs returns the columns of a row as they ought to be, nil when they are that.
func differs[T any](b *Batch, have, want *T) ovsdb.Row {
	is, err := b.Db.Columns(have, held...)
	b.fail(err)
	ought, err := b.Db.Columns(want, held...)
	b.fail(err)
	if reflect.DeepEqual(is, ought) {
		return nil
	}
	return ought
}

// Put makes a row that nothing has to hold.
func Put[T any](b *Batch, table, key string, have, want *T) {
	if have == nil {
		insert(b, want)
	} else if row := differs(b, have, want); row != nil {
		b.Add(ovndb.Present(table, key), ovndb.Update(table, key, row))
	}
}

// Holder is the row and the column that hold another row. The database collects a row that nothing holds.
type Holder struct{ Table, Key, Column string }

// InRouter is the place of a row in a column of a router, inSwitch that of a port in a switch.
func InRouter(key, column string) Holder { return Holder{nb.LogicalRouterTable, key, column} }

func InSwitch(key string) Holder { return Holder{nb.LogicalSwitchTable, key, "ports"} }

// PutIn makes a row that another holds, or moves it there; nil: none.
func PutIn[T any](b *Batch, table, key string, have, want *T, from, to Holder) {
	if have != nil && (want == nil || from.Key != to.Key) {
		b.Add(ovndb.Unlink(from.Table, from.Column, key))
	}
	if want == nil {
		return
	}
	Put(b, table, key, have, want)
	if have == nil || from.Key != to.Key {
		b.Add(ovndb.Present(to.Table, to.Key), ovndb.Link(to.Table, to.Key, to.Column, key))
	}
}

// Unchanged asserts that a switch is as it was read: another controller's change since is not overwritten.
func Unchanged(have *nb.LogicalSwitch) ovsdb.Operation {
	marks := map[string]string{}
	for _, key := range []string{ovndb.ConfigKey, KeyOwner} {
		if value, ok := have.ExternalIDs[key]; ok {
			marks[key] = value
		}
	}
	op := ovndb.Present(nb.LogicalSwitchTable, have.UUID)
	op.Where = append(op.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(marks)))
	return op
}

// SetRoute makes a route in the router, or in its gateway.
func (b *Batch) SetRoute(key string, have, want *nb.LogicalRouterStaticRoute) {
	in := func(r *nb.LogicalRouterStaticRoute) Holder {
		h := Holder{Table: nb.LogicalRouterTable, Column: "static_routes"}
		switch {
		case r == nil:
		case r.Nexthop == Discard:
			h.Key = ovndb.RouterKey(r.ExternalIDs[KeyRouter])
		default:
			h.Key = ovndb.GatewayKey(r.ExternalIDs[KeyRouter])
		}
		return h
	}
	PutIn(b, nb.LogicalRouterStaticRouteTable, key, have, want, in(have), in(want))
}

func (b *Batch) SetNAT(key string, have, want *nb.NAT) {
	in := func(r *nb.NAT) Holder {
		h := Holder{Table: nb.LogicalRouterTable, Column: "nat"}
		if r != nil {
			h.Key = ovndb.GatewayKey(r.ExternalIDs[KeyRouter])
		}
		return h
	}
	PutIn(b, nb.NATTable, key, have, want, in(have), in(want))
}

func (b *Batch) SetSwitch(have, want *Switch) {
	if have == nil {
		have = &Switch{}
	}
	switch {
	case have.Row == nil:
		insert(b, want.Row)
	default:
		if row := differs(b, have.Row, want.Row); row != nil {
			b.Add(Unchanged(have.Row), ovndb.Update(nb.LogicalSwitchTable, want.Row.UUID, row))
		}
	}
	b.setPort(have, want)
	b.deleteClaims(have, want) // before another row gets one of their keys
	b.setEnd(have, want)
	b.setClaims(have, want)
	in := Holder{nb.LogicalSwitchTable, want.Row.UUID, "ports"}
	if have.Localnet != nil || want.Localnet != nil {
		key := ovndb.PartKey("localnet", want.Row.ExternalIDs[KeyNetwork])
		PutIn(b, nb.LogicalSwitchPortTable, key, have.Localnet, want.Localnet, in, in)
	}
	for _, c := range want.SubnetClaims {
		switch old := findClaim(have.SubnetClaims, c.UUID); {
		case old == nil:
			insert(b, c)
		case !maps.Equal(old.ExternalIDs, c.ExternalIDs):
			b.Add(ovndb.Update(nb.CoppTable, c.UUID, ovsdb.Row{"external_ids": ovndb.Map(c.ExternalIDs)}))
		}
	}
}

func SamePort(a, b *nb.LogicalRouterPort) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.MAC == b.MAC && maps.Equal(a.ExternalIDs, b.ExternalIDs) && sameWords(a.Networks, b.Networks)
}

func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// setPort makes the router's end.
func (b *Batch) setPort(have, want *Switch) {
	in := func(port *nb.LogicalRouterPort) Holder {
		h := Holder{Table: nb.LogicalRouterTable, Column: "ports"}
		if port != nil {
			h.Key = ovndb.RouterKey(port.ExternalIDs[KeyRouter])
		}
		return h
	}
	if have.RouterPort != nil || want.RouterPort != nil {
		PutIn(b, nb.LogicalRouterPortTable, ovndb.RouterPortKey(want.Row.Name), have.RouterPort, want.RouterPort, in(have.RouterPort), in(want.RouterPort))
	}
}

// setEnd makes the switch's end.
func (b *Batch) setEnd(have, want *Switch) {
	const table = nb.LogicalSwitchPortTable
	moved := have.ToRouter != nil && (want.ToRouter == nil || have.ToRouter.UUID != want.ToRouter.UUID)
	if moved {
		// Not left to the database to collect: until then its key would not be free for a claim.
		b.Add(ovndb.Unlink(nb.LogicalSwitchTable, "ports", have.ToRouter.UUID), ovndb.Delete(table, have.ToRouter.UUID))
	}
	switch {
	case want.ToRouter == nil:
	case have.ToRouter == nil || moved:
		b.Add(ovndb.Absent(nb.CoppTable, want.ToRouter.UUID))
		insert(b, want.ToRouter)
		b.Add(ovndb.Link(nb.LogicalSwitchTable, want.Row.UUID, "ports", want.ToRouter.UUID))
	default:
		Put(b, table, want.ToRouter.UUID, have.ToRouter, want.ToRouter)
	}
}

func findClaim(list []*nb.Copp, key string) *nb.Copp {
	i := slices.IndexFunc(list, func(c *nb.Copp) bool { return c.UUID == key })
	if i < 0 {
		return nil
	}
	return list[i]
}

func (b *Batch) deleteClaims(have, want *Switch) {
	for _, c := range have.Claims {
		if findClaim(want.Claims, c.UUID) == nil {
			b.Add(ovndb.Delete(nb.CoppTable, c.UUID))
		}
	}
}

func (b *Batch) setClaims(have, want *Switch) {
	for _, c := range want.Claims {
		switch old := findClaim(have.Claims, c.UUID); {
		case old == nil:
			b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, c.UUID))
			insert(b, c)
		case !maps.Equal(old.ExternalIDs, c.ExternalIDs):
			b.Add(ovndb.Update(nb.CoppTable, c.UUID, ovsdb.Row{"external_ids": ovndb.Map(c.ExternalIDs)}))
		}
	}
}

// drop takes a switch away with all that hangs on it.
func (b *Batch) DeleteSwitch(p *Switch) {
	if p.RouterPort != nil {
		b.Add(ovndb.Unlink(nb.LogicalRouterTable, "ports", p.RouterPort.UUID))
	}
	for _, c := range slices.Concat(p.Claims, p.SubnetClaims) {
		b.Add(ovndb.Delete(nb.CoppTable, c.UUID))
	}
	b.Add(ovndb.Delete(nb.LogicalSwitchTable, p.Row.UUID))
}

func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
