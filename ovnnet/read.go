package ovnnet

import (
	"cmp"
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

// present are the rows of a network as read from NB, and what was read about the router that the network needs.
type present struct {
	networkRows
	id string
	// config is the accepted configuration; nil: none.
	config *netmodel.Network
	// layer3 tells that the network is, or may have been, a layer3 network: the node switches were read.
	layer3 bool
	// strayPorts and switchKeys are read only with layer3. strayPorts are the keys of router ports of nodes whose node
	// switch somebody deleted. switchKeys are the keys of all switches that name the network, whoever created them.
	strayPorts, switchKeys []string
	routerThere            bool // the router exists and has its name
	routerRenamed          bool // the router exists and has another name
	gatewayThere           bool // the router's gateway exists and has the configured addresses
}

// read reads the present rows of the network with that ID. network and wanted are nil if the network is only withdrawn
// or deleted. A row at one of our keys that is not ours is an error of type *nbrows.Refused.
func (n *Networks) read(
	ctx context.Context, id string, network *netmodel.Network, wanted *networkRows,
) (*present, error) {
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("network " + id); err != nil {
			return nil, err
		}
		if have, err := n.readOnce(ctx, id, network, wanted); !nbrows.Raced(err) {
			return have, err
		}
	}
}

// readOnce is one attempt of read: another controller may change the network between two of its transactions.
func (n *Networks) readOnce(
	ctx context.Context, id string, network *netmodel.Network, wanted *networkRows,
) (*present, error) {
	have := &present{id: id, networkRows: networkRows{
		own: &nbrows.Switch{}, claims: &nbrows.BookClaims{},
		nodes: map[string]*nbrows.Switch{}, routes: map[string]*nb.LogicalRouterStaticRoute{}, nats: map[string]*nb.NAT{},
	}}
	if err := n.readOwn(ctx, have); err != nil {
		return nil, err
	}
	was := have.config
	have.layer3 = network != nil && network.Topology == netmodel.Layer3 || was != nil && was.Topology == netmodel.Layer3 ||
		was == nil && (network == nil || have.own.Row != nil) // the network may have been a layer3 network
	steps := []func() error{
		func() error { return n.readRouters(ctx, have, network) },
		func() error { return n.readNodes(ctx, have) },
		func() error { return n.readRouterEnds(ctx, have, wanted) },
		func() error { return n.readClaims(ctx, have, wanted) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// readOwn reads the rows whose keys are made from the network's ID alone.
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
		ovndb.Select(nb.CoppTable, ovndb.AcceptedKey(have.id)),
	}
	const first = 4 // of the routes
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
	errs := []error{
		nbrows.One(n.Db, results[0], &own.Row),
		nbrows.One(n.Db, results[1], &own.RouterPort),
		nbrows.One(n.Db, results[2], &own.Localnet),
		nbrows.One(n.Db, results[3], &have.accepted),
	}
	for i, key := range routes {
		errs = append(errs, nbrows.Into(n.Db, results[first+i], key, have.routes))
	}
	for i, key := range nats {
		errs = append(errs, nbrows.Into(n.Db, results[first+len(routes)+i], key, have.nats))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if own.Row != nil && own.Row.ExternalIDs[nbrows.KeyNetwork] != have.id {
		return nbrows.Refusedf("logical switch %s is not ours", own.Row.UUID)
	}
	if have.accepted != nil && have.accepted.ExternalIDs[nbrows.KeyNetwork] != have.id {
		return nbrows.Refusedf("row %s of the table Copp is not ours", have.accepted.UUID)
	}
	have.config = nbrows.AcceptedConfig(have.accepted)
	return have.checkPort(own)
}

// unchanged returns the assertion that the network with this ID still has the configuration that was read.
func (r *networkRows) unchanged(id string) []ovsdb.Operation {
	return nbrows.Unchanged(id, r.own.Row, r.accepted)
}

// same asserts that the network's own switch is as it was read. Store.ReadClaims in package nbrows tells why later
// reads do. It does not compare external_ids as a whole: a row of an older version lacks the identity of the cluster.
func (have *present) same() ovsdb.Operation {
	if have.own.Row == nil {
		return ovndb.Absent(nb.LogicalSwitchTable, ovndb.SwitchKey(have.id))
	}
	return ovndb.HoldsAll(nb.LogicalSwitchTable, have.own.Row.UUID, "external_ids", have.own.Row.ExternalIDs)
}

// checkPort refuses a router port at our key that is not the network's.
func (have *present) checkPort(p *nbrows.Switch) error {
	if p.RouterPort != nil && p.RouterPort.ExternalIDs[nbrows.KeyNetwork] != have.id {
		return nbrows.Refusedf("logical router port %s is not ours", p.RouterPort.UUID)
	}
	return nil
}

// readRouters reads whether the network's router and the router's gateway exist.
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
	have.routerRenamed = router != nil && router.Name != name
	have.gatewayThere, err = n.gateways.IsCurrent(name, results[1:])
	return err
}

// readNodes reads the node switches of a layer3 network. The server scans all its switches for this.
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
	return n.readSubnetClaims(ctx, have, parts)
}

// readPage is the number of rows that one transaction looks up. The server does nothing else during a transaction.
const readPage = 250

// readSubnetClaims adds the claims on the node subnets.
func (n *Networks) readSubnetClaims(ctx context.Context, have *present, parts []*nbrows.Switch) error {
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

// readRouterEnds reads the switches' ports to their router, and the claims of these ports. It looks at the keys that
// the present rows name, and at the keys that the accepted and the wanted configuration use. A pod's port at one of
// these keys is an error.
func (n *Networks) readRouterEnds(ctx context.Context, have *present, wanted *networkRows) error {
	ask := &lookups{of: map[string]*nbrows.Switch{}}
	for _, p := range append(have.switches(), have.own) {
		if p.RouterPort != nil {
			ask.add(p, p.RouterPort.ExternalIDs[nbrows.KeyPort])
		}
	}
	if wanted != nil {
		ask.addEnd(have.own, wanted.own)
	}
	// The keys of the accepted configuration are needed too: somebody may have deleted the rows that name these keys.
	if was := have.config; was != nil {
		ask.addEnd(have.own, nbrows.NewSwitch(was))
		for _, p := range have.nodes {
			if subnets := was.ParseNodeSubnets(p.Row.ExternalIDs[ovndb.NodeSubnetsKey]); subnets != nil {
				ask.addEnd(p, nbrows.NewSwitch(was.ForNode(p.Row.ExternalIDs[nbrows.KeyNode], subnets)))
			}
		}
	}
	for done := 0; done < len(ask.keys); {
		page := ask.keys[done:min(done+readPage, len(ask.keys))]
		results, err := n.Db.Transact(ctx, append([]ovsdb.Operation{have.same()}, nbrows.SelectHolders(page)...))
		if err != nil {
			return err
		}
		done += len(page)
		for i, key := range page {
			var port *nb.LogicalSwitchPort
			var claim *nb.Copp
			err := errors.Join(nbrows.One(n.Db, results[1+2*i], &port), nbrows.One(n.Db, results[2+2*i], &claim))
			if err != nil {
				return err
			}
			p := ask.of[key]
			more, err := have.take(p, port, claim)
			if err != nil {
				return err
			}
			ask.add(p, more...) // claims of a port that is going to be deleted
		}
	}
	return nil
}

// lookups are row keys to look up, each for one switch.
type lookups struct {
	keys []string
	of   map[string]*nbrows.Switch
}

// add adds keys that are not empty and not in the list yet.
func (a *lookups) add(p *nbrows.Switch, keys ...string) {
	for _, key := range keys {
		if key != "" && a.of[key] == nil {
			a.of[key] = p
			a.keys = append(a.keys, key)
		}
	}
}

// addEnd adds for p the keys that the switch like uses for its port to the router and for the claims of this port.
func (a *lookups) addEnd(p, like *nbrows.Switch) {
	if like.ToRouter != nil {
		a.add(p, like.ToRouter.UUID)
		a.add(p, strings.Fields(like.ToRouter.ExternalIDs[nbrows.KeyClaims])...)
	}
}

// take stores a row at one of our keys in the switch p. It returns the keys of the claims that the row names. A row
// that belongs to another port is refused.
func (have *present) take(p *nbrows.Switch, port *nb.LogicalSwitchPort, claim *nb.Copp) ([]string, error) {
	switch {
	case port != nil && port.ExternalIDs[nbrows.KeyRouter] != "" && port.ExternalIDs[nbrows.KeyNetwork] == have.id:
		p.ToRouter = port
		return strings.Fields(port.ExternalIDs[nbrows.KeyClaims]), nil
	case port != nil:
		return nil, nbrows.Refusedf("gateway: its address belongs to port %s", port.Name)
	case claim != nil && isRoutersClaim(claim, have.id):
		if !slices.ContainsFunc(p.Claims, func(c *nb.Copp) bool { return c.UUID == claim.UUID }) {
			p.Claims = append(p.Claims, claim)
		}
	case claim != nil:
		return nil, nbrows.Refusedf("gateway: its address belongs to %s",
			cmp.Or(ovndb.Claimants(claim.ExternalIDs), "port "+claim.ExternalIDs[nbrows.KeyPortName]))
	}
	return nil, nil
}

// isRoutersClaim tells whether a claim belongs to a port to a router, of the network's own switch or of a node switch.
// The names of these ports begin with the network's ID and ":" or "@".
func isRoutersClaim(claim *nb.Copp, id string) bool {
	rest, ok := strings.CutPrefix(claim.ExternalIDs[nbrows.KeyPortName], id)
	return ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "@"))
}

// readClaims adds the present claims of a localnet network in its address book. For a network that is deleted it reads
// nothing: deleteRows searches for these claims.
func (n *Networks) readClaims(ctx context.Context, have *present, wanted *networkRows) (err error) {
	if wanted == nil {
		return nil
	}
	var noted map[string]string
	if sw := have.own.Row; sw != nil {
		noted = sw.ExternalIDs
	}
	have.claims.Rows, err = n.ReadClaims(ctx, have.same(), noted, wanted.claims)
	return err
}
