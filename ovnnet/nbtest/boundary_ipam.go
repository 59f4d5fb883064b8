package nbtest

import (
	"testing"
)

// OtherConfigs returns the length of other_config of all switches together. northd reads it at each recompute.
func (w *World) OtherConfigs(t *testing.T) (bytes int) {
	t.Helper()
	for _, sw := range w.Rows(t)["Logical_Switch"] {
		bytes += len(sw["other_config"])
	}
	return bytes
}

// TooWide is the end of the reason why a network with a wide subnet is refused.
const TooWide = " is wider than /16, and the controller's --widest-ipam-subnet lets OVN hand out addresses " +
	"of no wider one: narrow it, or leave excludeSubnets out"
