package conf

import "slices"

// CheckAllowed tells whether the node's operator lets a plugin be run as a delegate.
func CheckAllowed(plugin string, allowed []string) error {
	if slices.Contains(allowed, plugin) {
		return nil
	}
	return Errorf(CodeNotAllowed, "the node's operator lists what may be run as allowedDelegates of the ovn-multinet entry in /etc/cni/net.d",
		"delegate %.64q is not allowed on this node", plugin)
}
