package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestADDWithSubnetsBehind: the pod with the address of a next hop may use the subnet, in the transaction of its ADD, and
// gets no route that leads to itself. A pod of another namespace does not get the address.
func TestADDWithSubnetsBehind(t *testing.T) {
	const routes = `"routes":[{"dst":"10.60.0.0/16"},{"dst":"192.0.2.0/24","gw":"10.1.0.5"},{"dst":"10.70.0.0/16"}],`
	config := strings.Replace(blue, `"mtu"`, routes+`"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.5"},`+
		`{"subnet":"10.61.0.0/16","via":"10.1.0.6","namespace":"web"}],"mtu"`, 1)
	r := newRig(t)
	r.source.nads["blue"] = testNAD{Config: config}
	r.accept("blue", config)
	r.start()
	_, err := r.planFor("c1", `[{"name":"blue","ips":["10.1.0.6"]}]`)
	r.wantRefused(err, conf.CodeNotAllowed, "interface net1: address 10.1.0.6 is for pods of namespace web")
	r.proxy.Reset()
	for i, tt := range []struct{ networks, routes, behind string }{
		{`[{"name":"blue","ips":["10.1.0.5"]}]`, "[10.70.0.0/16]", " 10.60.0.0/16"},
		{`[{"name":"blue","ips":["10.1.0.9"]}]`, "[10.60.0.0/16 192.0.2.0/24 10.70.0.0/16]", ""},
	} {
		p, err := r.planFor(fmt.Sprint("c", i+2), tt.networks)
		r.must(err)
		if i == 0 {
			r.wantCounts(1, 0, 0)
		}
		var got []string
		for _, route := range p.Interfaces[0].Routes {
			got = append(got, route.Dst.String())
		}
		if fmt.Sprint(got) != tt.routes {
			t.Errorf("%s: routes %v, want %s", tt.networks, got, tt.routes)
		}
		if got := r.security(); !strings.HasSuffix(got, strings.Split(tt.networks, `"`)[7]+tt.behind) {
			t.Errorf("%s: port security %s", tt.networks, got)
		}
	}
}
