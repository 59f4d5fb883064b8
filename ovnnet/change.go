package ovnnet

import (
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// change returns the operations that change the present rows of a network into the wanted rows; none if they are equal.
// The caller has already deleted the node switches that are not wanted.
func (n *Networks) change(have, want *networkRows) ([]ovsdb.Operation, error) {
	b := &nbrows.Batch{Db: n.Db}
	b.SetSwitch(have.own, want.own)
	b.SetBookClaims(have.claims.Rows, want.claims)
	for key, p := range want.nodes {
		b.SetSwitch(have.nodes[key], p)
	}
	for _, key := range slices.Sorted(maps.Keys(have.routes)) {
		b.SetRoute(key, have.routes[key], want.routes[key])
	}
	for _, key := range slices.Sorted(maps.Keys(want.routes)) {
		if have.routes[key] == nil {
			b.SetRoute(key, nil, want.routes[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have.nats)) {
		b.SetNAT(key, have.nats[key], want.nats[key])
	}
	for _, key := range slices.Sorted(maps.Keys(want.nats)) {
		if have.nats[key] == nil {
			b.SetNAT(key, nil, want.nats[key])
		}
	}
	if len(b.Ops) > 0 && have.own.Row != nil {
		// A row may be missing because another controller has deleted the network since its switch was read. Without the
		// switch, nobody would delete a row that is written now.
		b.Ops = slices.Insert(b.Ops, 0, nbrows.Unchanged(have.own.Row))
	}
	return b.Ops, b.Err
}
