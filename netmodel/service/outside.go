package service

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// outsideGateway is the value of OutsideAnnotation that means the gateway's own addresses.
const outsideGateway = "gateway"

// setOutside reads the annotations that say how outside hosts reach the service. setLoadBalancer has the other way.
func (s *Service) setOutside(from *stored) error {
	if from.Outside == nil {
		return nil
	}
	if strings.TrimSpace(*from.Outside) == outsideGateway {
		s.Outside = &Outside{Gateway: true}
		return nil
	}
	list, err := parseAddresses(OutsideAnnotation, *from.Outside)
	s.Outside = &Outside{Fixed: list}
	return err
}

// setLoadBalancer reads the type, and what goes with it. The type LoadBalancer is the standard way to an outside
// address. The annotation is the other way: it goes with clusterIP None, so the cluster's DNS has the Service's name.
func (s *Service) setLoadBalancer(from *stored, spec *corev1.ServiceSpec) error {
	s.LoadBalancer = spec.Type == corev1.ServiceTypeLoadBalancer
	check := checkWithoutType
	if s.LoadBalancer {
		check = checkLoadBalancer
	}
	if err := check(spec); err != nil {
		return fmt.Errorf("spec.%w", err)
	}
	if s.LoadBalancer && s.Outside == nil {
		s.Outside = &Outside{}
	}
	field, words := "spec.loadBalancerSourceRanges", spec.LoadBalancerSourceRanges
	if from.Sources != nil {
		if len(words) > 0 {
			return fmt.Errorf("%s: write either this or the annotation %s", field, SourcesAnnotation)
		}
		field, words = "annotation "+SourcesAnnotation, strings.Split(*from.Sources, ",")
	}
	if len(words) > 0 && s.Outside == nil {
		return fmt.Errorf("%s: the Service has no outside address; write the annotation %s", field, OutsideAnnotation)
	}
	for _, word := range words {
		p, err := netip.ParsePrefix(strings.TrimSpace(word))
		if err != nil || p.Addr().Is4In6() {
			return fmt.Errorf("%s: %.64q is no subnet like 198.51.100.0/24", field, word)
		}
		s.Outside.Sources = append(s.Outside.Sources, p.Masked())
	}
	if len(words) > MaxSources {
		return fmt.Errorf("%s: %d subnets, %d is the limit", field, len(words), MaxSources)
	}
	return nil
}

// checkLoadBalancer refuses what does not go with the type LoadBalancer. The API server sets clusterIP itself, and
// refuses None.
func checkLoadBalancer(spec *corev1.ServiceSpec) error {
	policy := spec.ExternalTrafficPolicy
	switch {
	case spec.LoadBalancerClass == nil || *spec.LoadBalancerClass != LoadBalancerClass:
		return fmt.Errorf("loadBalancerClass: write %q", LoadBalancerClass)
	case spec.AllocateLoadBalancerNodePorts == nil || *spec.AllocateLoadBalancerNodePorts:
		return errors.New("allocateLoadBalancerNodePorts: write false, nobody serves node ports")
	case policy != "" && policy != corev1.ServiceExternalTrafficPolicyCluster:
		return errors.New("externalTrafficPolicy: Local is not served; leave it out, the backends see the client's address " +
			"anyway")
	}
	return nil
}

// checkWithoutType refuses what goes with the type LoadBalancer alone, and cluster IPs.
func checkWithoutType(spec *corev1.ServiceSpec) error {
	const typed = "it needs the type LoadBalancer; leave it out"
	switch {
	case spec.ClusterIP != corev1.ClusterIPNone:
		return errors.New("clusterIP: write \"None\": the cluster's DNS would answer another address, and nobody serves " +
			"that; the annotation " + AddressAnnotation + " gives the Service an address on its network")
	case len(spec.ClusterIPs) > 0 && !slices.Equal(spec.ClusterIPs, []string{corev1.ClusterIPNone}):
		return errors.New("clusterIPs: write \"None\" alone, or leave it out")
	case spec.ExternalTrafficPolicy != "":
		return errors.New("externalTrafficPolicy: " + typed)
	case len(spec.LoadBalancerSourceRanges) > 0:
		return errors.New("loadBalancerSourceRanges: it needs the type LoadBalancer; write the annotation " +
			SourcesAnnotation)
	case spec.LoadBalancerClass != nil:
		return errors.New("loadBalancerClass: " + typed)
	case spec.AllocateLoadBalancerNodePorts != nil:
		return errors.New("allocateLoadBalancerNodePorts: " + typed)
	}
	return nil
}

// fixed are all fixed addresses of the service.
func (s *Service) fixed() []netip.Addr {
	if s.Outside == nil {
		return s.Fixed
	}
	return slices.Concat(s.Fixed, s.Outside.Fixed)
}
