package netmodel

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// physicalName matches the names that ovn-bridge-mappings can have: its syntax has no quotes.
var physicalName = regexp.MustCompile(`^[^\pZ\pC,:"]{1,64}$`)

func (n *Network) setPhysical(name string) error {
	n.Physical = cmp.Or(name, n.SharedName) // ovn-kubernetes uses the network's name by default
	return checkPhysical(n.Physical)
}

// checkPhysical checks the name of a physical network.
func checkPhysical(name string) error {
	if name == "" {
		return errors.New("physicalNetworkName is missing: " +
			"the name that the nodes' ovn-bridge-mappings give the physical network")
	}
	if !physicalName.MatchString(name) {
		const form = "physicalNetworkName: %.64q is no name for ovn-bridge-mappings: " +
			"no blanks, commas, colons or quotes, at most 64"
		return fmt.Errorf(form, name)
	}
	return nil
}

func (n *Network) setVLAN(id *int) (err error) {
	n.VLAN, err = checkVLAN(id)
	return err
}

// checkVLAN checks a VLAN; nil: untagged. 0 and 4095 are reserved (IEEE 802.1Q).
func checkVLAN(id *int) (vlan int, err error) {
	if id == nil {
		return 0, nil
	}
	if *id < 1 || *id > 4094 {
		return 0, fmt.Errorf("vlanID: %d is not between 1 and 4094; leave it out for an untagged network", *id)
	}
	return *id, nil
}

// physicalWords is what `kubectl multinet network show` has of physicalNetworkName and vlanID.
func (n *Network) physicalWords() string {
	if n.Topology != Localnet {
		return ""
	}
	return VLANWords(n.Physical, n.VLAN)
}

// VLANWords names a VLAN of a physical network for a reader.
func VLANWords(physical string, vlan int) string {
	if vlan == 0 {
		return physical + ", " + untagged
	}
	return fmt.Sprintf("%s, VLAN %d", physical, vlan)
}

// Bounds on addressConflictWait. After the flows of a network's first port on a node are installed, OVN may need some
// 100 ms until they lead to the physical network, so the first of the three questions may be lost. RFC 5227 waits for
// at most 7 s.
const (
	minConflictWait = time.Second
	maxConflictWait = 10 * time.Second
)

func (n *Network) setConflictWait(text *string) error {
	if text == nil {
		return nil
	}
	wait, err := time.ParseDuration(*text)
	if err != nil || wait < minConflictWait || wait > maxConflictWait {
		return fmt.Errorf("addressConflictWait: %.64q is no duration between %s and %s, like \"2s\"; "+
			"leave it out if pods need not wait", *text, minConflictWait, maxConflictWait)
	}
	n.ConflictWait = wait
	return nil
}

// conflictWaitText is the canonical form of addressConflictWait.
func (n *Network) conflictWaitText() any {
	if n.ConflictWait == 0 {
		return nil
	}
	return n.ConflictWait.String()
}

// PhysicalVLAN is one VLAN of a physical network. It is one broadcast domain of all our networks on it and of
// everything outside.
type PhysicalVLAN struct {
	Physical string // a name in the nodes' ovn-bridge-mappings
	VLAN     int    // 0: untagged
}

// String names the VLAN in messages.
func (v PhysicalVLAN) String() string { return "physical network " + VLANWords(v.Physical, v.VLAN) }

// AddressBook names the address book of the VLAN. No network has such an ID: an ID with a slash begins with a
// namespace, and a namespace has no colon; an ID without a slash has no colon either.
func (v PhysicalVLAN) AddressBook() string { return fmt.Sprintf("physical:%s:%d", v.Physical, v.VLAN) }

// PhysicalVLAN is the VLAN that a localnet network is on; ok is false for the other topologies.
func (n *Network) PhysicalVLAN() (v PhysicalVLAN, ok bool) {
	return PhysicalVLAN{n.Physical, n.VLAN}, n.Topology == Localnet
}

// ReachedBy names, in words, what other networks reach the network by: its router, or its VLAN. The addresses of their
// pods stay what they are. "": no other network does; so it is for nil, a network without an accepted configuration.
func (n *Network) ReachedBy() string {
	if n == nil {
		return ""
	}
	vlan, physical := n.PhysicalVLAN()
	switch {
	case n.Router != "":
		return RouterWord + n.Router
	case physical:
		return vlan.String()
	}
	return ""
}

// RouterWord is before the name of a router in ReachedBy.
const RouterWord = "router "

// AddressBook names the address book of the network: its own, or that of its VLAN, which other networks may be on too.
func (n *Network) AddressBook() string {
	if v, ok := n.PhysicalVLAN(); ok {
		return v.AddressBook()
	}
	return n.ID()
}

// PhysicalVLAN is the VLAN that the router's gateway is on.
func (r *Router) PhysicalVLAN() PhysicalVLAN { return PhysicalVLAN{r.Physical, r.VLAN} }
