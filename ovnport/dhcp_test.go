package ovnport_test

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// A port refers to what DHCP answers on its network, in the one transaction of its ADD.
func TestPortRefersToDHCP(t *testing.T) {
	for _, keys := range []string{netDual, net6} {
		w := newWorld(t)
		n := w.network(t, "blue", keys+`,"dhcp":true`)
		refs := ""
		for _, subnet := range n.Subnets {
			key := ovndb.DHCPKey(n.ID(), subnet)
			refs += "[" + key + "]"
			w.Transact(t, ovndbtest.Op{"op": "insert", "table": "DHCP_Options", "uuid": key, "row": ovndbtest.Op{"cidr": subnet.String()}})
		}
		if len(n.Subnets) == 1 {
			refs = "[]" + refs
		}
		w.proxy.Reset()
		mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
		w.wantCounts(t, 1, 0, 0)
		for _, row := range w.Dump(t, "Logical_Switch_Port") {
			got := fmt.Sprintf("%v%v", ovndbtest.Strings(row["dhcpv4_options"]), ovndbtest.Strings(row["dhcpv6_options"]))
			if got != refs {
				t.Errorf("%s: the port refers to %s, want %s", keys, got, refs)
			}
		}
	}
}
