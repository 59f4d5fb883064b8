package outside

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// OVN keeps the connections of a NAT row that is gone: a flow that goes on is translated as before, for as long as it
// lasts. So the transaction that deletes or changes a NAT row tells the nodes that translated by it.

// endConnections tells the nodes that translated by the present NAT rows which connections end with the wanted rows.
func (o *Outside) endConnections(ctx context.Context, b *nbrows.Batch, have *present, wanted *rows) error {
	before, translator := have.entry.translator, wanted.translator
	var list []ended.Connections
	for _, key := range nbrows.SortedKeys(have.nats) {
		old, row := have.nats[key], wanted.nats[key]
		// A row of an older version does not say which node translates by it.
		same := before == translator || before == "" && old.LogicalPort != nil && translator != ""
		if row != nil && same && row.Type == old.Type &&
			row.ExternalIP == old.ExternalIP && row.LogicalIP == old.LogicalIP {
			continue
		}
		outside, err := netip.ParseAddr(old.ExternalIP)
		if err != nil {
			continue // somebody else has changed the row: it has translated nothing
		}
		inside, err := netip.ParseAddr(old.LogicalIP)
		if err != nil {
			continue
		}
		list = append(list, ended.Connections{Router: have.key.Router, Outside: outside, Inside: inside})
	}
	var nodes []string
	if len(list) > 0 {
		nodes = []string{before}
		if before == "" {
			var err error
			if nodes, err = o.gatewayNodes(ctx, have.key.Router); err != nil {
				return err
			}
		}
	}
	if translator != "" && translator != before && slices.Index(nodes, translator) < 0 { // one batch adds a row once
		if err := ended.Add(ctx, b, []string{translator}); err != nil {
			return err
		}
	}
	return ended.Add(ctx, b, nodes, list...)
}

// gatewayNodes returns the nodes that a router's gateway may be on.
func (o *Outside) gatewayNodes(ctx context.Context, router string) (nodes []string, err error) {
	db := o.store.Db
	groups, err := ovndb.ReadByKey[nb.HAChassisGroup](
		ctx, db, nb.HAChassisGroupTable, []string{nbrows.GatewayGroupKey(router)}, "_uuid", "ha_chassis")
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	members, err := ovndb.ReadByKey[nb.HAChassis](
		ctx, db, nb.HAChassisTable, groups[0].HaChassis, "_uuid", "external_ids")
	for _, m := range members {
		nodes = append(nodes, m.ExternalIDs[nbrows.KeyNode])
	}
	return nodes, err
}
