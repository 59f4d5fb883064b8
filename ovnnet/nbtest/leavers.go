package nbtest

import (
	"testing"
)

// WantNodes compares whose parts of networks there are, and which nodes are announced.
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
