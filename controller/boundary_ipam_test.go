package controller_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// A guest that was accepted under a wider bound leaves the router when its consent is withdrawn.
func TestBoundaryWideGuestLeavesItsRouter(t *testing.T) {
	for served, wide := range map[string]string{
		"10.16.0.0/12": `"subnets":"10.16.0.0/12","excludeSubnets":"10.16.9.0/24"`,
		"10.16.0.0/14": `"topology":"layer3","subnets":"10.16.0.0/12/14","excludeSubnets":"10.16.9.0/24"`,
	} {
		t.Run(served, func(t *testing.T) {
			const anything = `,"routerGuests":[{"namespace":"web","subnets":"0.0.0.0/0"}]`
			w, a := nbtest.NewWorld(t), newAPI()
			before := nbtest.Connect(t, w.Endpoint())
			before = before.WithIPAM(8)
			first := runAs(t, w, before, a, leads)
			first.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+anything))
			first.apply("web/green", nbtest.Spec(wide+nbtest.OnShopR1))
			first.wantState(t, "web/green", "ready, held")
			first.stop()

			r := run(t, w, a)
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
			// Back on the router it would be a new configuration, to which the bound applies.
			r.wantState(t, "web/green", "refused: excludeSubnets: "+served+nbtest.TooWide+", held")
			rows := r.Rows(t)
			for _, row := range slices.Concat(slices.Collect(maps.Values(rows["Logical_Router_Port"])), slices.Collect(maps.Values(rows["Logical_Router_Static_Route"]))) {
				if strings.Contains(row["external_ids"], "ovn-multinet/network=web/green") && strings.Contains(row["external_ids"], "ovn-multinet/router=shop/r1") {
					t.Errorf("it is on the router still: %v", row)
				}
			}
			if got := nbtest.Ext(rows["Copp"][ovndb.AcceptedKey("web/green")], "ovn-multinet/config"); got != nbtest.NetworkIn(t, "web", "green", wide).Canonical() {
				t.Errorf("its accepted configuration is %s", got)
			}
		})
	}
}
