package service

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
)

// checkAnnotations refuses an annotation that looks like one of ours: a misspelt address would make a Service headless.
func checkAnnotations(annotations map[string]string) error {
	known := []string{NetworkAnnotation, SelectorAnnotation, AddressAnnotation, OutsideAnnotation, SourcesAnnotation,
		StateAnnotation}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, annotationPrefix) && !slices.Contains(known, key) {
			return fmt.Errorf("annotation %.128s is not known; known are %s", key, strings.Join(known[:5], ", "))
		}
	}
	return nil
}

func (s *Service) setNetwork(from *stored) error {
	text := strings.TrimSpace(from.Network)
	if text == "" {
		return fmt.Errorf("annotation %s is missing: it names the network, as <name> or <namespace>/<name>",
			NetworkAnnotation)
	}
	namespace, name, other := strings.Cut(text, "/")
	if !other {
		namespace, name = s.Namespace, text
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("annotation %s: %.128q is not <name> or <namespace>/<name> of one network",
			NetworkAnnotation, text)
	}
	s.NAD = namespace + "/" + name
	return nil
}

func (s *Service) setPods(from *stored) error {
	selector, err := labels.Parse(from.Selector)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", SelectorAnnotation, err)
	}
	if selector.Empty() {
		return fmt.Errorf("annotation %s is missing or empty: it selects the pods, like \"app=web\"", SelectorAnnotation)
	}
	s.Pods = selector.String()
	return nil
}

func (s *Service) setAddress(from *stored) error {
	if from.Address == nil {
		return nil
	}
	list, err := parseAddresses(AddressAnnotation, *from.Address)
	s.Fixed, s.Auto = list, err == nil && len(list) == 0
	return err
}

// parseAddresses parses "auto", which is an empty list, or one address of each family at most.
func parseAddresses(annotation, text string) (list []netip.Addr, err error) {
	if text = strings.TrimSpace(text); text == "auto" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(word))
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return nil, fmt.Errorf("annotation %s: %.64q is neither \"auto\" nor an address", annotation, word)
		}
		if slices.ContainsFunc(list, func(other netip.Addr) bool { return other.Is4() == a.Is4() }) {
			return nil, fmt.Errorf("annotation %s: write one address of each family at most", annotation)
		}
		list = append(list, a)
	}
	slices.SortFunc(list, netip.Addr.Compare) // IPv4 is before IPv6
	return list, nil
}

// setSpec reads the spec. A field that is not known is an error, because its author wants something that we do not do.
func (s *Service) setSpec(from *stored) error {
	var spec corev1.ServiceSpec
	unknown, err := kjson.UnmarshalStrict(from.Spec, &spec)
	if err := errors.Join(append([]error{err}, unknown...)...); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	if err := refuseUnserved(&spec); err != nil {
		return err
	}
	if err := s.setLoadBalancer(from, &spec); err != nil {
		return err
	}
	s.NotReady = spec.PublishNotReadyAddresses
	if err := s.setAffinity(&spec); err != nil {
		return err
	}
	if err := s.setFamilies(&spec); err != nil {
		return err
	}
	return s.setPorts(spec.Ports)
}

// refuseUnserved refuses values of fields that are not served. The API server sets type, clusterIPs and
// internalTrafficPolicy itself.
func refuseUnserved(spec *corev1.ServiceSpec) error {
	const notServed = "it is not served; leave it out"
	policy := spec.InternalTrafficPolicy
	for _, f := range []struct {
		field, why string
		refused    bool
	}{
		{"type", fmt.Sprintf("%.32q is not served, only ClusterIP and LoadBalancer", spec.Type), spec.Type != "" &&
			spec.Type != corev1.ServiceTypeClusterIP && spec.Type != corev1.ServiceTypeLoadBalancer},
		{"selector", "leave it out and write the annotation " + SelectorAnnotation +
			": Kubernetes would add the pods' addresses on the primary network", len(spec.Selector) > 0},
		{"internalTrafficPolicy", "Local is not served; leave it out", policy != nil &&
			*policy != corev1.ServiceInternalTrafficPolicyCluster},
		{"externalIPs", "write the annotation " + OutsideAnnotation + " instead", len(spec.ExternalIPs) > 0},
		{"externalName", notServed, spec.ExternalName != ""},
		{"healthCheckNodePort", notServed, spec.HealthCheckNodePort != 0},
		{"loadBalancerIP", "write the annotation " + OutsideAnnotation + " instead", spec.LoadBalancerIP != ""},
		{"trafficDistribution", "backends are chosen without regard to nodes and zones; leave it out",
			spec.TrafficDistribution != nil},
	} {
		if f.refused {
			return fmt.Errorf("spec.%s: %s", f.field, f.why)
		}
	}
	return nil
}

// setAffinity reads sessionAffinity. OVN chooses the backend by a hash of the addresses of client and service, so the
// affinity has no timeout. The API server sets the default timeout itself.
func (s *Service) setAffinity(spec *corev1.ServiceSpec) error {
	const field = "spec.sessionAffinity"
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
	case corev1.ServiceAffinityClientIP:
		if s.Headless() && s.Outside == nil {
			return fmt.Errorf("%s: ClientIP needs a virtual address; write the annotation %s", field, AddressAnnotation)
		}
		s.Affinity = true
	default:
		return fmt.Errorf("%s: %.32q is neither None nor ClientIP", field, spec.SessionAffinity)
	}
	config := spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return nil
	}
	if t := *config.ClientIP.TimeoutSeconds; !s.Affinity || t != corev1.DefaultClientIPServiceAffinitySeconds {
		return fmt.Errorf("%sConfig.clientIP.timeoutSeconds: %d is not served, because the affinity stays as long as the "+
			"backends; leave it out", field, t)
	}
	return nil
}

// setFamilies reads the families. RequireDualStack does not refuse a network of one family, because the API server
// sets it in every Service without clusterIP and selector, in clusters of one family too.
//
// The families of a Service of type LoadBalancer are not read: the API server sets those of the cluster IP, which is
// not ours.
func (s *Service) setFamilies(spec *corev1.ServiceSpec) error {
	if s.LoadBalancer {
		return nil
	}
	if p := spec.IPFamilyPolicy; p != nil {
		switch *p {
		case corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack:
		default:
			return fmt.Errorf("spec.ipFamilyPolicy: %.32q is not known", *p)
		}
		s.single = *p == corev1.IPFamilyPolicySingleStack
	}
	for _, f := range spec.IPFamilies {
		is4 := f == corev1.IPv4Protocol
		if !is4 && f != corev1.IPv6Protocol || slices.Contains(s.families, is4) {
			return fmt.Errorf("spec.ipFamilies: %.32q is neither IPv4 nor IPv6, or is there twice", f)
		}
		s.families = append(s.families, is4)
	}
	for _, a := range s.fixed() {
		if s.families != nil && !slices.Contains(s.families, a.Is4()) {
			return fmt.Errorf("spec.ipFamilies: the family of address %s is not among them", a)
		}
	}
	if s.single && (len(s.families) > 1 || len(s.Fixed) > 1 || s.Outside != nil && len(s.Outside.Fixed) > 1) {
		return errors.New("spec.ipFamilyPolicy: SingleStack does not go with two families; write PreferDualStack")
	}
	return nil
}

func (s *Service) setPorts(list []corev1.ServicePort) error {
	if len(list) > MaxPorts {
		return fmt.Errorf("spec.ports: %d ports, %d is the limit", len(list), MaxPorts)
	}
	if len(list) == 0 && (!s.Headless() || s.Outside != nil) {
		return errors.New("spec.ports: a virtual or outside address needs a port")
	}
	for i := range list {
		p, err := parsePort(&list[i])
		if err == nil {
			err = s.checkBeside(&p, len(list))
		}
		if err != nil {
			return fmt.Errorf("spec.ports[%d].%w", i, err)
		}
		s.Ports = append(s.Ports, p)
	}
	return nil
}

// checkBeside refuses a port that cannot be beside the others. of is the number of ports.
func (s *Service) checkBeside(p *Port, of int) error {
	if p.Name == "" && of > 1 {
		return errors.New("name: it is missing; each of several ports needs a name")
	}
	for _, other := range s.Ports {
		switch {
		case other.Name == p.Name:
			return fmt.Errorf("name: another port has the name %q", p.Name)
		case other.Protocol == p.Protocol && other.Port == p.Port:
			return fmt.Errorf("port: another port has the number %d and this protocol", p.Port)
		}
	}
	return nil
}

func parsePort(from *corev1.ServicePort) (Port, error) {
	p := Port{Name: from.Name, AppProtocol: from.AppProtocol}
	if p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0 {
		return p, fmt.Errorf("name: %.64q is no name of a port", p.Name)
	}
	switch from.Protocol {
	case "":
		p.Protocol = "tcp"
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		p.Protocol = strings.ToLower(string(from.Protocol))
	default:
		return p, fmt.Errorf("protocol: %.32q is none of TCP, UDP and SCTP", from.Protocol)
	}
	if len(validation.IsValidPortNum(int(from.Port))) > 0 {
		return p, fmt.Errorf("port: %d is not between 1 and 65535", from.Port)
	}
	if from.NodePort != 0 {
		return p, errors.New("nodePort: nobody serves it; leave it out, with allocateLoadBalancerNodePorts: false if the " +
			"type is LoadBalancer")
	}
	p.Port = uint16(from.Port)
	p.Target = p.Port
	switch target := from.TargetPort; {
	case target.Type == intstr.String:
		if len(validation.IsValidPortName(target.StrVal)) > 0 {
			return p, fmt.Errorf("targetPort: %.64q is neither a number nor the name of a port", target.StrVal)
		}
		p.Target, p.TargetName = 0, target.StrVal
	case target.IntVal == 0: // the field is absent
	case len(validation.IsValidPortNum(int(target.IntVal))) > 0:
		return p, fmt.Errorf("targetPort: %d is not between 1 and 65535", target.IntVal)
	default:
		p.Target = uint16(target.IntVal)
	}
	return p, nil
}
