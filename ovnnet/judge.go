package ovnnet

import (
	"context"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// judge refuses a change that is not allowed. For an allowed change it returns the assertions that the change needs in
// its transaction.
func (n *Networks) judge(
	ctx context.Context, have *present, wanted *networkRows, network *netmodel.Network, owner string,
) ([]ovsdb.Operation, error) {
	if is := ownerOf(have.own); is != "" && is != owner {
		return nil, nbrows.Refusedf("namespace %s has just become the owner of network %s", is, network.ID())
	}
	if err := n.boundIPAM(have, network); err != nil {
		return nil, err
	}
	guards := append(have.guards(), have.subnetsBehind.guards...)
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
		for _, subnet := range network.Routed() {
			if err := r.CheckSubnet(subnet); err != nil {
				return nil, nbrows.Refusedf("%v", err)
			}
		}
		if network.MTU != 0 && network.MTU < leastOnGateway {
			return nil, nbrows.Refusedf("mtu: %d is less than %d, the least on router %s: "+
				"its gateway carries no larger packets for other networks either",
				network.MTU, leastOnGateway, network.RouterName())
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

// ownerOf returns the network owner that a switch names; "" if the switch does not exist or names none.
func ownerOf(p *nbrows.Switch) string {
	if p.Row == nil {
		return ""
	}
	return p.Row.ExternalIDs[nbrows.KeyOwner]
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

// leastOnGateway is the smallest MTU of a network on a router with a gateway: every IPv6 path carries 1280 (RFC 8200).
const leastOnGateway = 1280

// changesRouter reports whether the change gives the router a new or other subnet: by the port of the network's own
// switch, by the discard route of a layer3 network, or by the routes to a subnet behind pods.
func (have *present) changesRouter(wanted *networkRows) bool {
	if !nbrows.SamePort(have.own.RouterPort, wanted.own.RouterPort) && wanted.own.RouterPort != nil {
		return true
	}
	leads := map[[2]string]bool{} // the routers and subnets of the present routes
	of := func(r *nb.LogicalRouterStaticRoute) [2]string {
		return [2]string{r.ExternalIDs[nbrows.KeyRouter], r.IPPrefix}
	}
	for _, r := range have.routes {
		if nbrows.InMainRouter(r) {
			leads[of(r)] = true
		}
	}
	for _, r := range wanted.routes {
		if nbrows.InMainRouter(r) && !leads[of(r)] {
			return true
		}
	}
	return false
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
