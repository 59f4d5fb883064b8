package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// TestSharedRoutes: further interfaces on a layer3 network share the routes that the first one has, but not a route on
// the link, and not a route that the pod's own replaces. Other networks have their routes on the first interface alone.
func TestSharedRoutes(t *testing.T) {
	network := func(name, keys string) *netmodel.Network {
		n, err := netmodel.ParseNetwork("shop", name, []byte(`{"type":"ovn-multinet",`+keys+`}`))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	wide := network("wide", `"topology":"layer3","subnets":"10.128.0.0/16/24","routes":[{"dst":"224.0.0.0/4","scope":253},{"dst":"192.0.2.0/24"}]`)
	view := wide.ForNode("n1", []netip.Prefix{netip.MustParsePrefix("10.128.5.0/24")})
	flat := network("flat", `"subnets":"10.1.0.0/16","routes":[{"dst":"198.51.100.0/24"}]`)
	attachments := []nad.Attachment{{Network: flat}, {Network: view}, {}, {Network: view}, {Network: flat}, {Network: view}}
	plan := &agentapi.Plan{}
	for _, n := range []int{0, 1, 3, 4, 5} {
		i := agentapi.Interface{Name: fmt.Sprintf("net%d", n+1), Position: n}
		if n < 2 {
			i.Routes = attachments[n].Network.Routes
		}
		plan.Interfaces = append(plan.Interfaces, i)
	}
	plan.Interfaces[1].Routes = plan.Interfaces[1].Routes[:2] // a route of the pod replaces the last one
	shareRoutes(plan, attachments)
	for k, want := range []string{"[]", "[]", "[10.128.0.0/16 via 10.128.5.1]", "[]", "[10.128.0.0/16 via 10.128.5.1]"} {
		if got := fmt.Sprint(plan.Interfaces[k].SharedRoutes); got != want {
			t.Errorf("%s shares %s, want %s", plan.Interfaces[k].Name, got, want)
		}
	}
}
