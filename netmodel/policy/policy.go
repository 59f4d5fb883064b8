package policy

import (
	"net/netip"
	"slices"
)

// Policy is one MultiNetworkPolicy or ClusterNetworkPolicy that can be served.
type Policy struct {
	Namespace string // "": a ClusterNetworkPolicy
	Name      string
	Created   int64 // Unix time
	// Text is what the policy was parsed from; ParseText reads it.
	Text string
	// Networks are the NADs that the policy is for, each "<namespace>/<name>", in order and without duplicates. A
	// ClusterNetworkPolicy may have AllNetworks alone.
	Networks []string
	// Subject selects the pods that the policy is for.
	Subject Selector
	// Tier and Priority order ClusterNetworkPolicies. The priority 0 comes first.
	Tier     Tier
	Priority int
	// Ingress and Egress are the rules of one direction; nil: the policy does not restrict this direction.
	Ingress, Egress *Rules
	// LogDenied has OVN log packets that the policy denies.
	LogDenied bool
	// PeersOn are the words that Across was called with.
	PeersOn []string
}

// ID is "<namespace>/<name>"; of a ClusterNetworkPolicy, its name.
func (p *Policy) ID() string { return objectID(p.Namespace, p.Name) }

func objectID(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// ForAll reports whether the policy is for all OVN networks.
func (p *Policy) ForAll() bool { return slices.Equal(p.Networks, []string{AllNetworks}) }

// Tier says when a ClusterNetworkPolicy is asked (network-policy-api v0.2.0, API version v1alpha2).
type Tier string

// The tiers of ClusterNetworkPolicies. A MultiNetworkPolicy has no Tier. It is asked after Admin and before Baseline.
const (
	Admin    Tier = "Admin"
	Baseline Tier = "Baseline"
)

// Action is what a rule does with the packets that it matches.
type Action string

// The actions of rules. The rules of a MultiNetworkPolicy all accept.
const (
	Accept Action = "Accept"
	Deny   Action = "Deny"
	Pass   Action = "Pass" // the rest of the tier is not asked
)

// Rules are the rules of one direction. Those of a MultiNetworkPolicy add up, and without rules, nothing is allowed.
// Of the rules of a ClusterNetworkPolicy, the first one that matches decides.
type Rules []Rule

// Rule matches what comes from, or goes to, one of the peers on one of the ports.
type Rule struct {
	Name string // as its author calls it; a MultiNetworkPolicy has no names of rules
	Action
	Peers []Selector
	CIDRs []netip.Prefix // with what "except" leaves of them, sorted
	Any   bool           // every peer, also those that are no pods
	Ports []Port         // empty: every protocol and every port
}

// Port is a protocol with a range of ports.
type Port struct {
	Protocol    string // "tcp", "udp" or "sctp"
	First, Last uint16 // 0, 0: all ports, if there is no name
	Name        string // of a container port of the destination, which says the number
}

// Selector selects pods by their labels, and by a named port.
type Selector struct {
	// Anywhere tells that pods of all namespaces that Namespaces selects are selected. Otherwise only pods in the
	// policy's own namespace are.
	Anywhere   bool   `json:"anywhere,omitempty"`
	Namespaces string `json:"namespaces,omitempty"` // a label selector of namespaces, in its canonical form
	Pods       string `json:"pods,omitempty"`       // a label selector of pods, in its canonical form
	// Port is a named port that the pods have, with its number, such as "tcp/http=8080". "tcp/http" is a name whose
	// numbers are to be found; no group has such a selector.
	Port string `json:"port,omitempty"`
	// Across says on which further networks pods are selected, in words; "": only on the network of the set. Peers have
	// it, and subjects do not.
	Across string `json:"across,omitempty"`
}

// String is the selector in words. Different selectors have different words.
func (s Selector) String() string {
	pods := "pods with " + s.Pods
	if s.Pods == "" {
		pods = "all pods"
	}
	if s.Port != "" {
		pods = "port " + s.Port + " of " + pods
	}
	switch {
	case !s.Anywhere:
	case s.Namespaces == "":
		pods += " of all namespaces"
	default:
		pods += " of namespaces with " + s.Namespaces
	}
	if s.Across != "" {
		pods += " on " + s.Across
	}
	return pods
}

// Limits of one policy, and of the policies of one namespace on one network. They keep what a tenant writes from
// costing others: each ACL becomes flows on the nodes of its pods, and each group an operation in the transaction of
// a pod that joins it.
const (
	MaxRules     = 64   // rules of one policy, in both directions together
	MaxPeers     = 64   // peers of one rule
	MaxPorts     = 64   // ports of one rule
	MaxCIDRs     = 1000 // CIDRs of one policy, with what "except" makes of them
	MaxPolicies  = 500  // policies of one namespace on one network
	MaxSelectors = 1000 // different selectors of the policies of one namespace on one network
	MaxLabels    = 16 << 10
	MaxText      = 64 << 10 // of one policy, in bytes
	MaxNetworks  = 64       // NADs that one policy names
	// MaxBytes is the limit of Policy.Bytes of one policy. MaxClusterBytes is the limit of the sum for the
	// ClusterNetworkPolicies on one network. What a namespace may need in OVN is in package cost.
	MaxBytes        = 128 << 10
	MaxClusterBytes = 2 << 20
	// MaxClusterRules is the limit of the rules of ClusterNetworkPolicies on one network, for each tier and direction.
	// Each rule has a priority of its own.
	MaxClusterRules = 9000
)
