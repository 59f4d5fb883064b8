package service

import (
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// What the rows of a Service have beside its text and its backends, in bytes, and the flows of a virtual address's port
// without backends. TestBoundaryCosts compares them with OVN.
const (
	rowBytes  = 1500
	vipBytes  = 40
	portBytes = len("[]:65535,")
	aclBytes  = 300 // of a subnet of outside hosts
	vipFlows  = 4
	acls      = 2 // of a family, if the outside hosts are limited
)

// Cost is what the Service needs in OVN with these pods. Pods that are not ready count too: they may be ready soon.
func (s *Service) Cost(pods []Backend) (c cost.Cost) {
	c[cost.Bytes] = rowBytes + len(s.Text)
	balancers := 0
	if !s.Headless() {
		balancers++
	}
	if s.Outside != nil {
		balancers++
		c[cost.Bytes] += aclBytes * len(s.Outside.Sources)
	}
	if balancers == 0 {
		return c
	}
	for _, is4 := range []bool{true, false} {
		if s.families != nil && !slices.Contains(s.families, is4) {
			continue
		}
		lengths := lengthsOf(pods, is4)
		if s.Outside != nil && len(s.Outside.Sources) > 0 {
			s.addInside(&c, lengths)
		}
		for i := range s.Ports {
			endpoints, bytes := 0, vipBytes
			for j := range pods {
				if _, ok := s.Ports[i].Number(&pods[j]); ok && lengths[j] > 0 && endpoints < MaxBackends {
					endpoints++
					bytes += lengths[j] + portBytes
				}
			}
			c[cost.Endpoints] += balancers * endpoints
			if endpoints > 0 || is4 {
				c[cost.Bytes] += balancers * bytes
				c[cost.Flows] += balancers * (vipFlows + endpoints)
			}
		}
	}
	return c
}

// addInside adds what guards the pods' own addresses of one family. Ports with numbers share the addresses of the pods.
func (s *Service) addInside(c *cost.Cost, lengths []int) {
	lists := 1
	if slices.ContainsFunc(s.Ports, func(p Port) bool { return p.TargetName != "" }) {
		lists = len(s.Ports)
	}
	for _, n := range lengths {
		if n > 0 {
			c[cost.Bytes] += acls * lists * (n + len(", "))
			c[cost.Flows] += acls * lists
		}
	}
	c[cost.Flows] += acls*len(s.Ports) + len(s.Outside.Sources)
}

// lengthsOf returns the length of the address that each pod has of a family; 0: it has none.
func lengthsOf(pods []Backend, is4 bool) []int {
	lengths := make([]int, len(pods))
	for i := range pods {
		at := slices.IndexFunc(pods[i].Addresses, func(a netip.Addr) bool { return a.Is4() == is4 })
		if at >= 0 {
			lengths[i] = len(pods[i].Addresses[at].String())
		}
	}
	return lengths
}
