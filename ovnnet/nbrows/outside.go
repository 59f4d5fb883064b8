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

// KeyOutsideUse is in the row that lists the outside addresses of a user, and says what they are used for.
// UseForward: the user has ports of the gateway's own addresses. The load balancers of such a user have the key, too.
const (
	KeyOutsideUse = "ovn-multinet/outside-use"
	UseForward    = "forward"
)

// Parts of a gateway, as its row keys and row names have them.
const (
	PartExternal = "external" // the external switch, and the gateway's port to it
	PartProvider = "provider" // the external switch's port to the physical network
)

// GatewayGroupKey returns the row key of the HA_Chassis_Group of a router's gateway.
func GatewayGroupKey(router string) string { return ovndb.PartKey("ha-chassis-group", router) }

// GatewaySwitchKey returns the row key of a gateway's join switch or external switch.
func GatewaySwitchKey(router, part string) string {
	return ovndb.PartKey("gateway switch "+part, router)
}

// GatewayPartName returns the name of a part of a router's gateway.
func GatewayPartName(router, part string) string { return router + ":" + part }

// DeleteOutside adds the operations that delete the rows of all outside addresses of a router: the same transaction
// deletes the router's gateway, or moves it to another VLAN. The server scans the NAT rows, the load balancers
// and the claims.
func (n *Store) DeleteOutside(ctx context.Context, b *Batch, router string) error {
	gateway, external := ovndb.GatewayKey(router), GatewaySwitchKey(router, PartExternal)
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
	// All ACLs of the external switch are of outside addresses.
	b.Add(ovndb.Update(nb.LogicalSwitchTable, external, ovsdb.Row{"acls": ovndb.UUIDs(nil)}))
	for _, table := range []string{nb.CoppTable, nb.LoadBalancerTable} {
		rows := ovndb.Delete(table, "")
		rows.Where = withIDs(map[string]string{KeyOutsideRouter: router})
		b.Add(rows)
	}
	b.DeleteServiceGroup(OutsideScope(router))
	return nil
}

// StopForwards adds the operation that makes the gateway stop answering for ports of its own addresses: the same
// transaction gives it other addresses, so somebody else may have the former ones. The Services get the new ones from
// the package outside.
func (b *Batch) StopForwards(router string) {
	rows := ovndb.Update(nb.LoadBalancerTable, "", ovsdb.Row{"vips": ovndb.Map(nil)})
	rows.Where = withIDs(map[string]string{KeyOutsideRouter: router, KeyOutsideUse: UseForward})
	b.Add(rows)
}

// withIDs is the condition that a row has these external_ids. The server scans the table.
func withIDs(ids map[string]string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(ids))}
}
