package nbtest

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// Strange is a row key that ovn-multinet never chooses.
const Strange = "11111111-0000-4000-8000-000000000001"

// Claim inserts a claim of a pod's port on an address of shop/blue.
func (w *World) Claim(t *testing.T, key string) {
	t.Helper()
	w.Put(t, "Copp", key, "a claim", map[string]string{
		"ovn-multinet/port-name": "shop/web-0/net1", "ovn-multinet/network": "shop/blue", "ovn-multinet/port": Strange,
	})
}

// PutRouterPort inserts a router port as another program does.
func (w *World) PutRouterPort(t *testing.T, router, key, name, networks string, ids map[string]string) {
	t.Helper()
	w.PutPort(t, "Logical_Router", router, key, ovndbtest.Op{
		"name": name, "mac": "02:00:00:00:00:01", "networks": networks, "external_ids": ovndbtest.Map(ids)})
}
