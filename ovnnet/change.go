package ovnnet

import (
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// change returns the operations that change the present rows of a network into the wanted rows; none if they are equal.
// The caller has already deleted the node switches that are not wanted.
func (n *Networks) change(have, wanted *networkRows) ([]ovsdb.Operation, error) {
	b := &nbrows.Batch{Db: n.Db}
	nbrows.Put(b, nb.CoppTable, wanted.accepted.UUID, have.accepted, wanted.accepted)
	b.SetSwitch(have.own, wanted.own)
	b.SetBookClaims(have.claims.Rows, wanted.claims)
	for _, key := range nbrows.SortedKeys(wanted.nodes) {
		b.SetSwitch(have.nodes[key], wanted.nodes[key])
	}
	b.CompareRoutes(have.routes, wanted.routes)
	b.CompareNATs(have.nats, wanted.nats)
	// A row may be missing because another controller has deleted the network since its switch was read. Without the
	// switch, nobody would delete a row that is written now.
	b.First(have.unchanged(wanted.accepted.ExternalIDs[nbrows.KeyNetwork])...)
	return b.Ops, b.Err
}
