package ovnnet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Networks writes the logical switches and routers of networks into OVN's Northbound database.
type Networks struct {
	*nbrows.Store
	gateways *gateway.Gateways
	// widestIPAM is the prefix length of the widest subnet that OVN's own allocator serves.
	widestIPAM int
}

// New returns a Networks. gateways has the routers of the operator's configuration. widestIPAM is the prefix length of
// the widest subnet that OVN's own allocator serves.
func New(s *nbrows.Store, gateways *gateway.Gateways, widestIPAM int) *Networks {
	return &Networks{Store: s, gateways: gateways, widestIPAM: widestIPAM}
}

// Ensure creates or updates the rows of a network in one transaction, with its router if that is missing. A missing
// gateway is created before, in a transaction of its own. From then on the network takes ports of these NADs. Ensure
// does not write rows that are already right: northd computes everything again for every changed column of a switch. A
// change that would disconnect or renumber ports on the network is refused with an error of type *nbrows.Refused.
func (n *Networks) Ensure(ctx context.Context, network *netmodel.Network, nads []string) (changed bool, err error) {
	owner := ""
	if len(nads) > 0 {
		owner, _, _ = strings.Cut(nads[0], "/")
	}
	return n.EnsureOwned(ctx, network, owner, nads)
}

// EnsureOwned is Ensure for a network that the namespace owner owns. The owner is stored in the row if several NADs
// share the network by name. A network that another namespace owns already is refused.
func (n *Networks) EnsureOwned(
	ctx context.Context, network *netmodel.Network, owner string, nads []string,
) (changed bool, err error) {
	wanted := n.wanted(network, nads)
	n.markIPAM(wanted.own, network)
	if IsShared(network.ID()) && owner != "" {
		wanted.own.Row.ExternalIDs[nbrows.KeyOwner] = owner
	}
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("network " + network.ID()); err != nil {
			return false, err
		}
		have, err := n.read(ctx, network.ID(), network, wanted)
		if err != nil {
			return false, err
		}
		if is := ownerOf(have.own); is != "" && is != owner {
			return false, nbrows.Refusedf("namespace %s has just become the owner of network %s", is, network.ID())
		}
		n.addWantedNodes(have, wanted, network)
		if err := n.boundIPAM(have, wanted, network); err != nil {
			return false, err
		}
		guards, err := n.judge(ctx, have, wanted, network)
		if err != nil {
			return false, err
		}
		router, made, err := n.ensureRouters(ctx, have, network)
		if err != nil {
			return false, err
		} else if made {
			continue
		}
		guards = append(router, guards...) // the guards also assert what a new router has
		if ops := n.deleteNodes(have, wanted); len(ops) > 0 {
			// This is a transaction of its own: the rows that replace the deleted rows may have the same keys.
			if err := n.Write(ctx, append(guards, ops...)); err != nil && !nbrows.Raced(err) {
				return false, err
			}
			continue
		}
		ops, err := n.change(&have.networkRows, wanted)
		ops = append(ops, have.deleteStrayPorts()...)
		if err != nil || len(router)+len(ops) == 0 {
			return false, err
		}
		err = n.Write(ctx, append(guards, ops...))
		if nbrows.Raced(err) {
			continue
		}
		if was := have.router(); err == nil && was != network.RouterName() {
			err = n.DeleteUnusedRouter(ctx, was)
		}
		return err == nil, nbrows.AsRefused(err)
	}
}

// ensureRouters creates the gateway of the network's router if it does not exist yet, and gives a renamed router its
// name again. For a missing router without a gateway it returns the operation that creates the router: northd computes
// everything again for a new router and for a new switch, so both are in one transaction.
func (n *Networks) ensureRouters(
	ctx context.Context, have *present, network *netmodel.Network,
) (ops []ovsdb.Operation, made bool, err error) {
	name, configured := network.RouterName(), n.gateways.WithGateway(network.Router)
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

// addWantedNodes adds the wanted rows of the existing node switches. A node switch whose node subnets do not belong to
// the network is not wanted.
func (n *Networks) addWantedNodes(have *present, wanted *networkRows, network *netmodel.Network) {
	wanted.nodes = map[string]*nbrows.Switch{}
	if have.config != nil && have.config.CheckChange(network) != nil {
		return
	}
	for key, p := range have.nodes {
		if subnets := network.ParseNodeSubnets(p.Row.ExternalIDs[ovndb.NodeSubnetsKey]); subnets != nil {
			wanted.nodes[key] = nbrows.NewSwitch(network.ForNode(p.Row.ExternalIDs[nbrows.KeyNode], subnets))
		}
	}
}

// ownerOf returns the network owner that a switch names; "" if the switch does not exist or names none.
func ownerOf(p *nbrows.Switch) string {
	if p.Row == nil {
		return ""
	}
	return p.Row.ExternalIDs[nbrows.KeyOwner]
}

// deleteNodes returns the operations that delete the node switches that are not wanted.
func (n *Networks) deleteNodes(have *present, wanted *networkRows) []ovsdb.Operation {
	b := &nbrows.Batch{Db: n.Db}
	for _, key := range slices.Sorted(maps.Keys(have.nodes)) {
		if wanted.nodes[key] == nil {
			b.DeleteSwitch(have.nodes[key])
		}
	}
	return b.Ops
}

// judge refuses a change that is not allowed. For an allowed change it returns the assertions that the change needs in
// its transaction.
func (n *Networks) judge(
	ctx context.Context, have *present, wanted *networkRows, network *netmodel.Network,
) ([]ovsdb.Operation, error) {
	guards := have.guards()
	if cut := n.disrupts(have, wanted, network); cut != nil {
		ports, err := n.ports(ctx, &have.networkRows)
		if err != nil {
			return nil, err
		}
		if len(ports.others) > 0 {
			return nil, nbrows.Refusedf("%v, with %s on the network", cut, count(len(ports.others), "port"))
		}
		free, err := n.freeGateways(ctx, network)
		if err != nil {
			return nil, err
		}
		guards = append(guards, slices.Concat(ports.unchanged(), free)...)
	}
	joins, err := n.mayJoin(ctx, network)
	if err != nil {
		return nil, err
	}
	guards = append(guards, joins...)
	if r := n.gateways.WithGateway(network.Router); r != nil {
		for _, subnet := range network.Subnets {
			if err := r.CheckSubnet(subnet); err != nil {
				return nil, nbrows.Refusedf("%v", err)
			}
		}
	}
	if network.RouterName() == "" || !have.changesRouter(wanted) {
		return guards, nil
	}
	guard, err := n.overlaps(ctx, network)
	if err != nil {
		return nil, err
	}
	return append(guards, guard...), nil
}

// freeGateways refuses gateways that are virtual addresses of Services, and returns the assertions that they do not
// become any. The port of a router, and the claims of a localnet network, assert the same by their row keys.
func (n *Networks) freeGateways(ctx context.Context, network *netmodel.Network) (guards []ovsdb.Operation, err error) {
	if network.Topology != netmodel.Layer2 || network.RouterName() != "" {
		return nil, nil
	}
	for _, g := range network.Gateways {
		key := ovndb.AddressKey(network.AddressBook(), g)
		claims, err := ovndb.ReadByKey[nb.Copp](ctx, n.Db, nb.CoppTable, []string{key}, "_uuid", "external_ids")
		if err != nil {
			return nil, err
		}
		if len(claims) == 0 {
			guards = append(guards, ovndb.Absent(nb.CoppTable, key))
		} else if by := ovndb.Claimants(claims[0].ExternalIDs); by != "" { // otherwise the router's port had the address
			return nil, nbrows.Refusedf("gateway: its address belongs to %s", by)
		}
	}
	return guards, nil
}

// disrupts returns why the change would disconnect or renumber ports on the network; nil if it would not.
func (n *Networks) disrupts(have *present, wanted *networkRows, network *netmodel.Network) error {
	if have.config != nil {
		if err := have.config.CheckChange(network); err != nil {
			return err
		}
	}
	for key, p := range have.nodes {
		if wanted.nodes[key] == nil {
			return fmt.Errorf("logical switch %s has the node subnets %q, which do not belong to the network",
				p.Row.Name, p.Row.ExternalIDs[ovndb.NodeSubnetsKey])
		}
	}
	return nil
}

// changesRouter tells whether the change gives the router a new or other subnet: by the port of the network's own
// switch, or by the discard route of a layer3 network.
func (have *present) changesRouter(wanted *networkRows) bool {
	if !nbrows.SamePort(have.own.RouterPort, wanted.own.RouterPort) && wanted.own.RouterPort != nil {
		return true
	}
	for key, r := range wanted.routes {
		if old := have.routes[key]; r.Nexthop == nbrows.Discard && (old == nil || old.IPPrefix != r.IPPrefix ||
			old.ExternalIDs[nbrows.KeyRouter] != r.ExternalIDs[nbrows.KeyRouter]) {
			return true
		}
	}
	return false
}

// count returns the number and the noun: "1 port", "2 ports".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
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

// guards returns, for a layer3 network, the assertion that its list of switches is still the list that was read: no
// node switch was created or deleted since.
func (have *present) guards() []ovsdb.Operation {
	if !have.layer3 {
		return nil
	}
	// OVSDB's wait operation cannot assert that there are no rows. In this case the transaction inserts the network's own
	// switch or asserts that it is absent.
	if len(have.switchKeys) == 0 {
		return nil
	}
	return []ovsdb.Operation{
		ovndb.AllWith(nb.LogicalSwitchTable, "external_ids", nbrows.KeyNetwork, have.id, have.switchKeys),
	}
}
