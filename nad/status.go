package nad

import (
	"net/netip"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
)

// StatusAnnotation is where network-status goes (multi-net-spec 1.3, section 5).
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// Made is an interface that a pod was given.
type Made struct {
	Network   string // <namespace>/<NAD>
	Interface string
	MAC       string
	MTU       int
	Addresses []netip.Prefix
}

// Status builds a pod's network-status: the primary network's entry, then one per attachment, in their order.
func Status(primaryNetwork, primaryInterface string, primary *types100.Result, made []Made) []nadv1.NetworkStatus {
	status := []nadv1.NetworkStatus{primaryStatus(primaryNetwork, primaryInterface, primary)}
	for _, m := range made {
		s := nadv1.NetworkStatus{Name: m.Network, Interface: m.Interface, Mac: m.MAC, Mtu: m.MTU}
		for _, a := range m.Addresses {
			s.IPs = append(s.IPs, a.Addr().String())
		}
		status = append(status, s)
	}
	return status
}

// primaryStatus takes from the chain's result what belongs to the pod's own interface. Addresses go by their
// interface's index; one without an index is the sandbox's (CNI 1.1, section "ADD Success").
func primaryStatus(network, ifName string, r *types100.Result) nadv1.NetworkStatus {
	s := nadv1.NetworkStatus{Name: network, Interface: ifName, Default: true}
	own := -1
	for i, iface := range r.Interfaces {
		if iface != nil && iface.Sandbox != "" && iface.Name == ifName {
			own = i
			s.Mac, s.Mtu = iface.Mac, iface.Mtu
		}
	}
	for _, ip := range r.IPs {
		if ip != nil && (ip.Interface == nil || *ip.Interface == own) {
			s.IPs = append(s.IPs, ip.Address.IP.String())
		}
	}
	s.DNS = nadv1.DNS{Nameservers: r.DNS.Nameservers, Domain: r.DNS.Domain, Search: r.DNS.Search, Options: r.DNS.Options}
	return s
}
