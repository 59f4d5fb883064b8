package service

import (
	"net/netip"
	"slices"
	"strings"
)

// Backend is a pod on the service's network that the service selects.
type Backend struct {
	Name, UID string
	Node      string
	// Hostname is the pod's name within the Service with the name Subdomain.
	Hostname, Subdomain string
	// Ready tells that the pod is ready and is not being deleted. Ending tells that it is being deleted.
	Ready, Ending bool
	// Addresses are the pod's addresses on the network. The first one of each family is used. Further are those of the
	// pod's other interfaces on the network.
	Addresses, Further []netip.Addr
	// Ports are the numbers of the pod's named ports, by names such as "tcp/http".
	Ports map[string]uint16
}

// Number is the number of a service's port at a pod. A pod may lack a port with the name.
func (p *Port) Number(pod *Backend) (number uint16, ok bool) {
	if p.TargetName == "" {
		return p.Target, true
	}
	number, ok = pod.Ports[p.Protocol+"/"+p.TargetName]
	return number, ok
}

// Backends returns the vips of OVN's load balancers (ovn-nb(5), table Load_Balancer) by protocol, for a service with
// these virtual addresses. beyond is how many backends are left out, because one port has more than MaxBackends. The
// order of the pods does not matter.
func (s *Service) Backends(addresses []netip.Addr, pods []Backend) (vips map[string]map[string]string, beyond int) {
	vips = map[string]map[string]string{}
	for i := range s.Ports {
		p := &s.Ports[i]
		if vips[p.Protocol] == nil {
			vips[p.Protocol] = map[string]string{}
		}
		for _, address := range addresses {
			list := s.backends(p, address.Is4(), pods)
			if more := len(list) - MaxBackends; more > 0 {
				list = list[:MaxBackends]
				beyond = max(beyond, more)
			}
			words := make([]string, len(list))
			for i, b := range list {
				words[i] = b.String()
			}
			vips[p.Protocol][netip.AddrPortFrom(address, p.Port).String()] = strings.Join(words, ",")
		}
	}
	return vips, beyond
}

// backends returns the backends of a port in one family, sorted.
func (s *Service) backends(p *Port, is4 bool, pods []Backend) []netip.AddrPort {
	var list []netip.AddrPort
	for i := range pods {
		pod := &pods[i]
		number, ok := p.Number(pod)
		at := slices.IndexFunc(pod.Addresses, func(a netip.Addr) bool { return a.Is4() == is4 })
		if ok && at >= 0 && (pod.Ready || s.NotReady) {
			list = append(list, netip.AddrPortFrom(pod.Addresses[at], number))
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// Inside returns where the pods take the connections to a service that limits its outside hosts, ready or not, by
// protocol and sorted; nil: it does not limit them.
func (s *Service) Inside(pods []Backend) map[string][]netip.AddrPort {
	if s.Outside == nil || len(s.Outside.Sources) == 0 {
		return nil
	}
	places := map[string][]netip.AddrPort{}
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range pods {
			number, ok := p.Number(&pods[j])
			if !ok {
				continue
			}
			for _, a := range slices.Concat(pods[j].Addresses, pods[j].Further) {
				places[p.Protocol] = append(places[p.Protocol], netip.AddrPortFrom(a, number))
			}
		}
	}
	for protocol, list := range places {
		slices.SortFunc(list, netip.AddrPort.Compare)
		places[protocol] = slices.Compact(list)
	}
	return places
}
