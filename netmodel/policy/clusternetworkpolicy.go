package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// ClusterAPIVersion and ClusterKind are those of the ClusterNetworkPolicies that are served.
const (
	ClusterAPIVersion = "policy.networking.k8s.io/v1alpha2"
	ClusterKind       = "ClusterNetworkPolicy"
)

// AllNetworks is the value of ForAnnotation of a ClusterNetworkPolicy for all OVN networks.
const AllNetworks = "*"

// clusterSpec is the spec of a ClusterNetworkPolicy. The module of its API needs other versions of Kubernetes'
// libraries than we use.
type clusterSpec struct {
	Tier     Tier          `json:"tier"`
	Priority *int          `json:"priority"`
	Subject  clusterPods   `json:"subject"`
	Ingress  []clusterRule `json:"ingress"`
	Egress   []clusterRule `json:"egress"`
}

// clusterPods selects all pods of namespaces, or some of them. Exactly one field is set.
type clusterPods struct {
	Namespaces *metav1.LabelSelector `json:"namespaces"`
	Pods       *struct {
		NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
		PodSelector       metav1.LabelSelector `json:"podSelector"`
	} `json:"pods"`
}

type clusterRule struct {
	Name      string            `json:"name"`
	Action    Action            `json:"action"`
	From      []clusterPeer     `json:"from"`
	To        []clusterPeer     `json:"to"`
	Protocols []clusterProtocol `json:"protocols"`
}

// clusterPeer has exactly one field.
type clusterPeer struct {
	clusterPods
	Nodes       *metav1.LabelSelector `json:"nodes"`
	Networks    []string              `json:"networks"`
	DomainNames []string              `json:"domainNames"`
}

// clusterProtocol has exactly one field.
type clusterProtocol struct {
	TCP       *clusterPort `json:"tcp"`
	UDP       *clusterPort `json:"udp"`
	SCTP      *clusterPort `json:"sctp"`
	NamedPort string       `json:"destinationNamedPort"`
}

type clusterPort struct {
	Port *struct {
		Number int `json:"number"`
		Range  *struct {
			Start int `json:"start"`
			End   int `json:"end"`
		} `json:"range"`
	} `json:"destinationPort"`
}

// limits of the API (network-policy-api v0.2.0).
const (
	maxPriority  = 1000
	maxRuleName  = 100
	maxPortsRule = 25
)

// ParseCluster reads the spec of a ClusterNetworkPolicy, as JSON. The annotation ForAnnotation names its networks. The
// error says why the policy cannot be served; it names the field.
func ParseCluster(name string, annotations map[string]string, spec []byte) (*Policy, error) {
	var s clusterSpec
	unknown, err := kjson.UnmarshalStrict(spec, &s)
	if err := errors.Join(append([]error{err}, unknown...)...); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	p := &Policy{Name: name, Tier: s.Tier}
	if strings.TrimSpace(annotations[ForAnnotation]) == AllNetworks {
		p.Networks = []string{AllNetworks}
	} else if p.Networks, err = parseNetworks("", annotations); err != nil {
		return nil, err
	}
	switch {
	case s.Tier != Admin && s.Tier != Baseline:
		return nil, fmt.Errorf("spec.tier: %q is neither Admin nor Baseline", s.Tier)
	case s.Priority == nil || *s.Priority < 0 || *s.Priority > maxPriority:
		return nil, fmt.Errorf("spec.priority: it is not a number from 0 to %d", maxPriority)
	case len(s.Ingress)+len(s.Egress) > MaxRules:
		return nil, fmt.Errorf("spec: %d rules, %d is the limit", len(s.Ingress)+len(s.Egress), MaxRules)
	}
	p.Priority = *s.Priority
	if p.Subject, err = s.Subject.selector("spec.subject"); err != nil {
		return nil, err
	}
	if p.Ingress, err = clusterRules("spec.ingress", s.Ingress, true); err != nil {
		return nil, err
	}
	if p.Egress, err = clusterRules("spec.egress", s.Egress, false); err != nil {
		return nil, err
	}
	return p, p.checkCIDRs()
}

// DeniesPods reports whether a rule denies peers that it selects by labels.
func (p *Policy) DeniesPods() bool {
	if p == nil {
		return false
	}
	for _, rules := range []*Rules{p.Ingress, p.Egress} {
		if rules != nil && slices.ContainsFunc(*rules, func(r Rule) bool { return r.Action == Deny && len(r.Peers) > 0 }) {
			return true
		}
	}
	return false
}

// selector returns the selector of the pods.
func (c *clusterPods) selector(field string) (Selector, error) {
	s := Selector{Anywhere: true}
	var err error
	switch {
	case (c.Namespaces == nil) == (c.Pods == nil):
		return s, fmt.Errorf("%s: it needs namespaces or pods, and not both", field)
	case c.Namespaces != nil:
		s.Namespaces, err = canonical(field+".namespaces", c.Namespaces)
		return s, err
	}
	if s.Namespaces, err = canonical(field+".pods.namespaceSelector", &c.Pods.NamespaceSelector); err == nil {
		s.Pods, err = canonical(field+".pods.podSelector", &c.Pods.PodSelector)
	}
	return s, err
}

// clusterRules reads the rules of one direction.
func clusterRules(field string, rules []clusterRule, toPod bool) (*Rules, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	all := Rules{}
	for i := range rules {
		r, err := rules[i].parse(fmt.Sprintf("%s[%d]", field, i), toPod)
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
	}
	return &all, nil
}

func (c *clusterRule) parse(field string, toPod bool) (*Rule, error) {
	side, peers, other := "to", c.To, c.From
	if toPod {
		side, peers, other = "from", c.From, c.To
	}
	switch {
	case c.Action != Accept && c.Action != Deny && c.Action != Pass:
		return nil, fmt.Errorf("%s.action: %q is not Accept, Deny or Pass", field, c.Action)
	case len(c.Name) > maxRuleName:
		return nil, fmt.Errorf("%s.name: %d bytes, %d is the limit", field, len(c.Name), maxRuleName)
	case len(other) > 0 || len(peers) == 0:
		return nil, fmt.Errorf("%s: it needs a list of peers in %q", field, side)
	case len(peers) > MaxPeers:
		return nil, fmt.Errorf("%s.%s: %d peers, %d is the limit", field, side, len(peers), MaxPeers)
	case len(c.Protocols) > maxPortsRule:
		return nil, fmt.Errorf("%s.protocols: %d entries, %d is the limit", field, len(c.Protocols), maxPortsRule)
	}
	r := &Rule{Name: c.Name, Action: c.Action}
	var cidrs netipx.IPSetBuilder
	for i := range peers {
		if err := r.addClusterPeer(fmt.Sprintf("%s.%s[%d]", field, side, i), &peers[i], toPod, &cidrs); err != nil {
			return nil, err
		}
	}
	if err := r.finish(&cidrs); err != nil {
		return nil, fmt.Errorf("%s.%s: %w", field, side, err)
	}
	for i := range c.Protocols {
		port, err := c.Protocols[i].port()
		if err != nil {
			return nil, fmt.Errorf("%s.protocols[%d]: %w", field, i, err)
		}
		r.Ports = append(r.Ports, port)
	}
	r.Ports = joined(r.Ports)
	return r, nil
}

func (r *Rule) addClusterPeer(field string, c *clusterPeer, toPod bool, cidrs *netipx.IPSetBuilder) error {
	byLabels := c.Namespaces != nil || c.Pods != nil
	switch {
	case c.Nodes != nil:
		return fmt.Errorf("%s.nodes: nodes have no addresses on OVN networks; name their addresses in networks", field)
	case len(c.DomainNames) > 0:
		return fmt.Errorf("%s.domainNames: ovn-multinet serves no domain names; name addresses in networks", field)
	case len(c.Networks) == 0:
		s, err := c.selector(field)
		r.Peers = append(r.Peers, s)
		return err
	case byLabels || toPod:
		return fmt.Errorf("%s.networks: networks stand alone, in peers of egress", field)
	case len(c.Networks) > MaxCIDRs:
		return fmt.Errorf("%s.networks: %d CIDRs, %d is the limit", field, len(c.Networks), MaxCIDRs)
	}
	for i, text := range c.Networks {
		cidr, err := parseCIDR(text)
		if err != nil {
			return fmt.Errorf("%s.networks[%d]: %w", field, i, err)
		}
		cidrs.AddPrefix(cidr)
	}
	return nil
}

func (c *clusterProtocol) port() (Port, error) {
	if c.NamedPort != "" {
		return Port{}, fmt.Errorf("destinationNamedPort: names such as %q are served in MultiNetworkPolicies alone; "+
			"write a number", c.NamedPort)
	}
	var port Port
	var of *clusterPort
	for _, one := range []struct {
		protocol string
		port     *clusterPort
	}{{"tcp", c.TCP}, {"udp", c.UDP}, {"sctp", c.SCTP}} {
		if one.port == nil {
			continue
		}
		if of != nil {
			return Port{}, errors.New("it has more than one protocol")
		}
		port.Protocol, of = one.protocol, one.port
	}
	if of == nil {
		return Port{}, errors.New("it is not tcp, udp or sctp")
	}
	if of.Port == nil {
		return port, nil
	}
	first, last := of.Port.Number, of.Port.Number
	if r := of.Port.Range; r != nil {
		if first != 0 {
			return Port{}, errors.New("destinationPort has a number and a range")
		}
		first, last = r.Start, r.End
	}
	return port, port.setRange(first, last)
}
