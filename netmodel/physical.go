package netmodel

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
)

// physicalName matches the names that ovn-bridge-mappings can have: its syntax has no quotes.
var physicalName = regexp.MustCompile(`^[^\pZ\pC,:"]{1,64}$`)

func (n *Network) setPhysical(raw *networkJSON) error {
	if n.Topology != Localnet {
		switch {
		case raw.PhysicalNetwork != "":
			return errors.New("physicalNetworkName: it is for topology \"localnet\"")
		case raw.VLANID != nil:
			return errors.New("vlanID: it is for topology \"localnet\"")
		}
		return nil
	}
	n.Physical = raw.PhysicalNetwork
	if n.SharedName != "" { // ovn-kubernetes uses the network's name by default
		n.Physical = cmp.Or(n.Physical, n.SharedName)
	}
	var err error
	n.VLAN, err = checkPhysical(n.Physical, raw.VLANID)
	return err
}

// checkPhysical checks the name of a physical network and its VLAN: 0 and 4095 are reserved (IEEE 802.1Q).
func checkPhysical(name string, vlanID *int) (vlan int, err error) {
	if name == "" {
		return 0, errors.New("physicalNetworkName is missing: " +
			"the name that the nodes' ovn-bridge-mappings give the physical network")
	}
	if !physicalName.MatchString(name) {
		const form = "physicalNetworkName: %.64q is no name for ovn-bridge-mappings: " +
			"no blanks, commas, colons or quotes, at most 64"
		return 0, fmt.Errorf(form, name)
	}
	if vlanID == nil {
		return 0, nil
	}
	if *vlanID < 1 || *vlanID > 4094 {
		return 0, fmt.Errorf("vlanID: %d is not between 1 and 4094; leave it out for an untagged network", *vlanID)
	}
	return *vlanID, nil
}

// PhysicalVLAN is one VLAN of a physical network. It is one broadcast domain of all our networks on it and of
// everything outside.
type PhysicalVLAN struct {
	Physical string // a name in the nodes' ovn-bridge-mappings
	VLAN     int    // 0: untagged
}

// String names the VLAN in messages.
func (v PhysicalVLAN) String() string {
	if v.VLAN == 0 {
		return "physical network " + v.Physical + ", untagged"
	}
	return fmt.Sprintf("physical network %s, VLAN %d", v.Physical, v.VLAN)
}

// AddressBook names the address book of the VLAN. No network has such an ID: an ID with a slash begins with a
// namespace, and a namespace has no colon; an ID without a slash has no colon either.
func (v PhysicalVLAN) AddressBook() string { return fmt.Sprintf("physical:%s:%d", v.Physical, v.VLAN) }

// PhysicalVLAN is the VLAN that a localnet network is on; ok is false for the other topologies.
func (n *Network) PhysicalVLAN() (v PhysicalVLAN, ok bool) {
	return PhysicalVLAN{n.Physical, n.VLAN}, n.Topology == Localnet
}

// AddressBook names the address book of the network: its own, or that of its VLAN, which other networks may be on too.
func (n *Network) AddressBook() string {
	if v, ok := n.PhysicalVLAN(); ok {
		return v.AddressBook()
	}
	return n.ID()
}

// PhysicalVLAN is the VLAN that the router's gateway is on.
func (r *Router) PhysicalVLAN() PhysicalVLAN { return PhysicalVLAN{r.Physical, r.VLAN} }
