package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// ForAnnotation is the annotation of a MultiNetworkPolicy that names the networks that the policy is for: NADs, as
// "<name>" or "<namespace>/<name>", separated by commas.
const ForAnnotation = "k8s.v1.cni.cncf.io/policy-for"

// APIVersion and Kind are those of the MultiNetworkPolicies that are served.
const (
	APIVersion = "k8s.cni.cncf.io/v1beta1"
	Kind       = "MultiNetworkPolicy"
)

// Parse reads the spec of a MultiNetworkPolicy, as JSON: it has the form of the spec of a NetworkPolicy
// (networking.k8s.io/v1), with the same meaning. The error says why the policy cannot be served; it names the field. A
// field of the spec that is not known is an error, because an ignored field could open more than its author wants.
func Parse(namespace, name string, annotations map[string]string, spec []byte) (*Policy, error) {
	var s networkingv1.NetworkPolicySpec
	unknown, err := kjson.UnmarshalStrict(spec, &s)
	if err := errors.Join(append([]error{err}, unknown...)...); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	p := &Policy{Namespace: namespace, Name: name}
	if p.Networks, err = parseNetworks(namespace, annotations); err != nil {
		return nil, err
	}
	if p.Subject.Pods, err = canonical("spec.podSelector", &s.PodSelector); err != nil {
		return nil, err
	}
	if len(s.Ingress)+len(s.Egress) > MaxRules {
		return nil, fmt.Errorf("spec: %d rules, %d is the limit", len(s.Ingress)+len(s.Egress), MaxRules)
	}
	ingress, egress := directions(&s)
	for _, t := range s.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			return nil, fmt.Errorf("spec.policyTypes: %q is neither Ingress nor Egress", t)
		}
	}
	if ingress {
		p.Ingress = &Rules{}
		for i, r := range s.Ingress {
			if err := p.Ingress.add(fmt.Sprintf("spec.ingress[%d]", i), "from", r.From, r.Ports); err != nil {
				return nil, err
			}
		}
	}
	if egress {
		p.Egress = &Rules{}
		for i, r := range s.Egress {
			if err := p.Egress.add(fmt.Sprintf("spec.egress[%d]", i), "to", r.To, r.Ports); err != nil {
				return nil, err
			}
		}
	}
	if n := len(p.allNames()); n > MaxSelectors {
		return nil, fmt.Errorf("spec: %d named ports of pods and peers, %d is the limit", n, MaxSelectors)
	}
	return p, p.checkCIDRs()
}

// directions returns which directions the policy restricts. Without policyTypes it restricts ingress, and egress if it
// has a rule of it.
func directions(s *networkingv1.NetworkPolicySpec) (ingress, egress bool) {
	if len(s.PolicyTypes) == 0 {
		return true, len(s.Egress) > 0
	}
	return slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress),
		slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress)
}

func (p *Policy) checkCIDRs() error {
	cidrs := 0
	for _, rules := range []*Rules{p.Ingress, p.Egress} {
		if rules == nil {
			continue
		}
		for _, r := range *rules {
			cidrs += len(r.CIDRs)
		}
	}
	if cidrs > MaxCIDRs {
		return fmt.Errorf("spec: %d CIDRs without what \"except\" names, %d is the limit", cidrs, MaxCIDRs)
	}
	return nil
}

// parseNetworks reads the annotation with the networks.
func parseNetworks(namespace string, annotations map[string]string) ([]string, error) {
	text, ok := annotations[ForAnnotation]
	if !ok || strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("annotation %s is missing: it names the networks that the policy is for", ForAnnotation)
	}
	form := "<name> or <namespace>/<name>"
	if namespace == "" {
		form = "<namespace>/<name>, and not " + AllNetworks + " alone"
	}
	var networks []string
	if n := strings.Count(text, ",") + 1; n > MaxNetworks {
		return nil, fmt.Errorf("annotation %s: %d networks, %d is the limit", ForAnnotation, n, MaxNetworks)
	}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		ns, name, other := strings.Cut(word, "/")
		if !other {
			ns, name = namespace, word
		}
		if ns == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("annotation %s: %q is not %s", ForAnnotation, word, form)
		}
		networks = append(networks, ns+"/"+name)
	}
	slices.Sort(networks)
	return slices.Compact(networks), nil
}

// canonical returns the canonical form of a label selector. k8s.io/apimachinery/pkg/labels.Parse reads it.
func canonical(field string, s *metav1.LabelSelector) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return selector.String(), nil
}

// add reads one rule and appends it.
func (all *Rules) add(
	field, side string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort,
) error {
	if len(peers) > MaxPeers {
		return fmt.Errorf("%s.%s: %d peers, %d is the limit", field, side, len(peers), MaxPeers)
	}
	if len(ports) > MaxPorts {
		return fmt.Errorf("%s.ports: %d ports, %d is the limit", field, len(ports), MaxPorts)
	}
	r := Rule{Action: Accept, Any: len(peers) == 0}
	var cidrs netipx.IPSetBuilder
	for i := range peers {
		if err := r.addPeer(fmt.Sprintf("%s.%s[%d]", field, side, i), &peers[i], &cidrs); err != nil {
			return err
		}
	}
	if err := r.finish(&cidrs); err != nil {
		return fmt.Errorf("%s.%s: %w", field, side, err)
	}
	for i := range ports {
		port, err := parsePort(&ports[i])
		if err != nil {
			return fmt.Errorf("%s.ports[%d]: %w", field, i, err)
		}
		r.Ports = append(r.Ports, port)
	}
	r.Ports = joined(r.Ports)
	*all = append(*all, r)
	return nil
}

// finish notes the collected CIDRs, and brings the peers into order.
func (r *Rule) finish(cidrs *netipx.IPSetBuilder) error {
	set, err := cidrs.IPSet()
	if err != nil {
		return err
	}
	r.CIDRs = set.Prefixes()
	slices.SortFunc(r.Peers, func(a, b Selector) int { return strings.Compare(a.String(), b.String()) })
	r.Peers = slices.Compact(r.Peers)
	return nil
}

func (r *Rule) addPeer(field string, peer *networkingv1.NetworkPolicyPeer, cidrs *netipx.IPSetBuilder) error {
	byLabels := peer.PodSelector != nil || peer.NamespaceSelector != nil
	switch {
	case peer.IPBlock != nil && byLabels:
		return fmt.Errorf("%s: it has an ipBlock and a selector; write two peers", field)
	case peer.IPBlock != nil:
		return addCIDR(field+".ipBlock", peer.IPBlock, cidrs)
	case !byLabels:
		return fmt.Errorf("%s: it is empty; name a podSelector, a namespaceSelector or an ipBlock", field)
	}
	s := Selector{Anywhere: peer.NamespaceSelector != nil}
	var err error
	if peer.PodSelector != nil {
		if s.Pods, err = canonical(field+".podSelector", peer.PodSelector); err != nil {
			return err
		}
	}
	if s.Anywhere {
		if s.Namespaces, err = canonical(field+".namespaceSelector", peer.NamespaceSelector); err != nil {
			return err
		}
	}
	r.Peers = append(r.Peers, s)
	return nil
}

// addCIDR adds an ipBlock: a CIDR without its exceptions. Another ipBlock may allow what is an exception of this one.
func addCIDR(field string, b *networkingv1.IPBlock, all *netipx.IPSetBuilder) error {
	whole, err := parseCIDR(b.CIDR)
	if err != nil {
		return fmt.Errorf("%s.cidr: %w", field, err)
	}
	if len(b.Except) > MaxCIDRs {
		return fmt.Errorf("%s.except: %d CIDRs, %d is the limit", field, len(b.Except), MaxCIDRs)
	}
	var one netipx.IPSetBuilder
	one.AddPrefix(whole)
	for i, text := range b.Except {
		except, err := parseException(text)
		if err != nil {
			return fmt.Errorf("%s.except[%d]: %w", field, i, err)
		}
		if except.Bits() < whole.Bits() || !whole.Contains(except.Addr()) {
			return fmt.Errorf("%s.except[%d]: %s is not inside %s", field, i, except, whole)
		}
		one.RemovePrefix(except)
	}
	set, err := one.IPSet()
	if err == nil {
		all.AddSet(set)
	}
	return err
}

// parseException reads a CIDR or an address. Policies in the field have addresses without a length there.
func parseException(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		text = netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	return parseCIDR(text)
}

// parseCIDR reads a CIDR. Its host bits do not matter.
func parseCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		err = fmt.Errorf("%s: write the IPv4 address itself", text)
	}
	return p.Masked(), err
}

func parsePort(p *networkingv1.NetworkPolicyPort) (Port, error) {
	protocol, err := protocolOf(p.Protocol)
	if err != nil {
		return Port{}, err
	}
	port := Port{Protocol: protocol}
	if p.Port == nil {
		if p.EndPort != nil {
			return Port{}, errors.New("endPort needs a port")
		}
		return port, nil
	}
	if p.Port.Type == intstr.String {
		switch port.Name = p.Port.StrVal; {
		case !validName(port.Name):
			return Port{}, fmt.Errorf("port %q is neither a number nor the name of a port", port.Name)
		case p.EndPort != nil:
			return Port{}, fmt.Errorf("endPort needs a port that is a number, and %q is a name", port.Name)
		}
		return port, nil
	}
	last := p.Port.IntVal
	if p.EndPort != nil {
		last = *p.EndPort
	}
	return port, port.setRange(int(p.Port.IntVal), int(last))
}

// protocolOf returns the name that OVN has for a protocol.
func protocolOf(p *corev1.Protocol) (string, error) {
	if p == nil || *p == "" {
		return "tcp", nil
	}
	switch *p {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return strings.ToLower(string(*p)), nil
	}
	return "", fmt.Errorf("protocol %q is not TCP, UDP or SCTP", *p)
}

func (p *Port) setRange(first, last int) error {
	if first < 1 || last > 65535 || last < first {
		return fmt.Errorf("%d to %d is not a range of ports", first, last)
	}
	p.First, p.Last = uint16(first), uint16(last)
	return nil
}
