package nbrows

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// KeyOutsideRouter is in every row of an outside address, and has the name of the router.
const KeyOutsideRouter = "ovn-multinet/outside-router"

// DeleteOutside adds the operations that delete the rows of all outside addresses of a router: the same transaction
// deletes the router's gateway, or moves it to another VLAN. The server scans the NAT rows and the claims.
func (n *Store) DeleteOutside(ctx context.Context, b *Batch, router string) error {
	gateway := ovndb.GatewayKey(router)
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, gateway, "_uuid", "nat"),
		ovndb.SelectWith(nb.NATTable, "external_ids", KeyOutsideRouter, router, "_uuid"),
	})
	if err != nil {
		return err
	}
	var row *nb.LogicalRouter
	nats, err := ovndb.Rows[nb.NAT](n.Db, results[1])
	if err := errors.Join(err, One(n.Db, results[0], &row)); err != nil {
		return err
	}
	if row != nil {
		keys := make([]string, len(nats))
		for i, nat := range nats {
			keys[i] = nat.UUID
		}
		b.Add(holds(nb.LogicalRouterTable, gateway, "nat", row.Nat)) // no other address has come meanwhile
		b.Add(ovndb.UnlinkOne(nb.LogicalRouterTable, gateway, "nat", keys...))
	}
	claims := ovndb.Delete(nb.CoppTable, "")
	claims.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
		ovndb.Map(map[string]string{KeyOutsideRouter: router}))}
	b.Add(claims)
	return nil
}
