package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// PhysicalGrants are the sections physicalNetworks and portSecurityOff of the controller's --config: by physical
// network, the namespaces that may use its VLANs, and the namespaces whose networks may be without port security.
// Nothing is granted by default.
type PhysicalGrants map[string][]physicalGrant

// onOverlay stands for all networks that are on no physical network. No physical network has this name. Its one grant
// is the section portSecurityOff: OVN learns MACs from ports without port security, and bounds their number nowhere.
const onOverlay = ""

type physicalGrant struct {
	vlans      []vlanRange
	namespaces []string
	// unchecked says that the namespaces' networks may have portSecurity: false, and subnetsBehind.
	unchecked bool
}

// vlanRange is a range of VLANs; 0 to 0 is the untagged network.
type vlanRange struct{ first, last int }

// physicalGrantJSON is one entry of the list of a physical network.
type physicalGrantJSON struct {
	VLANs        json.RawMessage `json:"vlans"` // a string
	Namespaces   []string        `json:"namespaces"`
	PortSecurity *bool           `json:"portSecurity"`
}

// untagged stands for the network without a VLAN.
const untagged = "untagged"

// ParsePhysicalGrants parses the section physicalNetworks of the controller's --config, from JSON. Every error names
// the physical network and the key.
func ParsePhysicalGrants(config []byte) (PhysicalGrants, error) {
	var c controllerJSON
	if err := conf.DecodeObject(config, &c, nil); err != nil {
		return nil, err
	}
	const form = `[{vlans: "100,200-299", namespaces: [shop]}]`
	grants := PhysicalGrants{}
	for _, name := range slices.Sorted(maps.Keys(c.PhysicalNetworks)) {
		if err := checkPhysical(name); err != nil {
			return nil, fmt.Errorf("physicalNetworks: %w", err)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(c.PhysicalNetworks[name], &list); err != nil {
			return nil, fmt.Errorf("physicalNetworks: %s: want a list like %s", name, form)
		}
		for i, text := range list {
			grant, err := parsePhysicalGrant(text)
			if err != nil {
				return nil, fmt.Errorf("physicalNetworks: %s: entry %d: %w", name, i+1, err)
			}
			grants[name] = append(grants[name], grant)
		}
	}
	if c.PortSecurityOff != nil {
		g, err := parsePortSecurityOff(c.PortSecurityOff)
		if err != nil {
			return nil, fmt.Errorf("portSecurityOff: %w", err)
		}
		grants[onOverlay] = []physicalGrant{g}
	}
	return grants, nil
}

// portSecurityOffJSON is the section portSecurityOff: the namespaces whose networks may have portSecurity: false.
type portSecurityOffJSON struct {
	Namespaces []string `json:"namespaces"`
}

func parsePortSecurityOff(text []byte) (g physicalGrant, err error) {
	var raw portSecurityOffJSON
	if err := conf.DecodeObject(text, &raw, nil); err != nil {
		return g, err
	}
	if len(raw.Namespaces) > 0 { // the chart writes the section in any case
		g.namespaces, err = parseNamespaces(raw.Namespaces)
	}
	return g, err
}

// parseNamespaces checks a list of names of namespaces.
func parseNamespaces(names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, errors.New("namespaces is missing: a list like [shop, web]")
	}
	for _, name := range names {
		if !label.MatchString(name) {
			return nil, fmt.Errorf("namespaces: %.64q is no namespace's name; list each namespace by its name", name)
		}
	}
	return names, nil
}

func parsePhysicalGrant(text []byte) (g physicalGrant, err error) {
	var raw physicalGrantJSON
	if err := conf.DecodeObject(text, &raw, nil); err != nil {
		return g, err
	}
	if g.vlans, err = parseVLANs(raw.VLANs); err != nil {
		return g, err
	}
	if g.namespaces, err = parseNamespaces(raw.Namespaces); err != nil {
		return g, err
	}
	g.unchecked = raw.PortSecurity != nil && !*raw.PortSecurity
	return g, nil
}

func parseVLANs(raw json.RawMessage) ([]vlanRange, error) {
	var text string
	if raw != nil && json.Unmarshal(raw, &text) != nil { // a number of YAML 1.1 may be octal: 0100 is 64
		return nil, errors.New(`vlans: write it in quotes, like "100,200-299"`)
	}
	var list []vlanRange
	for _, word := range splitList(text) {
		if word == untagged {
			list = append(list, vlanRange{})
			continue
		}
		from, to, isRange := strings.Cut(word, "-")
		if !isRange {
			to = from
		}
		first, ok1 := vlanNumber(from)
		last, ok2 := vlanNumber(to)
		switch {
		case !ok1 || !ok2:
			return nil, fmt.Errorf(`vlans: %.64q is no VLAN, no range like 200-299, and not %q`, word, untagged)
		case first < 1 || last > 4094:
			return nil, fmt.Errorf("vlans: %s is not between 1 and 4094", word)
		case first > last:
			return nil, fmt.Errorf("vlans: %s is empty, write %d-%d", word, last, first)
		}
		list = append(list, vlanRange{first, last})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf(`vlans is missing: VLANs and ranges like "100,200-299", or %q`, untagged)
	}
	return list, nil
}

// vlanNumber parses a number and refuses other spellings of it, such as +1 and 01, which strconv.Atoi accepts.
func vlanNumber(s string) (n int, ok bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && strconv.Itoa(n) == s
}

// checkOverlay refuses a network on no physical network that has no port security, unless the namespace has the grant.
func (grants PhysicalGrants) checkOverlay(namespace string, n *Network) error {
	if n.PortSecurity || grants.loose(namespace) {
		return nil
	}
	const refused = "portSecurity: false is not granted to namespace %s; the operator would have to write " +
		"portSecurityOff: {namespaces: [%s]} (the chart's value controller.portSecurityOff)"
	return conf.Errorf(conf.CodeNotAllowed, "the operator grants this by the chart's value "+
		"controller.portSecurityOff", refused, namespace, namespace)
}

// Allows reports whether Check refuses nothing.
func (grants PhysicalGrants) Allows(namespace string, n *Network) bool {
	w, ok := n.PhysicalVLAN()
	if !ok {
		return n.PortSecurity || grants.loose(namespace)
	}
	allowed, _ := grants.ofVLAN(namespace, n, w)
	return allowed
}

// loose reports whether a namespace may have networks without port security, except localnet ones.
func (grants PhysicalGrants) loose(namespace string) bool {
	return slices.ContainsFunc(grants[onOverlay], func(g physicalGrant) bool {
		return slices.Contains(g.namespaces, namespace)
	})
}

// ofVLAN reports whether a network on a VLAN is granted to the namespace, and whether the same network with port
// security would be.
func (grants PhysicalGrants) ofVLAN(namespace string, n *Network, w PhysicalVLAN) (allowed, secured bool) {
	for _, g := range grants[w.Physical] {
		in := func(r vlanRange) bool { return r.first <= w.VLAN && w.VLAN <= r.last }
		if !slices.ContainsFunc(g.vlans, in) || !slices.Contains(g.namespaces, namespace) {
			continue
		}
		if !n.opens() || g.unchecked {
			return true, true
		}
		secured = true
	}
	return false, secured
}

// opens reports whether pods of the network may send from addresses that are not theirs. On a physical network these
// could be those of machines, and of other networks of the VLAN.
func (n *Network) opens() bool { return !n.PortSecurity || len(n.SubnetsBehind) > 0 }

// Check refuses a network on a physical network that is not granted to the namespace, and one that opens ports and may
// not. The error has the spec of the object that would grant it.
func (grants PhysicalGrants) Check(namespace string, n *Network) error {
	w, ok := n.PhysicalVLAN()
	if !ok {
		return grants.checkOverlay(namespace, n)
	}
	allowed, granted := grants.ofVLAN(namespace, n, w)
	if allowed {
		return nil
	}
	vlans, what, more := untagged, w.String(), ""
	if w.VLAN != 0 {
		vlans = strconv.Quote(strconv.Itoa(w.VLAN))
	}
	if n.opens() {
		more = ", portSecurity: false"
	}
	if granted && n.PortSecurity {
		what = "subnetsBehind on " + what
	} else if granted {
		what = "portSecurity: false on " + what
	}
	const form = "{physicalNetworkName: %q, grants: [{vlans: %s, namespaces: [%s]%s}]}"
	sentence := fmt.Sprintf(form, w.Physical, vlans, namespace, more)
	return conf.Errorf(conf.CodeNotAllowed, "the operator grants physical networks by objects PhysicalNetwork",
		"%s, is not granted to namespace %s; the operator would have to create a PhysicalNetwork with the spec %s",
		what, namespace, sentence)
}
