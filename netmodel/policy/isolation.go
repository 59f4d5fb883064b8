package policy

import (
	"encoding/json"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Limits of what is kept of a policy that is refused.
const (
	// maxIsolated is the longest selector, in bytes. A longer one counts as all pods of the namespace.
	maxIsolated = 1 << 10
	// MaxIsolations is how many refused policies of one namespace isolate only the pods that they select. If there are
	// more, all pods of the namespace are isolated on the networks that the others name.
	MaxIsolations = 64
)

// isolated is the spec of a policy that allows nothing.
type isolated struct {
	PodSelector metav1.LabelSelector      `json:"podSelector"`
	PolicyTypes []networkingv1.PolicyType `json:"policyTypes"`
}

// isolation returns the policy that stands for a MultiNetworkPolicy while it is refused. It reads what can be read: the
// networks, the selector of the pods and the directions. What cannot be read isolates more and not less: all pods of
// the namespace, both directions. The result is nil if the annotation names no network.
func isolation(namespace, name string, created int64, annotations map[string]string, spec []byte) *Policy {
	networks, all := readableNetworks(namespace, annotations[ForAnnotation])
	if len(networks) == 0 && !all {
		return nil
	}
	var s isolated
	var parts map[string]json.RawMessage
	unclear, err := kjson.UnmarshalStrict(spec, &parts)
	if err != nil || len(unclear) > 0 { // such as a field that is there twice
		s.PolicyTypes = bothDirections
	} else {
		s.PodSelector = readableSelector(parts["podSelector"])
		s.PolicyTypes = readableDirections(parts)
	}
	if all {
		networks = []string{AllNetworks}
	}
	p := isolating(namespace, name, created, strings.Join(networks, ","), &s)
	p.LogDenied, _ = logDenied(annotations)
	return p
}

var bothDirections = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}

// isolating makes a policy that allows nothing.
func isolating(namespace, name string, created int64, networks string, s *isolated) *Policy {
	p := &Policy{Namespace: namespace, Name: name, Created: created}
	p.Networks = strings.Split(networks, ",")
	p.Subject.Pods, _ = canonical("", &s.PodSelector)
	if slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress) {
		p.Ingress = &Rules{}
	}
	if slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress) {
		p.Egress = &Rules{}
	}
	if spec, err := json.Marshal(s); err == nil {
		p.Text, _ = encode(p, networks, spec)
	}
	return p
}

// IsolateAll returns the policy that isolates all pods of the namespace, on the networks of this one.
func (p *Policy) IsolateAll() *Policy {
	all := isolated{PolicyTypes: bothDirections}
	other := isolating(p.Namespace, p.Name, p.Created, strings.Join(p.Networks, ","), &all)
	other.LogDenied = p.LogDenied
	return other
}

// readableNetworks returns the NADs that an annotation names, without the words that name none. all tells that it has
// too many of them: they count as all networks then.
func readableNetworks(namespace, text string) (networks []string, all bool) {
	if strings.Count(text, ",") >= MaxNetworks || len(text) > MaxText {
		return nil, true
	}
	for word := range strings.SplitSeq(text, ",") {
		one, err := parseNetworks(namespace, map[string]string{ForAnnotation: word})
		if err == nil {
			networks = append(networks, one...)
		}
	}
	slices.Sort(networks)
	return slices.Compact(networks), false
}

// readableSelector returns a selector; one of all pods if it cannot be read.
func readableSelector(text json.RawMessage) (s metav1.LabelSelector) {
	if len(text) == 0 {
		return s
	}
	unclear, err := kjson.UnmarshalStrict(text, &s)
	if err != nil || len(unclear) > 0 {
		return metav1.LabelSelector{}
	}
	if words, err := canonical("", &s); err != nil || len(words) > maxIsolated {
		return metav1.LabelSelector{}
	}
	return s
}

// readableDirections returns the directions; both if they cannot be read.
func readableDirections(parts map[string]json.RawMessage) []networkingv1.PolicyType {
	var s networkingv1.NetworkPolicySpec
	if text := parts["policyTypes"]; len(text) > 0 && json.Unmarshal(text, &s.PolicyTypes) != nil {
		return bothDirections
	}
	var rules []json.RawMessage
	if text := parts["egress"]; len(text) > 0 && json.Unmarshal(text, &rules) != nil {
		return bothDirections
	}
	s.Egress = make([]networkingv1.NetworkPolicyEgressRule, len(rules))
	for _, t := range s.PolicyTypes {
		if !slices.Contains(bothDirections, t) {
			return bothDirections
		}
	}
	var types []networkingv1.PolicyType
	toPods, fromPods := directions(&s)
	if toPods {
		types = append(types, networkingv1.PolicyTypeIngress)
	}
	if fromPods {
		types = append(types, networkingv1.PolicyTypeEgress)
	}
	return types
}
