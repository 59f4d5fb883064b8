package ovnnet

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
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
	routerOptions          map[string]string
	gatewayThere           bool // the router's gateway exists and has the configured addresses
}

// read reads the present rows of the network with that ID, and what a change to network depends on. network is nil if
// the network is only withdrawn or deleted. A row at one of our keys that is not ours is an error of type
// *nbrows.Refused.
func (n *Networks) read(ctx context.Context, id string, network *netmodel.Network) (have *present, err error) {
	err = nbrows.Retry("network "+id, func() (err error) {
		have, err = n.readOnce(ctx, id, network)
		return err
	})
	return have, err
}

// readOnce is one attempt of read: another controller may change the network between two of its transactions.
func (n *Networks) readOnce(ctx context.Context, id string, network *netmodel.Network) (*present, error) {
	have := &present{id: id, networkRows: networkRows{
		own: &nbrows.Switch{Guards: map[string]*nb.ACL{}}, claims: &nbrows.BookClaims{},
		nodes: map[string]*nbrows.Switch{}, routes: map[string]*nb.LogicalRouterStaticRoute{}, nats: map[string]*nb.NAT{},
		dhcp: map[string]*nb.DHCPOptions{}, virtual: map[string]*nbrows.VirtualGroup{},
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
		func() error { return n.readRouterEnds(ctx, have, network) },
		func() error { return n.readClaims(ctx, have, network) },
		func() error { return n.readSubnetsBehind(ctx, have, network) },
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
	own, reads := have.own, n.Reads()
	switchKey, portKey := ovndb.SwitchKey(have.id), ovndb.RouterPortKey(have.id)
	nbrows.ReadOne(reads, nb.LogicalSwitchTable, switchKey, &own.Row, nbrows.SwitchColumns...)
	nbrows.ReadOne(reads, nb.LogicalRouterPortTable, portKey, &own.RouterPort)
	nbrows.ReadOne(reads, nb.LogicalSwitchPortTable, ovndb.PartKey("localnet", have.id), &own.Localnet)
	nbrows.ReadOne(reads, nb.CoppTable, ovndb.AcceptedKey(have.id), &have.accepted)
	for _, f := range nbrows.Families {
		for _, kind := range []string{nbrows.Discard, nbrows.Back} {
			key := nbrows.RouteKey(have.id, kind, f)
			nbrows.ReadInto(reads, nb.LogicalRouterStaticRouteTable, key, key, have.routes)
		}
		key := nbrows.NatKey(have.id, f)
		nbrows.ReadInto(reads, nb.NATTable, key, key, have.nats)
	}
	nbrows.ReadGuards(reads, have.id, own.Guards)
	nbrows.ReadDHCP(reads, have.id, have.dhcp)
	if err := reads.Do(ctx); err != nil {
		return err
	}
	if own.Row != nil && own.Row.ExternalIDs[nbrows.KeyNetwork] != have.id {
		return nbrows.Refusedf("logical switch %s is not ours", own.Row.UUID)
	}
	if have.accepted != nil && have.accepted.ExternalIDs[nbrows.KeyNetwork] != have.id {
		return nbrows.Refusedf("row %s of the table Copp is not ours", have.accepted.UUID)
	}
	have.config = n.AcceptedConfig(have.accepted)
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
	var router *nb.LogicalRouter
	reads := n.Reads()
	nbrows.ReadOne(reads, nb.LogicalRouterTable, ovndb.RouterKey(name), &router,
		"_uuid", "name", "options", "external_ids")
	current := n.gateways.ReadCurrent(reads, name)
	var crossed *nb.LogicalRouterPort // of a network with the router's name
	nbrows.ReadOne(reads, nb.LogicalRouterPortTable, ovndb.RouterPortKey(name), &crossed, "_uuid", "external_ids")
	if err := reads.Do(ctx); err != nil {
		return err
	}
	if crossed != nil && name != have.id && crossed.ExternalIDs[nbrows.KeyRouter] == have.id {
		return nbrows.Refusedf("router: network %s is on a router with the name of this network, and OVN would have two "+
			"ports of one name: give one of the two routers another name", name)
	}
	if router != nil && router.ExternalIDs[nbrows.KeyRouter] != name {
		return nbrows.Refusedf("router: logical router %s is not ours", router.UUID)
	}
	if router != nil {
		have.routerOptions = router.Options
	}
	have.routerThere = router != nil && router.Name == name
	have.routerRenamed = router != nil && router.Name != name
	have.gatewayThere = current()
	return nil
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
	var parts []*nbrows.Switch
	for _, sw := range switches {
		have.switchKeys = append(have.switchKeys, sw.UUID)
		if node := sw.ExternalIDs[nbrows.KeyNode]; node != "" && sw.UUID == nbrows.NodeSwitchKey(have.id, node) {
			p := &nbrows.Switch{Row: sw, Guards: map[string]*nb.ACL{}}
			have.nodes[sw.UUID] = p
			parts = append(parts, p)
			known[ovndb.RouterPortKey(nbrows.NodeSwitch(have.id, node))] = true
		}
	}
	for _, port := range routerPorts {
		if !known[port.UUID] {
			have.strayPorts = append(have.strayPorts, port.UUID)
		}
	}
	for page := range slices.Chunk(parts, readPage/(nbrows.GuardCount+1)) {
		reads := n.Reads()
		for _, p := range page {
			name := nbrows.NodeSwitch(have.id, p.Row.ExternalIDs[nbrows.KeyNode])
			nbrows.ReadGuards(reads, name, p.Guards)
			nbrows.ReadOne(reads, nb.LogicalRouterPortTable, ovndb.RouterPortKey(name), &p.RouterPort)
		}
		if err := reads.Do(ctx); err != nil {
			return err
		}
		for _, p := range page {
			if err := have.checkPort(p); err != nil {
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
func (n *Networks) readRouterEnds(ctx context.Context, have *present, network *netmodel.Network) error {
	ask := &lookups{of: map[string]*nbrows.Switch{}}
	for _, p := range append(have.switches(), have.own) {
		if p.RouterPort != nil {
			ask.add(p, p.RouterPort.ExternalIDs[nbrows.KeyPort])
		}
	}
	if network != nil {
		ask.addEnd(have.own, nbrows.NewSwitch(network))
	}
	// The keys of the accepted configuration are needed too: somebody may have deleted the rows that name these keys.
	if was := have.config; was != nil {
		ask.addEnd(have.own, nbrows.NewSwitch(was))
		for _, p := range have.nodes {
			if like := nodeSwitch(was, p); like != nil {
				ask.addEnd(p, like)
			}
		}
	}
	for done := 0; done < len(ask.keys); {
		page := ask.keys[done:min(done+readPage, len(ask.keys))]
		reads, found := n.Reads(have.same()), make([]*nbrows.Found, len(page))
		for i, key := range page {
			found[i] = nbrows.ReadAt(reads, key)
		}
		if err := reads.Do(ctx); err != nil {
			return err
		}
		done += len(page)
		for i, key := range page {
			p := ask.of[key]
			more, err := have.take(p, found[i].Port, found[i].Claim)
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

// isRoutersClaim reports whether a claim belongs to a port to a router, of the network's own switch or of a node
// switch. The names of these ports begin with the network's ID and ":" or "@".
func isRoutersClaim(claim *nb.Copp, id string) bool {
	rest, ok := strings.CutPrefix(claim.ExternalIDs[nbrows.KeyPortName], id)
	return ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "@"))
}

// readClaims adds the present claims of a network in its address book, and the other rows of virtual addresses. For a
// network that is deleted it reads nothing: deleteRows searches for these rows.
func (n *Networks) readClaims(ctx context.Context, have *present, network *netmodel.Network) (err error) {
	if network == nil {
		return nil
	}
	var noted map[string]string
	if sw := have.own.Row; sw != nil {
		noted = sw.ExternalIDs
	}
	wanted := nbrows.ClaimsOfNetwork(network)
	if have.claims.Rows, err = n.ReadClaims(ctx, have.same(), noted, wanted); err != nil {
		return err
	}
	claims := wanted.Virtual(have.claims.Rows)
	if len(claims) == 0 {
		return nil
	}
	reads := n.Reads(have.same())
	for _, key := range claims {
		nbrows.ReadVirtual(reads, key, have.virtual)
	}
	return reads.Do(ctx)
}

// router returns the full name of the router that the network is on; "" if there is none.
func (have *present) router() string {
	if have.own.RouterPort != nil {
		return have.own.RouterPort.ExternalIDs[nbrows.KeyRouter]
	}
	for _, f := range nbrows.Families {
		if r := have.routes[nbrows.RouteKey(have.id, nbrows.Discard, f)]; r != nil {
			return r.ExternalIDs[nbrows.KeyRouter]
		}
	}
	return ""
}
