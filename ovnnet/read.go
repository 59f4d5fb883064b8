package ovnnet

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// found are a network's rows as they are, and what else there is of what it needs.
type found struct {
	rows
	id           string
	layer3       bool     // nodes were looked for
	strays       []string // then: router ports of nodes whose switch someone took
	marked       []string // and: all switches that have the network's mark, whosever they are
	routerThere  bool
	gatewayThere bool
}

// Columns of a switch that are read: not its ports, which may be many.
var switchColumns = []string{"_uuid", "name", "other_config", "external_ids"}

// read returns the rows of the network of that ID as they are; network and want are nil where it is to be no more. A row
// that is in the way and not ours is an error.
func (n *Networks) read(ctx context.Context, id string, network *netmodel.Network, want *rows) (*found, error) {
	have := &found{id: id, rows: rows{
		own: &part{}, wire: &wireClaims{},
		nodes: map[string]*part{}, routes: map[string]*nb.LogicalRouterStaticRoute{}, nats: map[string]*nb.NAT{},
	}}
	if err := n.readOwn(ctx, have); err != nil {
		return nil, err
	}
	was := inForceOf(have.own)
	have.layer3 = network != nil && network.Topology == netmodel.Layer3 || was != nil && was.Topology == netmodel.Layer3 ||
		was == nil && (network == nil || have.own.sw != nil) // it may have been
	steps := []func() error{
		func() error { return n.readRouters(ctx, have, network) },
		func() error { return n.readNodes(ctx, have) },
		func() error { return n.readEnds(ctx, have, was, want) },
		func() error { return n.readWireOf(ctx, have, want) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// readOwn reads what has its key by the network's name.
func (n *Networks) readOwn(ctx context.Context, have *found) error {
	var routes, nats []string
	for _, f := range families {
		routes = append(routes, routeKey(have.id, discard, f), routeKey(have.id, back, f))
		nats = append(nats, natKey(have.id, f))
	}
	ops := []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(have.id), switchColumns...),
		ovndb.Select(nb.LogicalRouterPortTable, ovndb.RouterPortKey(have.id)),
		ovndb.Select(nb.LogicalSwitchPortTable, ovndb.PartKey("localnet", have.id)),
	}
	for _, key := range routes {
		ops = append(ops, ovndb.Select(nb.LogicalRouterStaticRouteTable, key))
	}
	for _, key := range nats {
		ops = append(ops, ovndb.Select(nb.NATTable, key))
	}
	results, err := n.db.Transact(ctx, ops)
	if err != nil {
		return err
	}
	own := have.own
	errs := []error{one(n.db, results[0], &own.sw), one(n.db, results[1], &own.port), one(n.db, results[2], &own.provider)}
	for i, key := range routes {
		errs = append(errs, into(n.db, results[3+i], key, have.routes))
	}
	for i, key := range nats {
		errs = append(errs, into(n.db, results[3+len(routes)+i], key, have.nats))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if own.sw != nil && own.sw.ExternalIDs[keyNetwork] != have.id {
		return refusedf("logical switch %s is not ours", own.sw.UUID)
	}
	return have.checkPort(own)
}

func (have *found) checkPort(p *part) error {
	if p.port != nil && p.port.ExternalIDs[keyNetwork] != have.id {
		return refusedf("logical router port %s is not ours", p.port.UUID)
	}
	return nil
}

// one decodes a select's only row; nil when there is none.
func one[T any](db *ovndb.DB, result ovsdb.OperationResult, into **T) error {
	list, err := ovndb.Rows[T](db, result)
	if err == nil && len(list) > 0 {
		*into = list[0]
	}
	return err
}

func into[T any](db *ovndb.DB, result ovsdb.OperationResult, key string, rows map[string]*T) error {
	var row *T
	err := one(db, result, &row)
	if row != nil {
		rows[key] = row
	}
	return err
}

func (n *Networks) readRouters(ctx context.Context, have *found, network *netmodel.Network) error {
	if network == nil || network.RouterName() == "" {
		return nil
	}
	name := network.RouterName()
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, ovndb.RouterKey(name), "_uuid", "name", "external_ids"),
		ovndb.Select(nb.LogicalRouterTable, ovndb.GatewayKey(name), "_uuid", "external_ids"),
		ovndb.Select(nb.LogicalRouterPortTable, portKey(name, partJoin)),
		ovndb.Select(nb.LogicalRouterPortTable, portKey(name, partExternal)),
	})
	if err != nil {
		return err
	}
	var router, gateway *nb.LogicalRouter
	var join, external *nb.LogicalRouterPort
	if err := errors.Join(one(n.db, results[0], &router), one(n.db, results[1], &gateway), one(n.db, results[2], &join), one(n.db, results[3], &external)); err != nil {
		return err
	}
	if router != nil && router.ExternalIDs[keyRouter] != name {
		return refusedf("router: logical router %s is not ours", router.UUID)
	}
	have.routerThere = router != nil && router.Name == name
	if r := n.withGateway(name); r != nil && gateway != nil {
		// A gateway that is still the one of another configuration has other addresses than the network's routes lead to.
		want := wantedGateway(r).ports
		have.gatewayThere = samePort(join, want[portKey(name, partJoin)]) && samePort(external, want[portKey(name, partExternal)])
	}
	return nil
}

// readNodes reads the switches of the nodes that have blocks. The server scans its switches for it.
func (n *Networks) readNodes(ctx context.Context, have *found) error {
	if !have.layer3 {
		return nil
	}
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.LogicalSwitchTable, "external_ids", keyNetwork, have.id, switchColumns...),
		ovndb.SelectWith(nb.LogicalRouterPortTable, "external_ids", keyNetwork, have.id, "_uuid"),
	})
	if err != nil {
		return err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return err
	}
	routerPorts, err := ovndb.Rows[nb.LogicalRouterPort](n.db, results[1])
	if err != nil {
		return err
	}
	known := map[string]bool{ovndb.RouterPortKey(have.id): true}
	var ops []ovsdb.Operation
	var parts []*part
	for _, sw := range switches {
		have.marked = append(have.marked, sw.UUID)
		if node := sw.ExternalIDs[keyNode]; node != "" && sw.UUID == nodeSwitchKey(have.id, node) {
			p := &part{sw: sw}
			have.nodes[sw.UUID] = p
			parts = append(parts, p)
			known[ovndb.RouterPortKey(nodeSwitch(have.id, node))] = true
			ops = append(ops, ovndb.Select(nb.LogicalRouterPortTable, ovndb.RouterPortKey(nodeSwitch(have.id, node))))
		}
	}
	for _, port := range routerPorts {
		if !known[port.UUID] {
			have.strays = append(have.strays, port.UUID)
		}
	}
	for i := 0; i < len(parts); i += readPage {
		page := parts[i:min(i+readPage, len(parts))]
		results, err := n.db.Transact(ctx, ops[i:i+len(page)])
		if err != nil {
			return err
		}
		for j, p := range page {
			if err := errors.Join(one(n.db, results[j], &p.port), have.checkPort(p)); err != nil {
				return err
			}
		}
	}
	return n.readBlocks(ctx, have, parts)
}

// readPage is how many rows one transaction looks up: the server does nothing else meanwhile.
const readPage = 250

// nodeSwitch is netmodel.Network.Switch of a view whose blocks are not known.
func nodeSwitch(id, node string) string { return id + "@" + node }

func nodeSwitchKey(id, node string) string { return ovndb.SwitchKey(nodeSwitch(id, node)) }

// readBlocks adds the claims on the nodes' blocks.
func (n *Networks) readBlocks(ctx context.Context, have *found, parts []*part) error {
	owner := map[string]*part{}
	var keys []string
	for _, p := range parts {
		for _, key := range blockKeys(have.id, p.sw) {
			owner[key] = p
			keys = append(keys, key)
		}
	}
	claims, err := ovndb.ReadByKey[nb.Copp](ctx, n.db, nb.CoppTable, keys)
	if err != nil {
		return err
	}
	for _, c := range claims {
		p := owner[c.UUID]
		p.blocks = append(p.blocks, c)
	}
	return nil
}

// readEnds adds the switches' ends of their ports on routers and the claims of those, as they are and at the keys where
// they ought to be; a pod's port there is an error.
func (n *Networks) readEnds(ctx context.Context, have *found, was *netmodel.Network, want *rows) error {
	ask := &asking{of: map[string]*part{}}
	for _, p := range append(have.parts(), have.own) {
		if p.port != nil {
			ask.add(p, p.port.ExternalIDs[keyPort])
		}
	}
	if want != nil {
		ask.addEnd(have.own, want.own)
	}
	if was != nil { // also where the configuration in force puts them: others may have taken the rows that lead there
		ask.addEnd(have.own, wantedPart(was, nil))
		for _, p := range have.nodes {
			if blocks := was.ParseNodeSubnets(p.sw.ExternalIDs[ovndb.BlocksKey]); blocks != nil {
				ask.addEnd(p, wantedPart(was.ForNode(p.sw.ExternalIDs[keyNode], blocks), nil))
			}
		}
	}
	for done := 0; done < len(ask.keys); {
		page := ask.keys[done:min(done+readPage, len(ask.keys))]
		results, err := n.db.Transact(ctx, lookUp(page))
		if err != nil {
			return err
		}
		done += len(page)
		for i, key := range page {
			var port *nb.LogicalSwitchPort
			var claim *nb.Copp
			if err := errors.Join(one(n.db, results[2*i], &port), one(n.db, results[2*i+1], &claim)); err != nil {
				return err
			}
			p := ask.of[key]
			more, err := have.take(p, port, claim)
			if err != nil {
				return err
			}
			ask.add(p, more...) // claims of an end that is on its way out
		}
	}
	return nil
}

// asking are keys that are looked up, each for a part.
type asking struct {
	keys []string
	of   map[string]*part
}

func (a *asking) add(p *part, keys ...string) {
	for _, key := range keys {
		if key != "" && a.of[key] == nil {
			a.of[key] = p
			a.keys = append(a.keys, key)
		}
	}
}

func (a *asking) addEnd(p, like *part) {
	if like.end != nil {
		a.add(p, like.end.UUID)
		a.add(p, strings.Fields(like.end.ExternalIDs[keyClaims])...)
	}
}

func lookUp(keys []string) []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, key := range keys {
		ops = append(ops, ovndb.Select(nb.LogicalSwitchPortTable, key), ovndb.Select(nb.CoppTable, key))
	}
	return ops
}

// take sorts a row at one of our keys into a part, and returns the keys of claims that hang on it.
func (have *found) take(p *part, port *nb.LogicalSwitchPort, claim *nb.Copp) ([]string, error) {
	switch {
	case port != nil && port.ExternalIDs[keyRouter] != "" && port.ExternalIDs[keyNetwork] == have.id:
		p.end = port
		return strings.Fields(port.ExternalIDs[keyClaims]), nil
	case port != nil:
		return nil, refusedf("gateway: its address is held by port %s", port.Name)
	case claim != nil && isRoutersClaim(claim, have.id):
		if !slices.ContainsFunc(p.claims, func(c *nb.Copp) bool { return c.UUID == claim.UUID }) {
			p.claims = append(p.claims, claim)
		}
	case claim != nil:
		return nil, refusedf("gateway: its address is held by port %s", claim.ExternalIDs[keyPortName])
	}
	return nil, nil
}

// isRoutersClaim goes by what a router's port on the network, or on a node's part of it, is called.
func isRoutersClaim(claim *nb.Copp, id string) bool {
	rest, ok := strings.CutPrefix(claim.ExternalIDs[keyPortName], id)
	return ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "@"))
}
