package nbtest

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// PodOn inserts a pod's port on a node switch of shop/blue.
func (w *World) PodOn(t *testing.T, node string) {
	t.Helper()
	w.PutPort(t, "Logical_Switch", NodeKey(node), Strange, ovndbtest.Op{
		"name": "shop/web-0/net1", "external_ids": ovndbtest.Map(map[string]string{
			"ovn-multinet/network": "shop/blue", "ovn-multinet/namespace": "shop",
			"ovn-multinet/pod": "web-0", "ovn-multinet/sandbox": "s1"})})
}
