package netmodel

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Uplink is how some nodes reach a physical network: by a network interface, which becomes a port of a bridge of Open
// vSwitch, or by a bridge that exists.
type Uplink struct {
	Nodes     string `json:"nodes"`     // a label selector; "": all nodes
	Interface string `json:"interface"` // "": the bridge has its own way out
	Bridge    string `json:"bridge"`    // "": a name made of that of the physical network
}

// Uplinks are the uplinks of physical networks, by name. Of those whose selector matches a node, the first one is the
// node's.
type Uplinks map[string][]Uplink

// NodeUplink is how one node reaches a physical network.
type NodeUplink struct {
	Interface string `json:"interface,omitempty"`
	Bridge    string `json:"bridge"`
	// Tagged says that networks and gateways may be on VLANs of the physical network.
	Tagged bool `json:"tagged,omitempty"`
}

// UplinkMark is the key in external_ids of a bridge that was made for an uplink, and of its port of the interface. It
// has the name of the physical network.
const UplinkMark = "ovn-multinet/physical-network"

// linkName matches the names that the kernel accepts for an interface and ovn-bridge-mappings for a bridge.
var linkName = regexp.MustCompile(`^[^\pZ\pC,:"/]+$`)

// maxLinkName is the kernel's bound on a name, in bytes (IFNAMSIZ).
const maxLinkName = 15

func checkLinkName(key, name string) error {
	if name != "" && (len(name) > maxLinkName || !linkName.MatchString(name) || name == "." || name == "..") {
		return fmt.Errorf("%s: %.64q is no name of an interface: 1 to 15 bytes, no blanks, commas, colons or slashes",
			key, name)
	}
	return nil
}

// ParseUplinks parses the section uplinks of the operator's configuration, from JSON. Every error names the physical
// network and the key. The selectors are not parsed.
func ParseUplinks(config []byte) (Uplinks, error) {
	var c controllerJSON
	if err := conf.DecodeObject(config, &c, nil); err != nil {
		return nil, err
	}
	uplinks := Uplinks{}
	for _, name := range slices.Sorted(maps.Keys(c.Uplinks)) {
		if err := checkPhysical(name); err != nil {
			return nil, err
		}
		var list []json.RawMessage
		if err := json.Unmarshal(c.Uplinks[name], &list); err != nil {
			return nil, errors.New("uplinks: want a list like [{interface: eth1}]")
		}
		for _, text := range list {
			uplink, err := parseUplink(text)
			if err != nil {
				return nil, fmt.Errorf("uplinks: %w", err)
			}
			uplinks[name] = append(uplinks[name], uplink)
		}
	}
	return uplinks, nil
}

func parseUplink(text []byte) (u Uplink, err error) {
	if err := conf.DecodeObject(text, &u, nil); err != nil {
		return u, err
	}
	if u.Interface == "" && u.Bridge == "" {
		return u, errors.New("an entry has neither interface nor bridge: name the interface that leads to the physical " +
			"network, or a bridge of Open vSwitch that exists")
	}
	return u, errors.Join(checkLinkName("interface", u.Interface), checkLinkName("bridge", u.Bridge))
}

// Check refuses names that would be several entries of ovn-bridge-mappings, or none. A node reads them from NB, where
// not the controller alone can write.
func (u NodeUplink) Check(physical string) error {
	if u.Bridge == "" {
		return errors.New("bridge is missing")
	}
	return errors.Join(checkPhysical(physical), checkLinkName("interface", u.Interface),
		checkLinkName("bridge", u.Bridge))
}

// On returns the uplink as a node has it. tagged says whether networks and gateways may be on VLANs.
func (u Uplink) On(physical string, tagged bool) NodeUplink {
	n := NodeUplink{Interface: u.Interface, Bridge: u.Bridge, Tagged: tagged}
	if n.Bridge == "" {
		n.Bridge = bridgeOf(physical)
	}
	return n
}

// bridgeOf names the bridge of a physical network. A long name, or one with other letters, is replaced by a hash.
func bridgeOf(physical string) string {
	name := "br-" + physical
	if plainName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(physical))
	return fmt.Sprintf("br-%x", sum[:6])
}

var plainName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,15}$`)

// Tagged reports whether a namespace may have networks on a VLAN of the physical network.
func (grants PhysicalGrants) Tagged(physical string) bool {
	return slices.ContainsFunc(grants[physical], func(g physicalGrant) bool {
		return slices.ContainsFunc(g.vlans, func(r vlanRange) bool { return r.last > 0 })
	})
}
