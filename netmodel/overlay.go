package netmodel

import (
	"cmp"
	"fmt"
	"regexp"
)

// sharedName is the CNI specification's form of a network's name (section "Configuration format").
var sharedName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,127}$`)

func checkShared(name string) error {
	if !sharedName.MatchString(name) {
		return fmt.Errorf("name: %.64q is no network's name: letters, digits, '_', '.' and '-'", name)
	}
	return nil
}

// setSharedName sets the name of an ovn-kubernetes network. A plugin of a list has the list's name, which is set before
// (CNI specification, section 4, "Deriving request configuration from plugin configuration").
func (n *Network) setSharedName(name string) error {
	n.SharedName = cmp.Or(n.SharedName, name)
	return checkShared(n.SharedName)
}
