package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxEndpoints is how many endpoints one EndpointSlice has, as with the slices of Kubernetes' own controller.
const maxEndpoints = 100

// EndpointSlice is the type of the Kubernetes API.
type EndpointSlice = discoveryv1.EndpointSlice

// Slices returns the EndpointSlices by which DNS and other programs find the service: those of its virtual addresses,
// or, if the service is headless, those of its pods. They have no names yet, and depend on nothing but the arguments.
func (s *Service) Slices(addresses []netip.Addr, pods []Backend) []discoveryv1.EndpointSlice {
	if !s.Headless() {
		return s.virtual(addresses)
	}
	var all []discoveryv1.EndpointSlice
	for _, is4 := range []bool{true, false} {
		if s.families == nil || slices.Contains(s.families, is4) {
			all = append(all, s.ofPods(is4, pods)...)
		}
	}
	return all
}

func (s *Service) virtual(addresses []netip.Addr) (all []discoveryv1.EndpointSlice) {
	for _, a := range addresses {
		slice := discoveryv1.EndpointSlice{AddressType: addressType(a.Is4()), Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}}}
		for i := range s.Ports {
			slice.Ports = append(slice.Ports, s.Ports[i].inSlice(s.Ports[i].Port))
		}
		all = append(all, slice)
	}
	return all
}

// ofPods returns the slices of the pods' addresses in one family. All endpoints of a slice have the same ports, so pods
// with other numbers for a named port are in other slices.
func (s *Service) ofPods(is4 bool, pods []Backend) (all []discoveryv1.EndpointSlice) {
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b Backend) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	last := map[string]int{} // by ports: the slice that is not full
	for i := range sorted {
		pod := &sorted[i]
		at := slices.IndexFunc(pod.Addresses, func(a netip.Addr) bool { return a.Is4() == is4 })
		if at < 0 {
			continue
		}
		var ports []discoveryv1.EndpointPort
		for i := range s.Ports {
			if number, ok := s.Ports[i].Number(pod); ok {
				ports = append(ports, s.Ports[i].inSlice(number))
			}
		}
		if len(ports) < len(s.Ports) && len(ports) == 0 {
			continue // the pod has none of the ports
		}
		key := portsKey(ports)
		n, ok := last[key]
		if !ok || len(all[n].Endpoints) == maxEndpoints {
			n = len(all)
			last[key] = n
			all = append(all, discoveryv1.EndpointSlice{AddressType: addressType(is4), Ports: ports})
		}
		all[n].Endpoints = append(all[n].Endpoints, s.endpoint(pod, pod.Addresses[at]))
	}
	return all
}

func portsKey(ports []discoveryv1.EndpointPort) string {
	var text strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&text, "%s=%d ", *p.Name, *p.Port)
	}
	return text.String()
}

func (s *Service) endpoint(pod *Backend, a netip.Addr) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: []string{a.String()},
		Conditions: discoveryv1.EndpointConditions{
			Ready: new(pod.Ready || s.NotReady), Serving: new(pod.Ready), Terminating: new(pod.Ending),
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: pod.Name},
	}
	if pod.Node != "" {
		e.NodeName = &pod.Node
	}
	if pod.UID != "" {
		e.TargetRef.UID = types.UID(pod.UID)
	}
	if pod.Subdomain == s.Name && pod.Hostname != "" { // a StatefulSet's pods have names within its Service
		e.Hostname = &pod.Hostname
	}
	return e
}

func (p *Port) inSlice(number uint16) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{
		Name: new(p.Name), Protocol: new(corev1.Protocol(strings.ToUpper(p.Protocol))), Port: new(int32(number)),
		AppProtocol: p.AppProtocol,
	}
}

func addressType(is4 bool) discoveryv1.AddressType {
	if is4 {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}
