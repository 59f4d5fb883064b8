package nodesubnet

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// ErrNotAccepted says that a network does not take ports of a NAD now: the NAD has changed, or it was withdrawn, or the
// network does not exist.
var ErrNotAccepted = errors.New("the network does not take ports of this NetworkAttachmentDefinition as it is now")

// Subnets allocates node subnets.
type Subnets struct{ *nbrows.Store }

// New returns the Subnets of an agent that uses this connection to NB.
func New(db *ovndb.DB) *Subnets { return &Subnets{nbrows.NewStore(db)} }

// Ensure returns a node's view of a layer3 network: the network as the node's pods have it. A node without node
// subnets gets them in one transaction, with its node switch and the switch's port on the router. Each node subnet is
// a claim whose row key is made of the subnet: if two nodes choose the same subnet, the database refuses the second
// one. has are the addresses that pods of the node have already, because NB has lost its rows: the node asks for their
// subnets first.
func (n *Subnets) Ensure(
	ctx context.Context, network *netmodel.Network, node string, has ...netip.Addr,
) (*netmodel.Network, error) {
	pick := &picker{
		network: network, node: node, next: make([]uint64, len(network.Subnets)), first: network.NodeSubnetsOf(has),
	}
	for inVain := 0; ; {
		have, err := n.read(ctx, network, node)
		if err != nil {
			return nil, err
		}
		if have.view != nil {
			return have.view, nil
		}
		subnets, err := pick.subnets()
		if err != nil {
			return nil, err
		}
		wanted := nbrows.NewSwitch(network.ForNode(node, subnets))
		nbrows.NarrowIPAM(wanted, nbrows.WidestOf(have.own))
		nbrows.SetMTU(wanted.RouterPort, nbrows.PortMTU(have.accepted))
		wanted.Row.LoadBalancerGroup = have.groups
		ops, err := n.insert(network, have, wanted)
		if err != nil {
			return nil, err
		}
		if err = n.Write(ctx, ops); err == nil {
			return network.ForNode(node, subnets), nil
		}
		if !nbrows.Raced(err) {
			return nil, nbrows.AsRefused(err)
		}
		passed, err := n.passTaken(ctx, pick, wanted)
		if err != nil {
			return nil, err
		}
		if passed {
			inVain = 0
		} else if inVain++; inVain == maxInVain {
			return nil, nbrows.Refusedf("router %s of network %s is not there; the controller mends it within %v",
				network.RouterName(), network.ID(), nbrows.ReconcileEvery)
		}
	}
}

// maxInVain is the number of attempts in a row that the database may refuse without a visible reason. After them Ensure
// reports that the router is missing.
const maxInVain = 5

// present is what NB has of a network.
type present struct {
	own      *nb.LogicalSwitch // the network's own switch
	accepted *nb.Copp
	view     *netmodel.Network // the node's view of the network; nil: the node has no node switch
	groups   []string          // the keys of the groups with the load balancers that the network's pods use
}

// read reads what NB has of a network.
func (n *Subnets) read(ctx context.Context, network *netmodel.Network, node string) (*present, error) {
	ops := []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(network.ID()), "_uuid", "external_ids"),
		ovndb.Select(nb.CoppTable, ovndb.AcceptedKey(network.ID())),
		ovndb.Select(nb.LogicalSwitchTable, nbrows.NodeSwitchKey(network.ID(), node), "_uuid", "name", "external_ids"),
	}
	const first = 3 // of the groups
	for _, key := range nbrows.GroupsOf(network) {
		ops = append(ops, ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid"))
	}
	results, err := n.Db.Transact(ctx, ops)
	if err != nil {
		return nil, err
	}
	have := &present{}
	for i, key := range nbrows.GroupsOf(network) {
		if len(results[first+i].Rows) > 0 {
			have.groups = append(have.groups, key)
		}
	}
	var sw *nb.LogicalSwitch
	if err := errors.Join(nbrows.One(n.Db, results[0], &have.own), nbrows.One(n.Db, results[1], &have.accepted),
		nbrows.One(n.Db, results[2], &sw)); err != nil {
		return nil, err
	}
	switch {
	case have.own != nil && have.own.ExternalIDs[nbrows.KeyNetwork] != network.ID():
		return nil, nbrows.Refusedf("logical switch %s is not ours", have.own.UUID)
	case have.own == nil || have.accepted == nil ||
		have.accepted.ExternalIDs[ovndb.AcceptedPrefix+network.NAD()] != network.Revision():
		// If NB belongs to another cluster, the network will never be accepted: Owned returns that error.
		return nil, cmp.Or(n.Db.Owned(ctx), ErrNotAccepted)
	case sw == nil:
		return have, nil
	case sw.ExternalIDs[nbrows.KeyNetwork] != network.ID():
		return nil, nbrows.Refusedf("logical switch %s is not ours", sw.UUID)
	}
	subnets := network.ParseNodeSubnets(sw.ExternalIDs[ovndb.NodeSubnetsKey])
	if subnets == nil {
		// The controller writes all switches of a network in one transaction, so another program has changed this one.
		return nil, nbrows.Refusedf(
			"logical switch %s has no node subnets of its network; the controller mends it within %v",
			sw.Name, nbrows.ReconcileEvery)
	}
	have.view = network.ForNode(node, subnets)
	return have, nil
}

// insert returns the operations that create a node switch. They assert that the network has its own switch and takes
// ports of the NAD with this configuration, that the router exists, and which groups of load balancers exist.
func (n *Subnets) insert(
	network *netmodel.Network, have *present, wanted *nbrows.Switch,
) ([]ovsdb.Operation, error) {
	b, own := &nbrows.Batch{Db: n.Db}, have.own
	b.Add(ovndb.Present(nb.LogicalSwitchTable, own.UUID), ovndb.Holds(nb.CoppTable, ovndb.AcceptedKey(network.ID()),
		"external_ids", ovndb.AcceptedPrefix+network.NAD(), network.Revision()))
	if widest, ok := own.ExternalIDs[nbrows.KeyWidestIPAM]; ok {
		b.Add(ovndb.Holds(nb.LogicalSwitchTable, own.UUID, "external_ids", nbrows.KeyWidestIPAM, widest))
	}
	b.Add(ovndb.Present(nb.LogicalRouterTable, ovndb.RouterKey(network.RouterName())))
	for _, key := range nbrows.GroupsOf(network) {
		if slices.Contains(wanted.Row.LoadBalancerGroup, key) {
			b.Add(ovndb.Present(nb.LoadBalancerGroupTable, key))
		} else {
			b.Add(ovndb.Absent(nb.LoadBalancerGroupTable, key))
		}
	}
	b.SetSwitch(nil, wanted)
	return b.Ops, b.Err
}

// picker proposes node subnets for a node. It begins at a hash of the node's name: nodes that start at the same time
// seldom get the same proposal.
type picker struct {
	network *netmodel.Network
	node    string
	next    []uint64       // by subnet of the network: how many node subnets were skipped
	first   []netip.Prefix // by subnet of the network: the node subnet to propose first; the zero Prefix: none
}

// subnets proposes one node subnet of each subnet of the network.
func (p *picker) subnets() ([]netip.Prefix, error) {
	subnets := make([]netip.Prefix, len(p.network.Subnets))
	h := fnv.New64a()
	h.Write([]byte(p.network.ID() + " " + p.node))
	for i, subnet := range p.network.Subnets {
		size := p.network.NodeSubnetCount(i)
		if subnets[i] = p.first[i]; subnets[i].IsValid() {
			continue
		}
		for {
			if p.next[i] >= size {
				return nil, conf.Errorf(conf.CodeNoAddressLeft, "grow the subnet, or delete nodes that are no more",
					"network %s: no node subnet of %s is free for node %s", p.network.ID(), subnet, p.node)
			}
			k := (h.Sum64()%size + p.next[i]) % size
			subnets[i] = p.network.NodeSubnet(i, k)
			passed := p.network.SkipExcluded(i, k)
			if passed == 0 {
				break
			}
			p.next[i] += passed
		}
	}
	return subnets, nil
}

// pass skips the node subnet of the i-th subnet that was proposed last.
func (p *picker) pass(i int) {
	if p.first[i].IsValid() {
		p.first[i] = netip.Prefix{}
		return
	}
	p.next[i]++
}

// passTaken skips the proposed node subnets that another node has. It deletes a claim whose node switch somebody has
// deleted. passed reports whether it found a claim on one of the proposed node subnets.
func (n *Subnets) passTaken(ctx context.Context, pick *picker, wanted *nbrows.Switch) (passed bool, err error) {
	for i, block := range wanted.SubnetClaims {
		results, err := n.Db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.CoppTable, block.UUID)})
		if err != nil {
			return false, err
		}
		var claim *nb.Copp
		if err := nbrows.One(n.Db, results[0], &claim); err != nil {
			return false, err
		}
		if claim == nil {
			continue
		}
		stays, err := n.deleteStaleClaim(ctx, pick.network, claim)
		if err != nil {
			return false, err
		}
		if stays && claim.ExternalIDs[nbrows.KeyNode] != pick.node {
			pick.pass(i)
		}
		passed = true
	}
	return passed, n.checkGatewayAddress(ctx, wanted)
}

// deleteStaleClaim deletes the claim on a node subnet if the claim's node has no node switch. stays is true if the node
// has a node switch: then the claim stays.
func (n *Subnets) deleteStaleClaim(
	ctx context.Context, network *netmodel.Network, claim *nb.Copp,
) (stays bool, err error) {
	name := nbrows.NodeSwitch(network.ID(), claim.ExternalIDs[nbrows.KeyNode])
	// The router's port to the deleted node switch, and the claims on its further gateway addresses, would also stop a
	// new node switch with this node subnet.
	addresses := ovndb.Delete(nb.CoppTable, "")
	addresses.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
		ovndb.Map(map[string]string{
			nbrows.KeyNetwork: network.ID(), nbrows.KeyPortName: name + ":" + network.RouterName()}))}
	err = n.Write(ctx, []ovsdb.Operation{
		ovndb.Absent(nb.LogicalSwitchTable, ovndb.SwitchKey(name)), ovndb.Delete(nb.CoppTable, claim.UUID), addresses,
		ovndb.Unlink(nb.LogicalRouterTable, "ports", ovndb.RouterPortKey(name)),
	})
	if nbrows.Raced(err) {
		return true, nil
	}
	return false, err
}

// checkGatewayAddress refuses a gateway address of a proposed node subnet that a Service has, or that a port has
// leased. The lease is not a router's: only a pod or another program can have made this port. A Service has such an
// address only if the node subnets of the network were of another size before.
func (n *Subnets) checkGatewayAddress(ctx context.Context, wanted *nbrows.Switch) error {
	keys := []string{wanted.ToRouter.UUID}
	keys = append(keys, strings.Fields(wanted.ToRouter.ExternalIDs[nbrows.KeyClaims])...)
	reads, all := n.Reads(), make([]*nbrows.Found, len(keys))
	for i, key := range keys {
		all[i] = nbrows.ReadAt(reads, key)
	}
	if err := reads.Do(ctx); err != nil {
		return err
	}
	for _, found := range all {
		if claim := found.Claim; claim != nil && ovndb.Claimants(claim.ExternalIDs) != "" {
			return nbrows.Refusedf("gateway: its address belongs to %s", ovndb.Claimants(claim.ExternalIDs))
		}
		if port := found.Port; port != nil && port.ExternalIDs[nbrows.KeyRouter] == "" {
			return nbrows.Refusedf("gateway: its address belongs to port %s", port.Name)
		}
	}
	return nil
}
