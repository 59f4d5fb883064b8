package show

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// uncounted stands in tables for a number that only NB has, if NB is not read.
const uncounted = "?"

func (s *Subnet) count(n uint64) string {
	if s.uncounted {
		return uncounted
	}
	return strconv.FormatUint(n, 10)
}

// MarshalJSON leaves out the numbers that nobody counted.
func (s *Subnet) MarshalJSON() ([]byte, error) {
	if s.uncounted {
		return json.Marshal(struct {
			Subnet  netip.Prefix `json:"subnet"`
			Gateway netip.Addr   `json:"gateway,omitzero"`
		}{s.Subnet, s.Gateway})
	}
	type plain Subnet
	return json.Marshal((*plain)(s))
}

// PodStatus is the annotation network-status of a pod.
type PodStatus struct {
	Namespace, Name, Node, Text string
	// Routes is the annotation with the pod's own routes.
	Routes string
	// Requested are the annotations of the pod's networks; nil: nobody has read them.
	Requested map[string]string
}

// NetworksByState returns what states and annotations say of the networks of these NADs, without NB: ports of other
// pods, and the numbers of addresses, are missing.
func NetworksByState(nads []*netmodel.NAD, pods []PodStatus) []Network {
	list := Networks(nads, nil)
	for i := range list {
		n := &list[i]
		for j := range n.Subnets {
			n.Subnets[j].uncounted = true
		}
		for _, pod := range pods {
			n.addByStatus(pod)
		}
	}
	return list
}

// addByStatus adds the ports that a pod has on the network by its network-status. Tenants can write it.
func (n *Network) addByStatus(pod PodStatus) {
	var entries []nad.NetworkStatus
	if json.Unmarshal([]byte(pod.Text), &entries) != nil {
		return
	}
	for _, e := range entries {
		if !slices.ContainsFunc(n.NADs, func(nad NAD) bool { return nad.Name == e.Name }) {
			continue
		}
		port := Port{
			Name: pod.Namespace + "/" + pod.Name + "/" + e.Interface, Namespace: pod.Namespace, Pod: pod.Name,
			Interface: e.Interface, Node: pod.Node, MAC: e.MAC, Up: true,
		}
		for _, text := range e.IPs {
			if a, err := netip.ParseAddr(text); err == nil {
				port.Addresses = append(port.Addresses, a)
			}
		}
		n.Ports = append(n.Ports, port)
	}
}

// PoliciesByState returns what the states say of policies, without NB.
func PoliciesByState(objects []*policy.Object) []Policy {
	list := Policies(objects, true, nil)
	for i := range list {
		list[i].Ports = nil
	}
	return list
}

// ServicesByState returns what the states say of Services, without NB.
func ServicesByState(objects []*service.Object) []Service {
	list := []Service{}
	for _, o := range objects {
		line := Service{Namespace: o.Namespace, Name: o.Name}
		line.describe(o.Service)
		var state service.State
		if json.Unmarshal([]byte(o.State), &state) == nil {
			line.Ready, line.Reason = state.Ready, conf.OneLine(state.Reason, conf.MaxReason) // tenants can write it
			line.Addresses, line.Outside = append(line.Addresses, state.Addresses...), append(line.Outside, state.Outside...)
		} else {
			line.Reason = notSeen
		}
		list = append(list, line)
	}
	sortServices(list)
	return list
}
