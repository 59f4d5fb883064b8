package policy

import (
	"net/netip"
)

// Policy is one MultiNetworkPolicy that can be served.
type Policy struct {
	Namespace string
	Name      string
	Created   int64 // Unix time
	// Text is what the policy was parsed from; ParseText reads it.
	Text string
	// Networks are the NADs that the policy is for, each "<namespace>/<name>", in order and without duplicates.
	Networks []string
	// Pods is the label selector of the pods of the namespace that the policy selects, in its canonical form.
	Pods string
	// Ingress and Egress are the rules of one direction; nil: the policy does not restrict this direction.
	Ingress, Egress *Rules
}

// ID is "<namespace>/<name>".
func (p *Policy) ID() string { return p.Namespace + "/" + p.Name }

// Rules are the rules of one direction. They add up. Without rules, nothing is allowed.
type Rules []Rule

// Rule allows what comes from, or goes to, one of the peers on one of the ports.
type Rule struct {
	Peers []Selector
	CIDRs []netip.Prefix // with what "except" leaves of them, sorted
	Any   bool           // every peer, also those that are no pods
	Ports []Port         // empty: every protocol and every port
}

// Port is a protocol with a range of ports.
type Port struct {
	Protocol    string // "tcp", "udp" or "sctp"
	First, Last uint16 // 0, 0: all ports
}

// Selector selects pods by their labels.
type Selector struct {
	// Anywhere tells that pods of all namespaces that Namespaces selects are selected. Otherwise only pods in the
	// policy's own namespace are.
	Anywhere   bool   `json:"anywhere,omitempty"`
	Namespaces string `json:"namespaces,omitempty"` // a label selector of namespaces, in its canonical form
	Pods       string `json:"pods,omitempty"`       // a label selector of pods, in its canonical form
}

// String is the selector in words. Different selectors have different words.
func (s Selector) String() string {
	pods := "pods with " + s.Pods
	if s.Pods == "" {
		pods = "all pods"
	}
	switch {
	case !s.Anywhere:
		return pods
	case s.Namespaces == "":
		return pods + " of all namespaces"
	}
	return pods + " of namespaces with " + s.Namespaces
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
)
