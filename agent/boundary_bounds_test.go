package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// A network whose NAD is beyond the bounds, and was accepted before there were any, takes new pods as before.
func TestBoundaryAcceptedNetworkTakesPods(t *testing.T) {
	routes := make([]string, netmodel.MaxRoutes+1)
	for i := range routes {
		routes[i] = fmt.Sprintf(`{"dst":"172.%d.%d.0/24"}`, 16+i/256, i%256)
	}
	config := `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400,"routes":[` + strings.Join(routes, ",") + `]}`
	accepted, err := netmodel.ParseAccepted("shop", "blue", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.setSwitch(accepted, inForce(accepted))
	r.source.nads["blue"] = testNAD{Config: config}
	r.start()
	p, err := r.planFor("c1", "blue")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(p.Interfaces[0].Routes); got != len(routes) || len(r.ports()) != 1 {
		t.Errorf("%d routes, ports %v; want %d and one", got, r.ports(), len(routes))
	}

	// Without an accepted configuration the bounds count.
	r.withdraw("blue", blue)
	if _, err = r.planFor("c2", "blue"); !conf.HasCode(err, conf.CodeInvalidConfig) || !strings.Contains(err.Error(), "routes: 257 are more than 256") {
		t.Errorf("without an accepted configuration: %v", err)
	}
}
