package nbtest

import (
	"testing"
)

// WantNodes compares the names of all switches, and the nodes that are announced.
func (w *World) WantNodes(t *testing.T, switches, announced string) {
	t.Helper()
	var nodes []any
	for _, row := range w.Rows(t)["Copp"] {
		if Ext(row, "ovn-multinet/kind") == "node" {
			nodes = append(nodes, Ext(row, "ovn-multinet/node"))
		}
	}
	if got := w.Switches(t); got != switches || line(nodes) != announced {
		t.Errorf("switches %q and nodes %q, want %q and %q", got, line(nodes), switches, announced)
	}
}
