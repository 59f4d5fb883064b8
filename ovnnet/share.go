package ovnnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// ErrNotAccepted says that a network does not take ports of a NAD now: the NAD changed, or the network goes.
var ErrNotAccepted = errors.New("the network does not take ports of this NetworkAttachmentDefinition as it is now")

// Share returns a layer3 network as the pods of a node have it. A node that has no blocks of it yet gets some, with its
// switch and that's port on the network's router, in one transaction: each block is a claim whose key is made of it, so
// that of two nodes that want one the database refuses the second.
// A node that has addresses already, since NB has lost its rows, asks for the blocks of those: has.
func (n *Networks) Share(ctx context.Context, network *netmodel.Network, node string, has ...netip.Addr) (*netmodel.Network, error) {
	pick := &picking{network: network, node: node, next: make([]uint64, len(network.Subnets)), first: network.NodeSubnetsOf(has)}
	for inVain := 0; ; {
		own, view, err := n.shareOf(ctx, network, node)
		if view != nil || err != nil {
			return view, err
		}
		blocks, err := pick.blocks()
		if err != nil {
			return nil, err
		}
		want := wantedPart(network.ForNode(node, blocks), nil)
		narrowIPAM(want, widestOf(own))
		ops, err := n.shareOps(network, own, want)
		if err != nil {
			return nil, err
		}
		if err = n.write(ctx, ops); err == nil {
			return network.ForNode(node, blocks), nil
		}
		if !raced(err) {
			return nil, inTheWay(err)
		}
		passed, err := n.passTaken(ctx, pick, want)
		if err != nil {
			return nil, err
		}
		if passed {
			inVain = 0
		} else if inVain++; inVain == maxInVain {
			return nil, refusedf("router %s of network %s is not there; the controller mends it within %v", network.RouterName(), network.ID(), lookAgain)
		}
	}
}

// maxInVain bounds the attempts that the database refuses without a reason to be seen afterwards.
const maxInVain = 5

// shareOf returns the network's own switch, and the node's view if it has one.
func (n *Networks) shareOf(ctx context.Context, network *netmodel.Network, node string) (own *nb.LogicalSwitch, view *netmodel.Network, err error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(network.ID()), "_uuid", "external_ids"),
		ovndb.Select(nb.LogicalSwitchTable, nodeSwitchKey(network.ID(), node), "_uuid", "name", "external_ids"),
	})
	if err != nil {
		return nil, nil, err
	}
	var sw *nb.LogicalSwitch
	if err := errors.Join(one(n.db, results[0], &own), one(n.db, results[1], &sw)); err != nil {
		return nil, nil, err
	}
	accepted := func(sw *nb.LogicalSwitch) bool {
		return sw.ExternalIDs[ovndb.AcceptedPrefix+network.NAD()] == network.Revision()
	}
	switch {
	case own != nil && own.ExternalIDs[keyNetwork] != network.ID():
		return nil, nil, refusedf("logical switch %s is not ours", own.UUID)
	case own == nil || !accepted(own):
		return nil, nil, cmp.Or(n.db.Owned(ctx), ErrNotAccepted) // of another cluster, it never will be
	case sw == nil:
		return own, nil, nil
	case sw.ExternalIDs[keyNetwork] != network.ID():
		return nil, nil, refusedf("logical switch %s is not ours", sw.UUID)
	}
	blocks := network.ParseNodeSubnets(sw.ExternalIDs[ovndb.BlocksKey])
	if blocks == nil || !accepted(sw) {
		// Written in one transaction with the network's own switch: someone else's hand was here.
		return nil, nil, refusedf("logical switch %s does not say what the network's own says; the controller mends it within %v", sw.Name, lookAgain)
	}
	return own, network.ForNode(node, blocks), nil
}

// shareOps make a node's part, as long as the network is what was read, with all its NADs, and its router is there.
func (n *Networks) shareOps(network *netmodel.Network, own *nb.LogicalSwitch, want *part) ([]ovsdb.Operation, error) {
	marks := map[string]string{ovndb.ConfigKey: own.ExternalIDs[ovndb.ConfigKey]}
	for _, nad := range accepts(own) {
		marks[ovndb.AcceptedPrefix+nad] = own.ExternalIDs[ovndb.AcceptedPrefix+nad]
	}
	maps.Copy(want.sw.ExternalIDs, marks)
	if widest, ok := own.ExternalIDs[keyWidestIPAM]; ok {
		marks[keyWidestIPAM] = widest
	}
	guard := ovndb.Present(nb.LogicalSwitchTable, own.UUID)
	guard.Where = append(guard.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(marks)))
	b := &batch{db: n.db}
	b.add(guard, ovndb.Present(nb.LogicalRouterTable, ovndb.RouterKey(network.RouterName())))
	b.setPart(nil, want)
	return b.ops, b.err
}

// picking proposes blocks for a node: it begins at a hash of the node's name, so that nodes that come at once seldom want
// the same.
type picking struct {
	network *netmodel.Network
	node    string
	next    []uint64       // by subnet: how many were passed over
	first   []netip.Prefix // by subnet: proposed before all others; the zero Prefix: none
}

func (p *picking) blocks() ([]netip.Prefix, error) {
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
func (p *picking) pass(i int) {
	if p.first[i].IsValid() {
		p.first[i] = netip.Prefix{}
		return
	}
	p.next[i]++
}

// passTaken passes over the blocks that someone has. A claim whose switch is gone, by someone's hand, is cleared away.
func (n *Networks) passTaken(ctx context.Context, pick *picking, want *part) (passed bool, err error) {
	for i, block := range want.blocks {
		results, err := n.db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.CoppTable, block.UUID)})
		if err != nil {
			return false, err
		}
		var claim *nb.Copp
		if err := one(n.db, results[0], &claim); err != nil {
			return false, err
		}
		if claim == nil {
			continue
		}
		left, err := n.clearBlock(ctx, pick.network, claim)
		if err != nil {
			return false, err
		}
		if left && claim.ExternalIDs[keyNode] != pick.node {
			pick.pass(i)
		}
		passed = true
	}
	return passed, n.checkGateway(ctx, want)
}

// clearBlock deletes a claim whose node has no switch of the network; left says that it has.
func (n *Networks) clearBlock(ctx context.Context, network *netmodel.Network, claim *nb.Copp) (left bool, err error) {
	name := nodeSwitch(network.ID(), claim.ExternalIDs[keyNode])
	// Its router port, and the claims on its further gateway addresses, are in the block's way too.
	addresses := ovndb.Delete(nb.CoppTable, "")
	addresses.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(map[string]string{
		keyNetwork: network.ID(), keyPortName: name + ":" + network.RouterName()}))}
	err = n.write(ctx, []ovsdb.Operation{
		ovndb.Absent(nb.LogicalSwitchTable, ovndb.SwitchKey(name)), ovndb.Delete(nb.CoppTable, claim.UUID), addresses,
		ovndb.Unlink(nb.LogicalRouterTable, "ports", ovndb.RouterPortKey(name)),
	})
	if raced(err) {
		return true, nil
	}
	return false, err
}

// checkGateway finds a port that holds a block's gateway address: it is of someone else's making.
func (n *Networks) checkGateway(ctx context.Context, want *part) error {
	keys := []string{want.end.UUID}
	keys = append(keys, strings.Fields(want.end.ExternalIDs[keyClaims])...)
	results, err := n.db.Transact(ctx, lookUp(keys))
	if err != nil {
		return err
	}
	for i := range keys {
		var port *nb.LogicalSwitchPort
		if err := one(n.db, results[2*i], &port); err != nil {
			return err
		}
		if port != nil && port.ExternalIDs[keyRouter] == "" {
			return refusedf("gateway: its address is held by port %s", port.Name)
		}
	}
	return nil
}

// blockKeys are the keys of the claims on the blocks that a node's switch says it has.
func blockKeys(id string, sw *nb.LogicalSwitch) []string {
	var keys []string
	for _, word := range strings.Split(sw.ExternalIDs[ovndb.BlocksKey], ",") {
		if block, err := netip.ParsePrefix(word); err == nil {
			keys = append(keys, ovndb.BlockKey(id, block))
		}
	}
	return keys
}

// DropNode takes a node's part of a layer3 network away, with its blocks. With pods on it it stays; that is an error
// of type *InUse.
func (n *Networks) DropNode(ctx context.Context, id, node string) error {
	for tries := races(0); ; {
		if err := tries.again("network " + id); err != nil {
			return err
		}
		have, err := n.readNode(ctx, id, node)
		if err != nil || have == nil {
			return err
		}
		ports, err := n.ports(ctx, &rows{own: have})
		if err != nil {
			return err
		}
		if len(ports.others) > 0 {
			return fmt.Errorf("logical switch %s: %w", have.sw.Name, &InUse{By: []string{count(len(ports.others), "port")}})
		}
		b := &batch{db: n.db}
		b.add(ports.unchanged()...)
		b.drop(have)
		if err := n.write(ctx, b.ops); !raced(err) {
			return err
		}
	}
}

func (n *Networks) readNode(ctx context.Context, id, node string) (*part, error) {
	have, err := n.read(ctx, id, nil, nil)
	if err != nil {
		return nil, err
	}
	return have.nodes[nodeSwitchKey(id, node)], nil
}
