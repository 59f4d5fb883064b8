package netmodel

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
)

// physicalName is what ovn-bridge-mappings can name: its syntax knows no quotes.
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
	if n.SharedName != "" { // ovn-kubernetes takes the network's name then
		n.Physical = cmp.Or(n.Physical, n.SharedName)
	}
	var err error
	n.VLAN, err = checkPhysical(n.Physical, raw.VLANID)
	return err
}

// checkPhysical checks what a provider's network is called and its VLAN: 0 and 4095 are reserved (IEEE 802.1Q).
func checkPhysical(name string, vlanID *int) (vlan int, err error) {
	if name == "" {
		return 0, errors.New("physicalNetworkName is missing: the name that the nodes' ovn-bridge-mappings give the provider's network")
	}
	if !physicalName.MatchString(name) {
		return 0, fmt.Errorf("physicalNetworkName: %.64q is no name for ovn-bridge-mappings: no blanks, commas, colons or quotes, at most 64", name)
	}
	if vlanID == nil {
		return 0, nil
	}
	if *vlanID < 1 || *vlanID > 4094 {
		return 0, fmt.Errorf("vlanID: %d is not between 1 and 4094; leave it out for an untagged network", *vlanID)
	}
	return *vlanID, nil
}

// PhysicalVLAN is one VLAN of a physical network: all that is on it is in one broadcast domain, whichever network of ours, and
// whoever outside.
type PhysicalVLAN struct {
	Physical string // a name in the nodes' ovn-bridge-mappings
	VLAN     int    // 0: untagged
}

// String names the wire in messages.
func (w PhysicalVLAN) String() string {
	if w.VLAN == 0 {
		return "physical network " + w.Physical + ", untagged"
	}
	return fmt.Sprintf("physical network %s, VLAN %d", w.Physical, w.VLAN)
}

// AddressBook names the address book of the wire. No network has such an ID: an ID with a slash begins with a
// namespace, which has no colon, and an ID without a slash has no colon.
func (w PhysicalVLAN) AddressBook() string { return fmt.Sprintf("physical:%s:%d", w.Physical, w.VLAN) }

// PhysicalVLAN returns the wire of a Localnet network; ok is false for the other topologies.
func (n *Network) PhysicalVLAN() (w PhysicalVLAN, ok bool) {
	return PhysicalVLAN{n.Physical, n.VLAN}, n.Topology == Localnet
}

// AddressBook names what the network's addresses and MACs are unique in: the network itself, or its wire, which other
// networks may be on.
func (n *Network) AddressBook() string {
	if w, ok := n.PhysicalVLAN(); ok {
		return w.AddressBook()
	}
	return n.ID()
}

// PhysicalVLAN returns the wire that the router's gateway is on.
func (r *Router) PhysicalVLAN() PhysicalVLAN { return PhysicalVLAN{r.Physical, r.VLAN} }
