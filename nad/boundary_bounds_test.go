package nad

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// A network that the controller accepted by other bounds takes pods as before; a NAD alone beyond the bounds does not.
func TestBoundaryAcceptedNetworkBeyondTheBounds(t *testing.T) {
	routes := make([]string, netmodel.MaxRoutes+1)
	for i := range routes {
		routes[i] = fmt.Sprintf(`{"dst":"172.%d.%d.0/24"}`, 16+i/256, i%256)
	}
	config := `{"type":"ovn-multinet","subnets":"10.1.0.0/24","routes":[` + strings.Join(routes, ",") + `]}`
	for _, accepted := range []bool{false, true} {
		get := func(context.Context, string, string) (*netmodel.NAD, error) {
			def := nadOf("shop", "blue", config)
			if accepted {
				def = def.WithAccepted(config)
			}
			return def, nil
		}
		requests := []Request{{Namespace: "shop", Name: "blue", Interface: "net1"}}
		attachments, err := Resolve(context.Background(), "shop", requests, Rules{}, get)
		switch {
		case accepted && (err != nil || len(attachments[0].Routes) != len(routes)):
			t.Errorf("the accepted network: %v, %d attachments", err, len(attachments))
		case !accepted && (err == nil || err.Error() != "interface net1: network shop/blue: routes: 257 are more than 256"):
			t.Errorf("the NAD alone: %v", err)
		}
	}
}
