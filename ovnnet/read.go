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
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// found are a network's rows as they are, and what else there is of what it needs.
type present struct {
	networkRows
	id           string
	layer3       bool     // nodes were looked for
	strayPorts   []string // then: router ports of nodes whose switch someone took
	switchKeys   []string // and: all switches that have the network's mark, whosever they are
	routerThere  bool
	gatewayThere bool
}

// read returns the rows of the network of that ID as they are; network and want are nil where it is to be no more. A row
// that is in the way and not ours is an error.
func (n *Networks) read(ctx context.Context, id string, network *netmodel.Network, want *networkRows) (*present, error) {
	have := &present{id: id, networkRows: networkRows{
		own: &nbrows.Switch{}, claims: &nbrows.BookClaims{},
		nodes: map[string]*nbrows.Switch{}, routes: map[string]*nb.LogicalRouterStaticRoute{}, nats: map[string]*nb.NAT{},
	}}
	if err := n.readOwn(ctx, have); err != nil {
		return nil, err
	}
	was := acceptedOf(have.own)
	have.layer3 = network != nil && network.Topology == netmodel.Layer3 || was != nil && was.Topology == netmodel.Layer3 ||
		was == nil && (network == nil || have.own.Row != nil) // it may have been
	steps := []func() error{
		func() error { return n.readRouters(ctx, have, network) },
		func() error { return n.readNodes(ctx, have) },
		func() error { return n.readRouterEnds(ctx, have, was, want) },
		func() error { return n.readClaims(ctx, have, want) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// readOwn reads what has its key by the network's name.
func (n *Networks) readOwn(ctx context.Context, have *present) error {
	var routes, nats []string
	for _, f := range nbrows.Families {
		routes = append(routes, nbrows.RouteKey(have.id, nbrows.Discard, f), nbrows.RouteKey(have.id, nbrows.Back, f))
		nats = append(nats, nbrows.NatKey(have.id, f))
	}
	ops := []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(have.id), nbrows.SwitchColumns...),
		ovndb.Select(nb.LogicalRouterPortTable, ovndb.RouterPortKey(have.id)),
		ovndb.Select(nb.LogicalSwitchPortTable, ovndb.PartKey("localnet", have.id)),
	}
	for _, key := range routes {
		ops = append(ops, ovndb.Select(nb.LogicalRouterStaticRouteTable, key))
	}
	for _, key := range nats {
		ops = append(ops, ovndb.Select(nb.NATTable, key))
	}
	results, err := n.Db.Transact(ctx, ops)
	if err != nil {
		return err
	}
	own := have.own
	errs := []error{nbrows.One(n.Db, results[0], &own.Row), nbrows.One(n.Db, results[1], &own.RouterPort), nbrows.One(n.Db, results[2], &own.Localnet)}
	for i, key := range routes {
		errs = append(errs, nbrows.Into(n.Db, results[3+i], key, have.routes))
	}
	for i, key := range nats {
		errs = append(errs, nbrows.Into(n.Db, results[3+len(routes)+i], key, have.nats))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if own.Row != nil && own.Row.ExternalIDs[nbrows.KeyNetwork] != have.id {
		return nbrows.Refusedf("logical switch %s is not ours", own.Row.UUID)
	}
	return have.checkPort(own)
}

func (have *present) checkPort(p *nbrows.Switch) error {
	if p.RouterPort != nil && p.RouterPort.ExternalIDs[nbrows.KeyNetwork] != have.id {
		return nbrows.Refusedf("logical router port %s is not ours", p.RouterPort.UUID)
	}
	return nil
}

func (n *Networks) readRouters(ctx context.Context, have *present, network *netmodel.Network) error {
	if network == nil || network.RouterName() == "" {
		return nil
	}
	name := network.RouterName()
	results, err := n.Db.Transact(ctx, append([]ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, ovndb.RouterKey(name), "_uuid", "name", "external_ids"),
	}, gateway.SelectCurrent(name)...))
	if err != nil {
		return err
	}
	var router *nb.LogicalRouter
	if err := nbrows.One(n.Db, results[0], &router); err != nil {
		return err
	}
	if router != nil && router.ExternalIDs[nbrows.KeyRouter] != name {
		return nbrows.Refusedf("router: logical router %s is not ours", router.UUID)
	}
	have.routerThere = router != nil && router.Name == name
	have.gatewayThere, err = n.gateways.IsCurrent(name, results[1:])
	return err
}

// readNodes reads the switches of the nodes that have blocks. The server scans its switches for it.
func (n *Networks) readNodes(ctx context.Context, have *present) error {
	if !have.layer3 {
		return nil
	}
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.LogicalSwitchTable, "external_ids", nbrows.KeyNetwork, have.id, nbrows.SwitchColumns...),
		ovndb.SelectWith(nb.LogicalRouterPortTable, "external_ids", nbrows.KeyNetwork, have.id, "_uuid"),
	})
	if err != nil {
		return err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.Db, results[0])
	if err != nil {
		return err
	}
	routerPorts, err := ovndb.Rows[nb.LogicalRouterPort](n.Db, results[1])
	if err != nil {
		return err
	}
	known := map[string]bool{ovndb.RouterPortKey(have.id): true}
	var ops []ovsdb.Operation
	var parts []*nbrows.Switch
	for _, sw := range switches {
		have.switchKeys = append(have.switchKeys, sw.UUID)
		if node := sw.ExternalIDs[nbrows.KeyNode]; node != "" && sw.UUID == nbrows.NodeSwitchKey(have.id, node) {
			p := &nbrows.Switch{Row: sw}
			have.nodes[sw.UUID] = p
			parts = append(parts, p)
			known[ovndb.RouterPortKey(nbrows.NodeSwitch(have.id, node))] = true
			ops = append(ops, ovndb.Select(nb.LogicalRouterPortTable, ovndb.RouterPortKey(nbrows.NodeSwitch(have.id, node))))
		}
	}
	for _, port := range routerPorts {
		if !known[port.UUID] {
			have.strayPorts = append(have.strayPorts, port.UUID)
		}
	}
	for i := 0; i < len(parts); i += readPage {
		page := parts[i:min(i+readPage, len(parts))]
		results, err := n.Db.Transact(ctx, ops[i:i+len(page)])
		if err != nil {
			return err
		}
		for j, p := range page {
			if err := errors.Join(nbrows.One(n.Db, results[j], &p.RouterPort), have.checkPort(p)); err != nil {
				return err
			}
		}
	}
	return n.readBlocks(ctx, have, parts)
}

// readPage is how many rows one transaction looks up: the server does nothing else meanwhile.
const readPage = 250

// readBlocks adds the claims on the nodes' blocks.
func (n *Networks) readBlocks(ctx context.Context, have *present, parts []*nbrows.Switch) error {
	owner := map[string]*nbrows.Switch{}
	var keys []string
	for _, p := range parts {
		for _, key := range nbrows.SubnetClaimKeys(have.id, p.Row) {
			owner[key] = p
			keys = append(keys, key)
		}
	}
	claims, err := ovndb.ReadByKey[nb.Copp](ctx, n.Db, nb.CoppTable, keys)
	if err != nil {
		return err
	}
	for _, c := range claims {
		p := owner[c.UUID]
		p.SubnetClaims = append(p.SubnetClaims, c)
	}
	return nil
}

// readEnds adds the switches' ends of their ports on routers and the claims of those, as they are and at the keys where
// they ought to be; a pod's port there is an error.
func (n *Networks) readRouterEnds(ctx context.Context, have *present, was *netmodel.Network, want *networkRows) error {
	ask := &lookups{of: map[string]*nbrows.Switch{}}
	for _, p := range append(have.switches(), have.own) {
		if p.RouterPort != nil {
			ask.add(p, p.RouterPort.ExternalIDs[nbrows.KeyPort])
		}
	}
	if want != nil {
		ask.addEnd(have.own, want.own)
	}
	if was != nil { // also where the configuration in force puts them: others may have taken the rows that lead there
		ask.addEnd(have.own, nbrows.NewSwitch(was, nil))
		for _, p := range have.nodes {
			if blocks := was.ParseNodeSubnets(p.Row.ExternalIDs[ovndb.BlocksKey]); blocks != nil {
				ask.addEnd(p, nbrows.NewSwitch(was.ForNode(p.Row.ExternalIDs[nbrows.KeyNode], blocks), nil))
			}
		}
	}
	for done := 0; done < len(ask.keys); {
		page := ask.keys[done:min(done+readPage, len(ask.keys))]
		results, err := n.Db.Transact(ctx, nbrows.SelectHolders(page))
		if err != nil {
			return err
		}
		done += len(page)
		for i, key := range page {
			var port *nb.LogicalSwitchPort
			var claim *nb.Copp
			if err := errors.Join(nbrows.One(n.Db, results[2*i], &port), nbrows.One(n.Db, results[2*i+1], &claim)); err != nil {
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
type lookups struct {
	keys []string
	of   map[string]*nbrows.Switch
}

func (a *lookups) add(p *nbrows.Switch, keys ...string) {
	for _, key := range keys {
		if key != "" && a.of[key] == nil {
			a.of[key] = p
			a.keys = append(a.keys, key)
		}
	}
}

func (a *lookups) addEnd(p, like *nbrows.Switch) {
	if like.ToRouter != nil {
		a.add(p, like.ToRouter.UUID)
		a.add(p, strings.Fields(like.ToRouter.ExternalIDs[nbrows.KeyClaims])...)
	}
}

// take sorts a row at one of our keys into a part, and returns the keys of claims that hang on it.
func (have *present) take(p *nbrows.Switch, port *nb.LogicalSwitchPort, claim *nb.Copp) ([]string, error) {
	switch {
	case port != nil && port.ExternalIDs[nbrows.KeyRouter] != "" && port.ExternalIDs[nbrows.KeyNetwork] == have.id:
		p.ToRouter = port
		return strings.Fields(port.ExternalIDs[nbrows.KeyClaims]), nil
	case port != nil:
		return nil, nbrows.Refusedf("gateway: its address is held by port %s", port.Name)
	case claim != nil && isRoutersClaim(claim, have.id):
		if !slices.ContainsFunc(p.Claims, func(c *nb.Copp) bool { return c.UUID == claim.UUID }) {
			p.Claims = append(p.Claims, claim)
		}
	case claim != nil:
		return nil, nbrows.Refusedf("gateway: its address is held by port %s", claim.ExternalIDs[nbrows.KeyPortName])
	}
	return nil, nil
}

// isRoutersClaim goes by what a router's port on the network, or on a node's part of it, is called.
func isRoutersClaim(claim *nb.Copp, id string) bool {
	rest, ok := strings.CutPrefix(claim.ExternalIDs[nbrows.KeyPortName], id)
	return ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "@"))
}

// readWireOf adds the claims of a network that is to have those that are wanted. The claims of a network that is
// deleted are searched for then.
func (n *Networks) readClaims(ctx context.Context, have *present, want *networkRows) (err error) {
	if want == nil {
		return nil
	}
	var noted map[string]string
	if sw := have.own.Row; sw != nil {
		noted = sw.ExternalIDs
	}
	have.claims.Rows, err = n.ReadClaims(ctx, noted, want.claims)
	return err
}
