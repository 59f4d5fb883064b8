package ovnport

import (
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// The port of a pod that may have a virtual address is a member of the address's port group, as it is of the group of a
// security profile: each attempt asserts that the group exists, and a port that is inserted again is a member again.
// What port security lets the pod send follows from the groups.

// VirtualGroups are the port groups of a pod's port by the virtual addresses that the pod may have.
func VirtualGroups(network *netmodel.Network, pod *netmodel.Pod) (groups []Profile) {
	for _, v := range network.VirtualAddressesOf(pod) {
		groups = append(groups, Profile{Name: v.Address.String(), Group: virtualGroup(network, &v)})
	}
	return groups
}

func virtualGroup(network *netmodel.Network, v *netmodel.VirtualAddress) PortGroup {
	key, name := ovndb.VirtualGroup(ovndb.AddressKey(network.AddressBook(), v.Address))
	return PortGroup{UUID: key, Name: name}
}

// virtual are the virtual addresses that the pod of the draft may have.
func (d *draft) virtual() (list []netmodel.VirtualAddress) {
	groups := d.groups()
	for _, v := range d.request.Network.VirtualAddresses {
		if slices.Contains(groups, virtualGroup(d.request.Network, &v).UUID) {
			list = append(list, v)
		}
	}
	return list
}

// virtualSecurity are the values of the column port_security for virtual MACs, one for each MAC. A pod with VRRP sends
// its own address from there, too.
func (p *Port) virtualSecurity(virtual []netmodel.VirtualAddress) (values []string) {
	of := map[string]string{}
	for i := range virtual {
		mac := virtual[i].MAC()
		if mac == nil {
			continue
		}
		if of[mac.String()] == "" {
			own := Port{MAC: mac, Addresses: p.Addresses}
			of[mac.String()] = own.text() + " " + conf.LinkLocal(mac).String() + " " + conf.LinkLocal(p.MAC).String()
		}
		of[mac.String()] += " " + virtual[i].Address.String()
	}
	for _, mac := range slices.Sorted(maps.Keys(of)) {
		values = append(values, of[mac])
	}
	return values
}
