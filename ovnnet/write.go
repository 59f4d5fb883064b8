package ovnnet

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// write adds the operations that change the present rows of a network into the wanted rows; none if they are equal.
// guards are what judge asserts. What needs a transaction of its own before is written at once, and the error is
// nbrows.ErrAgain.
func (n *Networks) write(
	ctx context.Context, b *nbrows.Batch, have *present, wanted *networkRows, network *netmodel.Network,
	guards []ovsdb.Operation,
) error {
	router, made, err := n.ensureRouters(ctx, have, network)
	if err != nil {
		return err
	} else if made {
		return nbrows.ErrAgain
	}
	guards = append(router, guards...) // the guards also assert what a new router has
	if have.deleteNodes(b, wanted); len(b.Ops) > 0 {
		// This is a transaction of its own: the rows that replace the deleted rows may have the same keys.
		return cmp.Or(n.Write(ctx, append(guards, b.Ops...)), nbrows.ErrAgain)
	}
	have.change(b, wanted)
	have.subnetsBehind.secure(b, network)
	b.Add(have.deleteStrayPorts()...)
	if len(router)+len(b.Ops) > 0 {
		b.Ops = append(guards, b.Ops...)
	}
	return b.Err
}

// ensureRouters creates the gateway of the network's router if it does not exist yet, and gives a renamed router its
// name again. For a missing router without a gateway it returns the operation that creates the router: northd computes
// everything again for a new router and for a new switch, so both are in one transaction.
func (n *Networks) ensureRouters(
	ctx context.Context, have *present, network *netmodel.Network,
) (ops []ovsdb.Operation, made bool, err error) {
	name, configured := network.RouterName(), n.gateways.WithGateway(network.Router)
	if have.routerThere && !nbrows.HasRouterOptions(have.routerOptions) { // it was made by an older version, or changed
		return nil, true, n.SetRouterOptions(ctx, name, have.routerOptions)
	}
	if name == "" || have.routerThere && (configured == nil || have.gatewayThere) {
		return nil, false, nil
	}
	if !have.routerThere && network.IsGuest() {
		return nil, false, nbrows.Refusedf(
			"router: %s is not there, it is made with the first network of its own namespace", name)
	}
	switch {
	case have.routerRenamed:
		return nil, true, n.RenameRouter(ctx, name)
	case configured != nil:
		_, err := n.gateways.Ensure(ctx, configured, nil)
		return nil, true, err
	}
	row, err := n.InsertRouter(name)
	return []ovsdb.Operation{row}, false, err
}

// deleteNodes adds the operations that delete the node switches that are not wanted.
func (have *present) deleteNodes(b *nbrows.Batch, wanted *networkRows) {
	for _, key := range slices.Sorted(maps.Keys(have.nodes)) {
		if wanted.nodes[key] == nil {
			b.DeleteSwitch(have.nodes[key])
		}
	}
}

// change adds the operations that change the rows. The node switches that are not wanted are deleted already.
func (have *present) change(b *nbrows.Batch, wanted *networkRows) {
	nbrows.Put(b, nb.CoppTable, wanted.accepted.UUID, have.accepted, wanted.accepted)
	b.SetSwitch(have.own, wanted.own)
	b.SetDHCP(have.id, have.dhcp, wanted.dhcp)
	b.SetBookClaims(have.claims.Rows, wanted.claims)
	b.SetVirtual(have.virtual, wanted.virtual)
	for _, key := range nbrows.SortedKeys(wanted.nodes) {
		b.SetSwitch(have.nodes[key], wanted.nodes[key])
	}
	b.CompareRoutes(have.routes, wanted.routes)
	b.CompareNATs(have.nats, wanted.nats)
	// A row may be missing because another controller has deleted the network since its switch was read. Without the
	// switch, nobody would delete a row that is written now.
	b.First(have.unchanged(have.id)...)
}

// deleteStrayPorts returns the operations that delete the router ports of nodes that have no node switch.
func (have *present) deleteStrayPorts() []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, key := range have.strayPorts {
		ops = append(ops, ovndb.Unlink(nb.LogicalRouterTable, "ports", key))
	}
	return ops
}
