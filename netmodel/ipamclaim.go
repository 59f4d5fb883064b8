package netmodel

import (
	"net/netip"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// IPAMClaim is what agent and controller use of an IPAMClaim (k8s.cni.cncf.io/v1alpha1): the addresses of an interface
// of a virtual machine, which stay when its pod goes.
type IPAMClaim struct {
	Namespace, Name, UID string
	// Network is the "name" of the network's configuration, and Interface the interface of the pod; "": any.
	Network, Interface string
	Requested          []netip.Prefix // spec.ipRequests
	Deleting           bool
	// Problem is why the spec cannot be read; "": it can.
	Problem string
	Status  IPAMClaimStatus
}

// ID returns "<namespace>/<name>".
func (c *IPAMClaim) ID() string { return c.Namespace + "/" + c.Name }

// IPAMClaimStatus is the status of an IPAMClaim.
type IPAMClaimStatus struct {
	IPs []string // each with its prefix length
	Pod string   // the name of the pod that has the addresses now; "": none
	// Reason and Message are of the condition IPsAllocated; Reason is "" without one.
	Allocated       bool
	Reason, Message string
}

// The condition of an IPAMClaim, and its reason.
const (
	IPsAllocated         = "IPsAllocated"
	SuccessfulAllocation = "SuccessfulAllocation"
)

// What an IPAMClaim needs in NB, in bytes: its own row, and the row of each claim on an address or a MAC. Its name is
// in each of them.
const (
	ipamClaimBytes    = 400
	ipamClaimRowBytes = 300
)

// IPAMClaimCost is what an IPAMClaim "<namespace>/<name>" with some addresses of a network needs in OVN, with a pod or
// without one.
func IPAMClaimCost(claim, network string, addresses int) (c cost.Cost) {
	names := len(claim) + len(network)
	c[cost.Bytes] = ipamClaimBytes + 2*names + addresses*(ipamClaimRowBytes+names)
	return c
}

// NextIPAMClaim is what an IPAMClaim of which nothing is known yet may need.
var NextIPAMClaim = IPAMClaimCost(strings.Repeat("n", longestName), "", 2)

// longestName is the length of the longest "<namespace>/<name>" of Kubernetes.
const longestName = 63 + 1 + 253
