package ovnport_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// A guest may use any link-local address but those that are made from a MAC of ours.
func TestGuestLinkLocal(t *testing.T) {
	var all []netip.Prefix
	for word := range strings.FieldsSeq(ovnport.GuestLinkLocal) {
		all = append(all, netip.MustParsePrefix(word))
	}
	may := func(a netip.Addr) bool {
		return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		b := [16]byte{0xfe, 0x80}
		for i := 8; i < 16; i++ {
			b[i] = byte(rnd.Uint32())
		}
		ours := b[8] == 8 && (b[9] == 0x58 || b[9] == 0x59)
		if a := netip.AddrFrom16(b); may(a) == ours {
			t.Errorf("%s: %v", a, may(a))
		}
		mac := net.HardwareAddr{0x0a, 0x58 + b[8]&1, b[9], b[10], b[11], b[12]}
		if a := conf.LinkLocal(mac); may(a) {
			t.Errorf("a guest may use %s, which belongs to %s", a, mac)
		}
	}
	if may(netip.MustParseAddr("fe80:0:0:1::1")) || may(netip.MustParseAddr("fd00::1")) || !may(netip.MustParseAddr("fe80::1")) {
		t.Errorf("the prefixes are %v", all)
	}
}

// Ports on overlay networks with DHCP, and those of IPAMClaims, have these addresses in their port security. Other ports
// do not, and none on a physical network, where the address of a router is not known.
func TestGuestsMayUseThem(t *testing.T) {
	const physical = `"topology":"localnet","physicalNetworkName":"a",`
	for _, tt := range []struct {
		keys, claim string
		guest       bool
	}{
		{net6, "", false},
		{net6 + `,"dhcp":true`, "", true},
		{net4 + `,"dhcp":true`, "", false},
		{net6 + `,"dhcp":true,"portSecurity":false`, "", false},
		{net6 + `,"allowPersistentIPs":true`, "shop/vm.net", true},
		{physical + net6 + `,"dhcp":true`, "", false},
		{physical + net6 + `,"allowPersistentIPs":true`, "shop/vm.net", false},
	} {
		w := newWorld(t)
		request := want(w.network(t, "blue", tt.keys), "net1")
		request.IPAMClaim = tt.claim
		mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), request)
		for _, row := range w.Dump(t, "Logical_Switch_Port") {
			security := strings.Join(ovndbtest.Strings(row["port_security"]), ",")
			if strings.Contains(security, ovnport.GuestLinkLocal) != tt.guest || strings.Contains(security, "/") != tt.guest {
				t.Errorf("%s %s: port security %q", tt.keys, tt.claim, security)
			}
		}
	}
}
