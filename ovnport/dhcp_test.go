package ovnport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
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

// On a network with DHCP a machine hears the name of its IPAMClaim, without the network's, as its host name: before,
// while and after it migrates.
func TestHostname(t *testing.T) {
	long := strings.Repeat("long-", 14)
	for _, tt := range []struct{ claim, keys, want string }{
		{"shop/vm.net", netDual + `,"dhcp":true`, "vm"},
		{"shop/vm.of.shop.net", netDual + `,"dhcp":true`, "vm"},
		{"shop/" + long + "vm.net", netDual + `,"dhcp":true`, long[:63]},
		{"shop/" + long[:62] + "--" + long + ".net", netDual + `,"dhcp":true`, long[:62]},
		{"shop/vm.net", netDual, ""},
	} {
		w := newWorld(t)
		request := wantClaim(w.network(t, "blue", tt.keys))
		request.IPAMClaim = tt.claim
		has := func(what string) {
			t.Helper()
			for _, row := range w.Dump(t, "Logical_Switch_Port") {
				want := ""
				if tt.want != "" {
					want = `"` + tt.want + `"`
				}
				if got := row["options"].(map[string]string)["hostname"]; got != want {
					t.Errorf("%s, %s: host name %s, want %s", tt.claim, what, got, want)
				}
			}
		}
		port := mustEnsure(t, w.nb, launcher(1), request)[0]
		has("the first pod")
		for _, i := range []int{2, 4} {
			if _, err := w.nb.Ensure(timeout(t), launcher(i), []ovnport.Request{request}, migrates); err != nil {
				t.Fatal(err)
			}
			has("it migrates")
		}
		w.mustLeave(t, 4, port)
		has("the migration has failed")
		if _, err := w.nb.Ensure(timeout(t), launcher(6), []ovnport.Request{request}, migrates); err != nil {
			t.Fatal(err)
		}
		w.mustLeave(t, 1, port)
		has("it has migrated")
	}
}
