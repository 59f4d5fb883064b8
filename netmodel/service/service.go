package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Limits. They bound the rows of one service: 32 ports with 256 backends of both families are less than 600 KB.
const (
	MaxText     = 16 << 10 // of spec and annotations, in bytes
	MaxPorts    = 32
	MaxSources  = 64
	MaxBackends = 256 // of one port and family. Beyond it, Open vSwitch balances by another hash (dp_hash has 256 values).
)

// Service is a Service on a network. A Service is immutable.
type Service struct {
	Namespace string
	Name      string
	Created   int64
	NAD       string // of the network: "<namespace>/<name>"
	Pods      string // the canonical label selector of the pods, which are of the Service's namespace
	// Auto and Fixed say which virtual addresses the service has; neither: none, it is headless.
	Auto  bool
	Fixed []netip.Addr // at most one per family, IPv4 first
	// Outside says how outside hosts reach the service; nil: they do not.
	Outside *Outside
	// LoadBalancer tells that the Service has the type LoadBalancer: its status has the outside addresses.
	LoadBalancer bool
	Ports        []Port
	// Affinity tells that a client's connections go to one backend as long as the backends stay.
	Affinity bool
	// NotReady tells that pods that are not ready are backends too.
	NotReady bool
	Text     string // the whole, for NB: ParseText reads it

	families []bool // the families that the service may have, by whether they are IPv4; nil: any
	single   bool   // the service has only one family
}

// Outside says how outside hosts reach a service by the gateway of its network's router.
type Outside struct {
	// Gateway tells that the service has its ports on the gateway's own addresses, which other services share.
	Gateway bool
	// Fixed are the outside addresses, at most one per family; none: any of the pools that the namespace may use.
	Fixed []netip.Addr
	// Sources are the subnets of the hosts that may connect; none: all.
	Sources []netip.Prefix
}

// Port is a port of a service.
type Port struct {
	Name        string
	Protocol    string // "tcp", "udp" or "sctp"
	Port        uint16
	Target      uint16  // of the pods
	TargetName  string  // of the pods, instead of Target
	AppProtocol *string // a hint for clients, which EndpointSlices repeat
}

// ID is "<namespace>/<name>".
func (s *Service) ID() string { return s.Namespace + "/" + s.Name }

// Headless reports whether the service has no virtual address.
func (s *Service) Headless() bool { return !s.Auto && len(s.Fixed) == 0 }

// Families returns an address of each family in which a service on the network may have outside addresses: those of the
// backends.
func (s *Service) Families(n *netmodel.Network) (list []netip.Addr) {
	for _, subnet := range n.Subnets {
		if s.families == nil || slices.Contains(s.families, subnet.Addr().Is4()) {
			list = append(list, subnet.Addr())
		}
	}
	if s.single && len(list) > 1 {
		list = list[:1]
	}
	return list
}

// Subnets returns the indexes of the network's subnets in which the service has addresses: virtual ones, or those of
// its pods if the service is headless. The error says why the network does not serve the service.
func (s *Service) Subnets(n *netmodel.Network) ([]int, error) {
	if !s.Headless() && n.Topology == netmodel.Localnet {
		return nil, fmt.Errorf("annotation %s: network %s has the topology %s, and virtual addresses are not served "+
			"there; leave the annotation out for a headless Service", AddressAnnotation, n.ID(), n.Topology)
	}
	if i := slices.IndexFunc(n.Subnets, netmodel.PointToPoint); i >= 0 && !s.Headless() {
		return nil, fmt.Errorf("annotation %s: network %s has the subnet %s, and pods have both of its addresses; "+
			"leave the annotation out for a headless Service", AddressAnnotation, n.ID(), n.Subnets[i])
	}
	var list []int
	for i, subnet := range n.Subnets {
		if s.families == nil || slices.Contains(s.families, subnet.Addr().Is4()) {
			list = append(list, i)
		}
	}
	switch {
	case len(n.Subnets) == 0:
		return nil, fmt.Errorf("annotation %s: network %s has no subnets; name a network with addresses",
			NetworkAnnotation, n.ID())
	case len(list) == 0:
		return nil, fmt.Errorf("spec.ipFamilies: network %s has none of these families; name its own", n.ID())
	case s.single:
		list = list[:1]
	}
	if len(s.Fixed) == 0 {
		return list, nil
	}
	list = nil
	for _, a := range s.Fixed {
		if err := n.CheckVirtual(a); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AddressAnnotation, err)
		}
		list = append(list, n.SubnetOf(a))
	}
	return list, nil
}
