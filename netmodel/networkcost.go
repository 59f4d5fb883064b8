package netmodel

import (
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// What a network needs in NB beside the text of its configuration, in bytes. TestBoundaryCosts compares them with OVN.
// The switch of a node with pods of a layer3 network needs some 2,500 bytes more for each node; the agents make these
// when pods start.
const (
	switchBytes = 1500
	routerBytes = 2000 // the network's part in its router
	dhcpBytes   = 1500 // rows of both families, and the ACL that lets the requests pass
	// virtualBytes are of one virtual address: its claims, its port group and its ACLs.
	virtualBytes = 2500
	// subnetBehindBytes are of one subnet behind pods: the way to it on the gateway, and its SNAT. viaBytes and viaFlows
	// are of one next hop.
	subnetBehindBytes, viaBytes, viaFlows = 1000, 400, 2
)

// Cost is what the network needs in OVN without pods. Its flows, 150 to 400, are on the nodes with its pods alone.
func (n *Network) Cost() (c cost.Cost) {
	c[cost.Bytes] = switchBytes + len(n.Canonical())
	for _, r := range n.Exclude {
		c[cost.Bytes] += len(r.String())
	}
	if n.RouterName() != "" {
		c[cost.Bytes] += routerBytes
	}
	c[cost.Bytes] += virtualBytes * len(n.VirtualAddresses)
	c[cost.Groups] += len(n.VirtualAddresses)
	for _, b := range n.SubnetsBehind {
		c[cost.Bytes] += subnetBehindBytes + viaBytes*len(b.Via)
		c[cost.Flows] += viaFlows * len(b.Via)
	}
	if n.DHCP != nil {
		c[cost.Bytes] += dhcpBytes
	}
	return c
}
