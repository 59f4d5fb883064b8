package ovnnet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestOptionsOfOthersStay: a key that an operator adds to the options of our rows stays, also when the row changes. Our
// own keys get their values again, and one that we do not want is removed.
func TestOptionsOfOthersStay(t *testing.T) {
	const with = nbtest.NetDual + nbtest.OnR1 + `,"portSecurity":false`
	router, port := ovndb.RouterKey("shop/r1"), ovndb.RouterPortKey("shop/blue")
	for _, tt := range []struct {
		name, table, key, column string
		have                     map[string]string
		want                     string
	}{
		{"router", "Logical_Router", router, "options",
			map[string]string{"snat-ct-zone": "7", "mac_binding_age_threshold": "0", "chassis": "c1"},
			nbtest.RouterOptions + " snat-ct-zone=7"},
		{"router without any", "Logical_Router", router, "options", nil, nbtest.RouterOptions},
		{"switch", "Logical_Switch", nbtest.BlueKey, "other_config",
			map[string]string{"mcast_snoop": "true", "subnet": "10.1.0.0/24", "fdb_age_threshold": "1"},
			"fdb_age_threshold=300 mcast_snoop=true"},
		{"switch without any", "Logical_Switch", nbtest.BlueKey, "other_config", nil, "fdb_age_threshold=300"},
		{"router port", "Logical_Router_Port", port, "options",
			map[string]string{"gateway_mtu": "1400"}, "gateway_mtu=1400"},
		{"switch port", "Logical_Switch_Port", nbtest.KeyOf("10.1.0.1"), "options",
			map[string]string{"arp_proxy": "10.1.0.9", "router-port": "x", "nat-addresses": "router"},
			"arp_proxy=10.1.0.9 router-port=shop/r1:shop/blue"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", with))
			w.Change(t, tt.table, tt.key, ovndbtest.Op{tt.column: ovndbtest.Map(tt.have)})
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", with))
			if got := w.Rows(t)[tt.table][tt.key][tt.column]; got != tt.want {
				t.Errorf("%s %q, want %q", tt.column, got, tt.want)
			}
			// Nothing is written again, and another column may change.
			if nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", with)) {
				t.Error("the options are written again")
			}
			w.Change(t, tt.table, tt.key, ovndbtest.Op{"name": "changed"})
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", with))
			row := w.Rows(t)[tt.table][tt.key]
			if row[tt.column] != tt.want || row["name"] == "changed" {
				t.Errorf("row %v, want %s %q", row, tt.column, tt.want)
			}
		})
	}
}

// TestGuards: each switch with pods has the ACLs that deny what a DHCP server sends, from the transaction on that makes
// the switch. A switch of an older version gets them. The ACLs of others stay.
func TestGuards(t *testing.T) {
	const match = "(udp.src == {67, 547} || " +
		"(udp && ip.is_frag && (ip4.dst == 255.255.255.255 || ip6.dst == {fe80::/10, ff02::1})))"
	const denies, untracks = "32766 drop " + match, "32765 allow-stateless " + match
	exempt := func(ports string) string {
		return "32767 allow inport == {" + ports + "} && " + match
	}
	for _, tt := range []struct {
		name, config, node, sw string
		want                   []string
	}{
		{"layer2", nbtest.NetDual, "", "shop/blue", []string{untracks, denies}},
		{"layer2 on a router", nbtest.NetDual + nbtest.OnR1, "", "shop/blue",
			[]string{untracks, denies, exempt(`"shop/blue:shop/r1"`)}},
		{"localnet", nbtest.Localnet("phys", `,"vlanID":42`), "", "shop/blue",
			[]string{untracks, denies, exempt(`"shop/blue:localnet"`)}},
		{"layer3", nbtest.Layer3 + nbtest.OnR1, "n1", "shop/blue@n1",
			[]string{untracks, denies, exempt(`"shop/blue@n1:shop/r1"`)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			blue := nbtest.Network(t, "blue", tt.config)
			nbtest.Ensure(t, w.Networks, blue)
			if tt.node != "" {
				nbtest.Share(t, w.Networks, blue, tt.node)
			} else {
				w.WantCommitted(t, 1)
			}
			check := func(what string, want ...string) {
				t.Helper()
				if got := switchACLs(t, w, tt.sw); !slices.Equal(got, want) {
					t.Errorf("%s: ACLs %q,\nwant %q", what, got, want)
				}
			}
			check("made", tt.want...)
			theirs := "1 drop ip4.src == 10.0.0.1"
			w.NBCtl("acl-add", tt.sw, "from-lport", "1", "ip4.src == 10.0.0.1", "drop")
			w.NBCtl("acl-del", tt.sw, "from-lport", "32766", match)
			nbtest.Ensure(t, w.Networks, blue)
			check("mended", append([]string{theirs}, tt.want...)...)
			if nbtest.Ensure(t, w.Networks, blue) {
				t.Error("the ACLs are written again")
			}
			w.NBCtl("clear", "Logical_Switch", tt.sw, "acls") // as an older version has made it
			nbtest.Ensure(t, w.Networks, blue)
			check("upgraded", tt.want...)
			w.MustRemove(t, "shop/blue", false)
			if rows := w.Dump(t, "ACL"); len(rows) > 0 {
				t.Errorf("ACLs stay: %v", rows)
			}
		})
	}
}

// switchACLs are the ACLs of a switch, sorted.
func switchACLs(t *testing.T, w *nbtest.World, name string) (words []string) {
	t.Helper()
	refs := map[string]bool{}
	for _, row := range w.Dump(t, "Logical_Switch") {
		if row["name"] == name {
			for _, key := range ovndbtest.Strings(row["acls"]) {
				refs[key] = true
			}
		}
	}
	for _, row := range w.Dump(t, "ACL") {
		if refs[fmt.Sprint(row["_uuid"])] && row["direction"] == "from-lport" {
			words = append(words, strings.TrimSpace(fmt.Sprint(row["priority"], " ", row["action"], " ", row["match"])))
		}
	}
	slices.Sort(words)
	return words
}
