package wiring

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Result is the CNI result of an interface on an OVN network, as the plugin behind ours in a list gets it (CNI
// specification, section 5, "ADD Success"). version is the CNI version of the list.
func Result(netns string, s *agentapi.Sandbox, i *agentapi.Interface, version string) (json.RawMessage, error) {
	const inPod = 1 // the index of the pod-side veth
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, Interfaces: []*types100.Interface{
		{Name: agentapi.HostVeth(s.ContainerID, i.Name), Mtu: i.MTU},
		{Name: i.Name, Mac: i.MAC, Mtu: i.MTU, Sandbox: netns},
	}}
	for _, a := range i.Addresses {
		ip := &types100.IPConfig{Interface: types100.Int(inPod), Address: *ipNet(a)}
		for _, g := range i.Gateways {
			if a.Masked().Contains(g) {
				ip.Gateway = g.AsSlice()
			}
		}
		r.IPs = append(r.IPs, ip)
	}
	for _, route := range i.Routes {
		made := &types.Route{Dst: *ipNet(route.Dst), GW: route.GW.AsSlice()}
		if route.Scope != 0 {
			made.Scope = &route.Scope
		}
		r.Routes = append(r.Routes, made)
	}
	inVersion, err := r.GetAsVersion(version)
	if err != nil {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "correct cniVersion in the NetworkAttachmentDefinition",
			"the result of interface %s: %w", i.Name, err)
	}
	return json.Marshal(inVersion)
}

// CheckChained looks at an interface after the plugins behind ours have run. They may change its routes and make its
// MTU smaller, which CheckChained notes in i. With another MAC, without an address or with a larger MTU, packets would
// be lost: OVN lets only the port's own MAC and addresses pass.
func CheckChained(netns string, i *agentapi.Interface) error {
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := checkPodVeth(i)
		if err == nil && link.Attrs().MTU > i.MTU {
			err = fmt.Errorf("its MTU is %d, and the network carries %d", link.Attrs().MTU, i.MTU)
		}
		if err != nil {
			return conf.Errorf(conf.CodeInvalidConfig, "correct the plugins in spec.config of the NetworkAttachmentDefinition; "+
				"a pod asks for a MAC by the key mac of its annotation "+conf.NetworksAnnotation,
				"the plugins behind ovn-multinet changed the interface: %w", err)
		}
		i.MTU = link.Attrs().MTU
		return nil
	})
}
