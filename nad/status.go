package nad

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
)

// StatusAnnotation is the key of the annotation network-status (multi-net-spec 1.3, section 5).
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// Attached is an interface of a pod, on an OVN network or from delegates. Result is the delegates' result; of an OVN
// network, that of the plugins behind ours.
type Attached struct {
	Network   string // <namespace>/<NAD>
	Interface string
	MAC       string
	MTU       int
	Addresses []netip.Prefix
	Result    *types100.Result
	// Device is the device information from the delegates. deviceinfo.Validate has accepted it. nil: none.
	Device json.RawMessage
	// Gateways are the gateways of the pod's default routes, if those use this interface.
	Gateways []netip.Addr
}

// NetworkStatus is an entry of network-status (multi-net-spec 1.3, section 5.3). We do not use the library's type: it
// omits "default" if that is false, has no "default-route", and omits the keys of device-info that it does not know.
type NetworkStatus struct {
	Name         string          `json:"name"`
	Interface    string          `json:"interface,omitempty"`
	IPs          []string        `json:"ips,omitempty"`
	MAC          string          `json:"mac,omitempty"`
	MTU          int             `json:"mtu,omitempty"`
	Default      bool            `json:"default"`
	DNS          nadv1.DNS       `json:"dns"`
	DeviceInfo   json.RawMessage `json:"device-info,omitempty"`
	Gateway      []string        `json:"gateway,omitempty"`
	DefaultRoute []string        `json:"default-route,omitempty"`
}

// Status builds a pod's network-status: the entry of the primary network, then one per attachment, in their order.
func Status(primaryNetwork, primaryInterface string, primary *types100.Result, made []Attached) []NetworkStatus {
	first := resultStatus(primaryNetwork, primaryInterface, primary)
	first.Default = true
	return append([]NetworkStatus{first}, further(made)...)
}

// further are the entries of the attachments.
func further(made []Attached) (status []NetworkStatus) {
	for _, m := range made {
		s := NetworkStatus{Name: m.Network, Interface: m.Interface}
		for _, a := range m.Addresses {
			s.IPs = append(s.IPs, a.Addr().String())
		}
		if m.Result != nil {
			s = resultStatus(m.Network, m.Interface, m.Result)
		}
		if m.MAC != "" { // of an OVN network: the plugins behind ours may not change these
			s.Interface, s.MAC, s.MTU = m.Interface, m.MAC, m.MTU
		}
		for _, g := range m.Gateways {
			s.DefaultRoute = append(s.DefaultRoute, g.String())
		}
		s.Gateway, s.DeviceInfo = s.DefaultRoute, m.Device
		status = append(status, s)
	}
	return status
}

// HasAttachments reports whether a pod's network-status names interfaces beside the primary one.
func HasAttachments(status string) bool {
	var all []NetworkStatus
	_ = json.Unmarshal([]byte(status), &all) // an invalid text names no interfaces
	return slices.ContainsFunc(all, func(s NetworkStatus) bool { return !s.Default })
}

// resultStatus returns the status of the pod's interface from a result: the interface with that name, else the first
// interface in the sandbox (multi-net-spec 1.3, section 5.3.2.1). An address belongs to the interface with its index.
// An address without an index belongs to the sandbox (CNI 1.1, section "ADD Success").
func resultStatus(network, ifName string, r *types100.Result) NetworkStatus {
	s := NetworkStatus{Name: network, Interface: ifName}
	own := -1
	for i, iface := range r.Interfaces {
		if iface == nil || iface.Sandbox == "" {
			continue
		}
		if own < 0 || iface.Name == ifName {
			own = i
		}
		if iface.Name == ifName {
			break
		}
	}
	if own >= 0 {
		s.Interface, s.MAC, s.MTU = cmp.Or(r.Interfaces[own].Name, ifName), r.Interfaces[own].Mac, r.Interfaces[own].Mtu
	}
	for _, ip := range r.IPs {
		if ip != nil && (ip.Interface == nil || *ip.Interface == own || *ip.Interface < 0) {
			s.IPs = append(s.IPs, ip.Address.IP.String())
		}
	}
	s.DNS = nadv1.DNS{Nameservers: r.DNS.Nameservers, Domain: r.DNS.Domain, Search: r.DNS.Search, Options: r.DNS.Options}
	return s
}
