package ovnport_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRouterZones: OVN 25.03 names the zones by the router, OVN 23.03 by row keys that this node cannot know. The zones of
// ports are not those of a router.
func TestRouterZones(t *testing.T) {
	const unnamed = "ct-zone-26e2485a-1022-46e8-a9e1-6f11c55d64f0"
	for _, c := range []struct {
		name, zones, want string
	}{
		{"named", `external_ids:ct-zone-/core\:gateway_dnat=6 external_ids:ct-zone-/core\:gateway_snat=9 ` +
			`external_ids:ct-zone-/core_snat=2 external_ids:ct-zone-/core\:provider=14`, "[6 9]"},
		{"unnamed", "external_ids:" + unnamed + "_dnat=3 external_ids:" + unnamed + "_snat=4 external_ids:ct-zone-shop/a/net1=5", "[3 4]"},
		{"none", "external_ids:ct-zone-shop/a/net1=5 external_ids:ovn-nb-cfg=7", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.VSCtl(append([]string{"set", "Bridge", "br-int"}, strings.Fields(c.zones)...)...)
			all, err := n.ovs.Zones(timeout(t))
			zones := all.OfRouter("/core:gateway")
			slices.Sort(zones)
			if got := fmt.Sprint(zones); err != nil || got != c.want {
				t.Errorf("zones %s, error %v; want %s", got, err, c.want)
			}
		})
	}
}
