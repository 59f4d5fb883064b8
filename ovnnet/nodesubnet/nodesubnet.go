package nodesubnet

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// ErrNotAccepted says that a network does not take ports of a NAD now: the NAD changed, or the network goes.
var ErrNotAccepted = errors.New("the network does not take ports of this NetworkAttachmentDefinition as it is now")

// Subnets gives nodes their subnets of layer3 networks.
type Subnets struct{ *nbrows.Store }

// NewSubnets takes the connection to NB.
func New(db *ovndb.DB) *Subnets { return &Subnets{nbrows.NewStore(db)} }

// Share returns a layer3 network as the pods of a node have it. A node that has no blocks of it yet gets some, with its
// switch and that's port on the network's router, in one transaction: each block is a claim whose key is made of it, so
// that of two nodes that want one the database refuses the second.
// A node that has addresses already, since NB has lost its rows, asks for the blocks of those: has.
func (n *Subnets) Ensure(ctx context.Context, network *netmodel.Network, node string, has ...netip.Addr) (*netmodel.Network, error) {
	pick := &picker{network: network, node: node, next: make([]uint64, len(network.Subnets)), first: network.NodeSubnetsOf(has)}
	for inVain := 0; ; {
		own, view, err := n.read(ctx, network, node)
		if view != nil || err != nil {
			return view, err
		}
		blocks, err := pick.blocks()
		if err != nil {
			return nil, err
		}
		want := nbrows.NewSwitch(network.ForNode(node, blocks), nil)
		nbrows.NarrowIPAM(want, nbrows.WidestOf(own))
		ops, err := n.insert(network, own, want)
		if err != nil {
			return nil, err
		}
		if err = n.Write(ctx, ops); err == nil {
			return network.ForNode(node, blocks), nil
		}
		if !nbrows.Raced(err) {
			return nil, nbrows.AsRefused(err)
		}
		passed, err := n.passTaken(ctx, pick, want)
		if err != nil {
			return nil, err
		}
		if passed {
			inVain = 0
		} else if inVain++; inVain == maxInVain {
			return nil, nbrows.Refusedf("router %s of network %s is not there; the controller mends it within %v", network.RouterName(), network.ID(), nbrows.ReconcileEvery)
		}
	}
}

// maxInVain bounds the attempts that the database refuses without a reason to be seen afterwards.
const maxInVain = 5

// shareOf returns the network's own switch, and the node's view if it has one.
func (n *Subnets) read(ctx context.Context, network *netmodel.Network, node string) (own *nb.LogicalSwitch, view *netmodel.Network, err error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(network.ID()), "_uuid", "external_ids"),
		ovndb.Select(nb.LogicalSwitchTable, nbrows.NodeSwitchKey(network.ID(), node), "_uuid", "name", "external_ids"),
	})
	if err != nil {
		return nil, nil, err
	}
	var sw *nb.LogicalSwitch
	if err := errors.Join(nbrows.One(n.Db, results[0], &own), nbrows.One(n.Db, results[1], &sw)); err != nil {
		return nil, nil, err
	}
	accepted := func(sw *nb.LogicalSwitch) bool {
		return sw.ExternalIDs[ovndb.AcceptedPrefix+network.NAD()] == network.Revision()
	}
	switch {
	case own != nil && own.ExternalIDs[nbrows.KeyNetwork] != network.ID():
		return nil, nil, nbrows.Refusedf("logical switch %s is not ours", own.UUID)
	case own == nil || !accepted(own):
		return nil, nil, cmp.Or(n.Db.Owned(ctx), ErrNotAccepted) // of another cluster, it never will be
	case sw == nil:
		return own, nil, nil
	case sw.ExternalIDs[nbrows.KeyNetwork] != network.ID():
		return nil, nil, nbrows.Refusedf("logical switch %s is not ours", sw.UUID)
	}
	blocks := network.ParseNodeSubnets(sw.ExternalIDs[ovndb.BlocksKey])
	if blocks == nil || !accepted(sw) {
		// Written in one transaction with the network's own switch: someone else's hand was here.
		return nil, nil, nbrows.Refusedf("logical switch %s does not say what the network's own says; the controller mends it within %v", sw.Name, nbrows.ReconcileEvery)
	}
	return own, network.ForNode(node, blocks), nil
}

// shareOps make a node's part, as long as the network is what was read, with all its NADs, and its router is there.
func (n *Subnets) insert(network *netmodel.Network, own *nb.LogicalSwitch, want *nbrows.Switch) ([]ovsdb.Operation, error) {
	marks := map[string]string{ovndb.ConfigKey: own.ExternalIDs[ovndb.ConfigKey]}
	for _, nad := range nbrows.AcceptedNADs(own) {
		marks[ovndb.AcceptedPrefix+nad] = own.ExternalIDs[ovndb.AcceptedPrefix+nad]
	}
	maps.Copy(want.Row.ExternalIDs, marks)
	if widest, ok := own.ExternalIDs[nbrows.KeyWidestIPAM]; ok {
		marks[nbrows.KeyWidestIPAM] = widest
	}
	guard := ovndb.Present(nb.LogicalSwitchTable, own.UUID)
	guard.Where = append(guard.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(marks)))
	b := &nbrows.Batch{Db: n.Db}
	b.Add(guard, ovndb.Present(nb.LogicalRouterTable, ovndb.RouterKey(network.RouterName())))
	b.SetSwitch(nil, want)
	return b.Ops, b.Err
}

// picking proposes blocks for a node: it begins at a hash of the node's name, so that nodes that come at once seldom want
// the same.
type picker struct {
	network *netmodel.Network
	node    string
	next    []uint64       // by subnet: how many were passed over
	first   []netip.Prefix // by subnet: proposed before all others; the zero Prefix: none
}

func (p *picker) blocks() ([]netip.Prefix, error) {
	blocks := make([]netip.Prefix, len(p.network.Subnets))
	h := fnv.New64a()
	h.Write([]byte(p.network.ID() + " " + p.node))
	for i, subnet := range p.network.Subnets {
		size := p.network.NodeSubnetCount(i)
		if blocks[i] = p.first[i]; blocks[i].IsValid() {
			continue
		}
		for {
			if p.next[i] >= size {
				return nil, conf.Errorf(conf.CodeNoAddressLeft, "grow the subnet, or delete nodes that are no more",
					"network %s: no block of %s is left for node %s", p.network.ID(), subnet, p.node)
			}
			k := (h.Sum64()%size + p.next[i]) % size
			blocks[i] = p.network.NodeSubnet(i, k)
			passed := p.network.SkipExcluded(i, k)
			if passed == 0 {
				break
			}
			p.next[i] += passed
		}
	}
	return blocks, nil
}

// pass goes on from the block of the i-th subnet that was proposed last.
func (p *picker) pass(i int) {
	if p.first[i].IsValid() {
		p.first[i] = netip.Prefix{}
		return
	}
	p.next[i]++
}

// passTaken passes over the blocks that someone has. A claim whose switch is gone, by someone's hand, is cleared away.
func (n *Subnets) passTaken(ctx context.Context, pick *picker, want *nbrows.Switch) (passed bool, err error) {
	for i, block := range want.SubnetClaims {
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
		left, err := n.deleteStaleClaim(ctx, pick.network, claim)
		if err != nil {
			return false, err
		}
		if left && claim.ExternalIDs[nbrows.KeyNode] != pick.node {
			pick.pass(i)
		}
		passed = true
	}
	return passed, n.checkGatewayAddress(ctx, want)
}

// clearBlock deletes a claim whose node has no switch of the network; left says that it has.
func (n *Subnets) deleteStaleClaim(ctx context.Context, network *netmodel.Network, claim *nb.Copp) (left bool, err error) {
	name := nbrows.NodeSwitch(network.ID(), claim.ExternalIDs[nbrows.KeyNode])
	// Its router port, and the claims on its further gateway addresses, are in the block's way too.
	addresses := ovndb.Delete(nb.CoppTable, "")
	addresses.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(map[string]string{
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

// checkGateway finds a port that holds a block's gateway address: it is of someone else's making.
func (n *Subnets) checkGatewayAddress(ctx context.Context, want *nbrows.Switch) error {
	keys := []string{want.ToRouter.UUID}
	keys = append(keys, strings.Fields(want.ToRouter.ExternalIDs[nbrows.KeyClaims])...)
	results, err := n.Db.Transact(ctx, nbrows.SelectHolders(keys))
	if err != nil {
		return err
	}
	for i := range keys {
		var port *nb.LogicalSwitchPort
		if err := nbrows.One(n.Db, results[2*i], &port); err != nil {
			return err
		}
		if port != nil && port.ExternalIDs[nbrows.KeyRouter] == "" {
			return nbrows.Refusedf("gateway: its address is held by port %s", port.Name)
		}
	}
	return nil
}
