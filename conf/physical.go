package conf

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
	if n.Shared != "" { // ovn-kubernetes takes the network's name then
		n.Physical = cmp.Or(n.Physical, n.Shared)
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
