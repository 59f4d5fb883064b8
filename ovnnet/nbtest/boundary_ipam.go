package nbtest

import (
	"testing"
)

// OtherConfigs are the bytes that all switches have in other_config, which northd works off at each recompute.
func (w *World) OtherConfigs(t *testing.T) (bytes int) {
	t.Helper()
	for _, sw := range w.Rows(t)["Logical_Switch"] {
		bytes += len(sw["other_config"])
	}
	return bytes
}

const TooWide = " is wider than /16, and the controller's --widest-ipam-subnet lets OVN hand out addresses of no wider one: " +
	"narrow it, or leave excludeSubnets out"
