package denied

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const (
	// maxNamespaces is how many namespaces have series of their own, and maxPolicies how many policies of each. So a
	// tenant who makes policies takes series from nobody else.
	maxNamespaces = 200
	maxPolicies   = 20
	// others is the label of the packets of all other policies. No namespace and no policy has this name.
	others = "(others)"
)

// counter counts packets with a bounded number of series.
type counter struct {
	packets *prometheus.CounterVec
	known   map[string]map[string]bool // policies by namespace
}

func newCounter(packets *prometheus.CounterVec) *counter {
	return &counter{packets: packets, known: map[string]map[string]bool{}}
}

func (c *counter) add(rule *ovnport.DenyingRule) {
	namespace, policy, namespaced := strings.Cut(rule.Policy, "/")
	if !namespaced {
		namespace, policy = "", rule.Policy
	}
	direction := "egress"
	if rule.ToPod {
		direction = "ingress"
	}
	known := c.known[namespace]
	if known == nil && len(c.known) < maxNamespaces {
		known = map[string]bool{}
		c.known[namespace] = known
	}
	switch {
	case known == nil:
		namespace, policy = others, others
	case !known[policy] && len(known) >= maxPolicies:
		policy = others
	default:
		known[policy] = true
	}
	c.packets.WithLabelValues(namespace, policy, direction).Inc()
}
