package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Bounds on the key virtualAddresses.
const (
	MaxVirtualAddresses = 16
	maxSelectorLabels   = 8
)

// VirtualAddress is an address that several pods may have, one after the other. They agree who has it by themselves, by
// VRRP (RFC 9568) for example.
type VirtualAddress struct {
	Address   netip.Addr
	Namespace string            // of the pods
	Selector  map[string]string // labels of the pods
	VRID      int               // of VRRP, if the address has a virtual MAC; 0: it has the MAC of the pod
}

// virtualAddressJSON is one entry of the key virtualAddresses.
type virtualAddressJSON struct {
	Address   string          `json:"address"`
	Namespace string          `json:"namespace,omitempty"`
	Selector  json.RawMessage `json:"selector"`
	VRID      int             `json:"vrid,omitempty"`
}

// Keys and values of labels, as Kubernetes accepts them.
var (
	labelKey   = regexp.MustCompile(`^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$`)
)

func (n *Network) setVirtualAddresses(list []json.RawMessage) error {
	for i, text := range list {
		key := fmt.Sprintf("virtualAddresses[%d]", i)
		var raw virtualAddressJSON
		if err := conf.DecodeObject(text, &raw, nil); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		a, err := parseAddr(raw.Address)
		if err != nil {
			return fmt.Errorf("%s.address: %w", key, err)
		}
		if err := n.checkShared(a); err != nil {
			return fmt.Errorf("%s.address: %w", key, err)
		}
		v := VirtualAddress{Address: a, Namespace: raw.Namespace, VRID: raw.VRID}
		if v.Namespace == "" {
			v.Namespace = n.Namespace
		}
		if !label.MatchString(v.Namespace) {
			return fmt.Errorf("%s.namespace: %.64q is no namespace", key, raw.Namespace)
		}
		if v.Selector, err = parseSelector(raw.Selector); err != nil {
			return fmt.Errorf("%s.selector: %w", key, err)
		}
		if v.VRID < 0 || v.VRID > 255 {
			return fmt.Errorf("%s.vrid: %d is not from 1 to 255", key, v.VRID)
		}
		n.VirtualAddresses = append(n.VirtualAddresses, v)
	}
	slices.SortFunc(n.VirtualAddresses, func(a, b VirtualAddress) int { return a.Address.Compare(b.Address) })
	for i := 1; i < len(n.VirtualAddresses); i++ {
		if a := n.VirtualAddresses[i].Address; a == n.VirtualAddresses[i-1].Address {
			return fmt.Errorf("virtualAddresses: %s is there twice", a)
		}
	}
	if n.Topology == Layer3 && len(list) > 0 {
		return errors.New("virtualAddresses: leave it out, the nodes of a layer3 network have a subnet each, and an " +
			"address cannot move between them")
	}
	return nil
}

// checkShared refuses an address that no pod can have on the network.
func (n *Network) checkShared(a netip.Addr) error {
	i := n.SubnetOf(a)
	if i < 0 {
		return fmt.Errorf("%s is in none of the subnets", a)
	}
	if a == n.Gateway(i) {
		return fmt.Errorf("%s is the gateway", a)
	}
	return checkHost(n.Subnets[i], a)
}

// parseSelector reads the labels of a selector. It refuses labels that no pod can have, a label that is given twice,
// and an empty selector, which would select all pods.
func parseSelector(text json.RawMessage) (map[string]string, error) {
	var values map[string]*string
	if len(text) > 0 {
		if err := json.Unmarshal(text, &values); err != nil {
			return nil, conf.JSONError(err)
		}
	}
	if len(values) == 0 || len(values) > maxSelectorLabels {
		return nil, fmt.Errorf(`%d labels, write 1 to %d, like {"app": "router"}`, len(values), maxSelectorLabels)
	}
	if _, err := conf.ReadObject(text, slices.Collect(maps.Keys(values)), nil); err != nil {
		return nil, err
	}
	labels := map[string]string{}
	for key, value := range values {
		if value == nil {
			return nil, fmt.Errorf("%.64q: null is no label", key)
		}
		if !labelKey.MatchString(key) || !labelValue.MatchString(*value) {
			return nil, fmt.Errorf("%.64q: %.64q is no label", key, *value)
		}
		labels[key] = *value
	}
	return labels, nil
}

// VirtualAddressesOf are the virtual addresses that a pod may have.
func (n *Network) VirtualAddressesOf(pod *Pod) (list []VirtualAddress) {
	for _, v := range n.VirtualAddresses {
		selected := v.Namespace == pod.Namespace
		for key, value := range v.Selector {
			is, has := pod.Labels[key]
			selected = selected && has && is == value
		}
		if selected {
			list = append(list, v)
		}
	}
	return list
}

// MAC is the virtual MAC (RFC 9568, section 7.3); nil: there is none.
func (v *VirtualAddress) MAC() net.HardwareAddr {
	switch {
	case v.VRID == 0:
		return nil
	case v.Address.Is4():
		return net.HardwareAddr{0, 0, 0x5e, 0, 1, byte(v.VRID)}
	}
	return net.HardwareAddr{0, 0, 0x5e, 0, 2, byte(v.VRID)}
}

// Pods says which pods may have the address: "shop with app=router".
func (v *VirtualAddress) Pods() string {
	var labels []string
	for key, value := range v.Selector {
		labels = append(labels, key+"="+value)
	}
	slices.Sort(labels)
	return v.Namespace + " with " + strings.Join(labels, ",")
}

// keepVirtualAddresses refuses that an address goes, or comes to pods of another namespace: pods that run may have it.
func (n *Network) keepVirtualAddresses(to *Network) error {
	for _, was := range n.VirtualAddresses {
		at := slices.IndexFunc(to.VirtualAddresses, func(v VirtualAddress) bool { return v.Address == was.Address })
		if at < 0 {
			return fmt.Errorf("virtualAddresses: %s cannot be removed", was.Address)
		}
		if is := to.VirtualAddresses[at].Namespace; is != was.Namespace {
			return fmt.Errorf("virtualAddresses: the namespace of %s cannot become %s, it is %s", was.Address, is, was.Namespace)
		}
	}
	return nil
}

// virtualAddressesJSON is the canonical form of virtualAddresses.
func (n *Network) virtualAddressesJSON() any {
	var list []virtualAddressJSON
	for _, v := range n.VirtualAddresses {
		labels, _ := json.Marshal(v.Selector) // in the order of the keys
		list = append(list, virtualAddressJSON{v.Address.String(), v.Namespace, labels, v.VRID})
	}
	return list
}

// virtualAddressWords writes the virtual addresses for a reader.
func (n *Network) virtualAddressWords() string {
	var words []string
	for _, v := range n.VirtualAddresses {
		text := fmt.Sprintf("%s (pods of %s", v.Address, v.Pods())
		if v.VRID != 0 {
			text += fmt.Sprintf(", MAC %s", v.MAC())
		}
		words = append(words, text+")")
	}
	return strings.Join(words, ", ")
}
