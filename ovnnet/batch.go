package ovnnet

import (
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// batch collects operations and the first error in making one.
type batch struct {
	db  *ovndb.DB
	ops []ovsdb.Operation
	err error
}

func (b *batch) add(ops ...ovsdb.Operation) { b.ops = append(b.ops, ops...) }

func (b *batch) fail(err error) {
	if err != nil && b.err == nil {
		b.err = err
	}
}

func insert[T any](b *batch, row *T) {
	op, err := b.db.Insert(row)
	b.fail(err)
	b.add(op)
}

// Columns of rows that hold other rows are not part of what is compared: those are linked one by one.
var held = []string{"ports", "static_routes", "nat", "up", "enabled"}

// differs returns the columns of a row as they ought to be, nil when they are that.
func differs[T any](b *batch, have, want *T) ovsdb.Row {
	is, err := b.db.Columns(have, held...)
	b.fail(err)
	ought, err := b.db.Columns(want, held...)
	b.fail(err)
	if reflect.DeepEqual(is, ought) {
		return nil
	}
	return ought
}

// put makes a row that nothing has to hold.
func put[T any](b *batch, table, key string, have, want *T) {
	if have == nil {
		insert(b, want)
	} else if row := differs(b, have, want); row != nil {
		b.add(ovndb.Present(table, key), ovndb.Update(table, key, row))
	}
}

// holder is the row and the column that hold another row. The database collects a row that nothing holds.
type holder struct{ table, key, column string }

// putIn makes a row that another holds, or moves it there; nil: none.
func putIn[T any](b *batch, table, key string, have, want *T, from, to holder) {
	if have != nil && (want == nil || from.key != to.key) {
		b.add(ovndb.Unlink(from.table, from.column, key))
	}
	if want == nil {
		return
	}
	put(b, table, key, have, want)
	if have == nil || from.key != to.key {
		b.add(ovndb.Present(to.table, to.key), ovndb.Link(to.table, to.key, to.column, key))
	}
}

// unchanged asserts that a switch is as it was read: another controller's change since is not overwritten.
func unchanged(have *nb.LogicalSwitch) ovsdb.Operation {
	marks := map[string]string{}
	for _, key := range []string{ovndb.ConfigKey, keyOwner} {
		if value, ok := have.ExternalIDs[key]; ok {
			marks[key] = value
		}
	}
	op := ovndb.Present(nb.LogicalSwitchTable, have.UUID)
	op.Where = append(op.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(marks)))
	return op
}

// change lists the operations that make of a network's rows what they ought to be; none when they are that. The nodes'
// parts that are not wanted are gone already.
func (n *Networks) change(have, want *rows) ([]ovsdb.Operation, error) {
	b := &batch{db: n.db}
	b.setPart(have.own, want.own)
	b.setWire(have.wire.rows, want.wire)
	for key, p := range want.nodes {
		b.setPart(have.nodes[key], p)
	}
	for _, key := range slices.Sorted(maps.Keys(have.routes)) {
		b.setRoute(key, have.routes[key], want.routes[key])
	}
	for _, key := range slices.Sorted(maps.Keys(want.routes)) {
		if have.routes[key] == nil {
			b.setRoute(key, nil, want.routes[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have.nats)) {
		b.setNAT(key, have.nats[key], want.nats[key])
	}
	for _, key := range slices.Sorted(maps.Keys(want.nats)) {
		if have.nats[key] == nil {
			b.setNAT(key, nil, want.nats[key])
		}
	}
	if len(b.ops) > 0 && have.own.sw != nil {
		// A row may be missing because another controller has deleted the network since its switch was read. Without the
		// switch, nobody would delete a row that is written now.
		b.ops = slices.Insert(b.ops, 0, unchanged(have.own.sw))
	}
	return b.ops, b.err
}

// setRoute makes a route in the router, or in its gateway.
func (b *batch) setRoute(key string, have, want *nb.LogicalRouterStaticRoute) {
	in := func(r *nb.LogicalRouterStaticRoute) holder {
		h := holder{table: nb.LogicalRouterTable, column: "static_routes"}
		switch {
		case r == nil:
		case r.Nexthop == discard:
			h.key = ovndb.RouterKey(r.ExternalIDs[keyRouter])
		default:
			h.key = ovndb.GatewayKey(r.ExternalIDs[keyRouter])
		}
		return h
	}
	putIn(b, nb.LogicalRouterStaticRouteTable, key, have, want, in(have), in(want))
}

func (b *batch) setNAT(key string, have, want *nb.NAT) {
	in := func(r *nb.NAT) holder {
		h := holder{table: nb.LogicalRouterTable, column: "nat"}
		if r != nil {
			h.key = ovndb.GatewayKey(r.ExternalIDs[keyRouter])
		}
		return h
	}
	putIn(b, nb.NATTable, key, have, want, in(have), in(want))
}

func (b *batch) setPart(have, want *part) {
	if have == nil {
		have = &part{}
	}
	switch {
	case have.sw == nil:
		insert(b, want.sw)
	default:
		if row := differs(b, have.sw, want.sw); row != nil {
			b.add(unchanged(have.sw), ovndb.Update(nb.LogicalSwitchTable, want.sw.UUID, row))
		}
	}
	b.setPort(have, want)
	b.dropClaims(have, want) // before another row gets one of their keys
	b.setEnd(have, want)
	b.setClaims(have, want)
	in := holder{nb.LogicalSwitchTable, want.sw.UUID, "ports"}
	if have.provider != nil || want.provider != nil {
		key := ovndb.PartKey("localnet", want.sw.ExternalIDs[keyNetwork])
		putIn(b, nb.LogicalSwitchPortTable, key, have.provider, want.provider, in, in)
	}
	for _, c := range want.blocks {
		switch old := findClaim(have.blocks, c.UUID); {
		case old == nil:
			insert(b, c)
		case !maps.Equal(old.ExternalIDs, c.ExternalIDs):
			b.add(ovndb.Update(nb.CoppTable, c.UUID, ovsdb.Row{"external_ids": ovndb.Map(c.ExternalIDs)}))
		}
	}
}

func samePort(a, b *nb.LogicalRouterPort) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.MAC == b.MAC && maps.Equal(a.ExternalIDs, b.ExternalIDs) && sameWords(a.Networks, b.Networks)
}

func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// setPort makes the router's end.
func (b *batch) setPort(have, want *part) {
	in := func(port *nb.LogicalRouterPort) holder {
		h := holder{table: nb.LogicalRouterTable, column: "ports"}
		if port != nil {
			h.key = ovndb.RouterKey(port.ExternalIDs[keyRouter])
		}
		return h
	}
	if have.port != nil || want.port != nil {
		putIn(b, nb.LogicalRouterPortTable, ovndb.RouterPortKey(want.sw.Name), have.port, want.port, in(have.port), in(want.port))
	}
}

// setEnd makes the switch's end.
func (b *batch) setEnd(have, want *part) {
	const table = nb.LogicalSwitchPortTable
	moved := have.end != nil && (want.end == nil || have.end.UUID != want.end.UUID)
	if moved {
		// Not left to the database to collect: until then its key would not be free for a claim.
		b.add(ovndb.Unlink(nb.LogicalSwitchTable, "ports", have.end.UUID), ovndb.Delete(table, have.end.UUID))
	}
	switch {
	case want.end == nil:
	case have.end == nil || moved:
		b.add(ovndb.Absent(nb.CoppTable, want.end.UUID))
		insert(b, want.end)
		b.add(ovndb.Link(nb.LogicalSwitchTable, want.sw.UUID, "ports", want.end.UUID))
	default:
		put(b, table, want.end.UUID, have.end, want.end)
	}
}

func findClaim(list []*nb.Copp, key string) *nb.Copp {
	i := slices.IndexFunc(list, func(c *nb.Copp) bool { return c.UUID == key })
	if i < 0 {
		return nil
	}
	return list[i]
}

func (b *batch) dropClaims(have, want *part) {
	for _, c := range have.claims {
		if findClaim(want.claims, c.UUID) == nil {
			b.add(ovndb.Delete(nb.CoppTable, c.UUID))
		}
	}
}

func (b *batch) setClaims(have, want *part) {
	for _, c := range want.claims {
		switch old := findClaim(have.claims, c.UUID); {
		case old == nil:
			b.add(ovndb.Absent(nb.LogicalSwitchPortTable, c.UUID))
			insert(b, c)
		case !maps.Equal(old.ExternalIDs, c.ExternalIDs):
			b.add(ovndb.Update(nb.CoppTable, c.UUID, ovsdb.Row{"external_ids": ovndb.Map(c.ExternalIDs)}))
		}
	}
}

// drop takes a switch away with all that hangs on it.
func (b *batch) drop(p *part) {
	if p.port != nil {
		b.add(ovndb.Unlink(nb.LogicalRouterTable, "ports", p.port.UUID))
	}
	for _, c := range slices.Concat(p.claims, p.blocks) {
		b.add(ovndb.Delete(nb.CoppTable, c.UUID))
	}
	b.add(ovndb.Delete(nb.LogicalSwitchTable, p.sw.UUID))
}
