package ovnport_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// onWire makes a localnet network of the namespace on a VLAN of the physical network "phys", with its logical switch.
func (w *world) onWire(t testing.TB, namespace, name string, vlan int, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork(namespace, name, []byte(fmt.Sprintf(
		`{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"phys","vlanID":%d%s}`, vlan, keys)))
	if err != nil {
		t.Fatal(err)
	}
	w.Transact(t, insertNetwork(n)...)
	return n
}

// wantOneHolder fails when two ports of the database have an address or a MAC in common.
func (w *world) wantOneHolder(t testing.TB) {
	t.Helper()
	by := map[string]string{}
	for _, port := range read(t, w.Server).ports {
		for _, text := range ovndbtest.Strings(port["addresses"]) {
			for _, word := range strings.Fields(text) {
				if other := by[word]; other != "" && word != "unknown" {
					t.Errorf("%s is of port %s and of port %s", word, other, port["name"])
				}
				by[word] = fmt.Sprint(port["name"])
			}
		}
	}
}

// Networks of two namespaces on one VLAN, with one subnet or with subnets that overlap, never give an address or a MAC
// twice: the second one's pods take what is left, down to the last address.
func TestBoundaryOneAddressBookPerWire(t *testing.T) {
	tests := []struct {
		name, a, b string
		pods       int // of each network
	}{
		{"one subnet", `,"subnets":"10.50.0.0/24"`, `,"subnets":"10.50.0.0/24"`, 60},
		{"subnets that overlap", `,"subnets":"10.50.0.0/24"`, `,"subnets":"10.50.0.0/25"`, 50},
		{"both families", `,"subnets":"10.50.0.0/24,fd50::/64"`, `,"subnets":"10.50.0.0/24,fd50::/120"`, 40},
		{"IPv6", `,"subnets":"fd50::/120"`, `,"subnets":"fd50::/120"`, 60},
		{"IPv6 of two subnets, whose lower 32 bits are alike", `,"subnets":"fd50::/121"`, `,"subnets":"fd51::/121"`, 60},
		{"IPv6 with the lower 32 bits of IPv4", `,"subnets":"10.50.0.0/25"`, `,"subnets":"fd50::a32:0/121"`, 60},
		{"MACs alone beside IPv4", `,"subnets":"10.50.0.0/25"`, "", 60},
		{"MACs alone", "", "", 60},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			nets := []*netmodel.Network{w.onWire(t, "shop", "a", 100+i, tt.a), w.onWire(t, "web", "b", 100+i, tt.b)}
			for i := range tt.pods {
				for j, n := range nets {
					mustEnsure(t, w.nb, owner(fmt.Sprint("pod-", j, "-", i), fmt.Sprint("sandbox-", j, "-", i)), want(n, "net1"))
				}
			}
			w.wantOneHolder(t)
			t.Attr("boundary.pods-on-one-wire", fmt.Sprint(2*tt.pods))
		})
	}
}

func TestBoundaryWireIsFull(t *testing.T) {
	w := newWorld(t)
	a, b := w.onWire(t, "shop", "a", 100, `,"subnets":"10.50.0.0/24"`), w.onWire(t, "web", "b", 100, `,"subnets":"10.50.0.0/24"`)
	var last []ovnport.Port
	for i := range 253 { // all but the gateway's
		last = mustEnsure(t, w.nb, owner(fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i)), want([]*netmodel.Network{a, b}[i%2], "net1"))
	}
	w.wantOneHolder(t)
	for _, n := range []*netmodel.Network{a, b} {
		_, err := w.nb.Ensure(timeout(t), owner("late", "sandbox-late"), []ovnport.Request{want(n, "net1")}, nobody(t))
		wantCode(t, err, conf.CodeNoAddressLeft, n.ID())
	}
	mustRelease(t, w.nb, "sandbox-252", last...) // of a
	got := mustEnsure(t, w.nb, owner("late", "sandbox-late"), want(b, "net1"))
	if got[0].UUID != last[0].UUID {
		t.Errorf("got %v, want the one that is free, %v", got[0].Addresses, last[0].Addresses)
	}
}

// A fixed address or MAC that another network of the wire holds is refused, with its holder's name.
func TestBoundaryFixedOnAWire(t *testing.T) {
	const dual = `,"subnets":"10.50.0.0/24,fd50::/64"`
	tests := []struct {
		name          string
		first, second []string
		what          string
	}{
		{"lease, lease", []string{"10.50.0.7"}, []string{"10.50.0.7"}, "address 10.50.0.7"},
		{"lease, claim", []string{"10.50.0.7"}, []string{"10.50.0.8", "10.50.0.7"}, "address 10.50.0.7"},
		{"claim, lease", []string{"10.50.0.8", "10.50.0.7"}, []string{"10.50.0.7"}, "address 10.50.0.7"},
		{"IPv6", []string{"fd50::7"}, []string{"fd50::7"}, "address fd50::7"},
		{"MAC", []string{"02:00:00:00:00:2a"}, []string{"02:00:00:00:00:2a"}, "MAC 02:00:00:00:00:2a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.onWire(t, "shop", "a", 100, dual), w.onWire(t, "web", "b", 100, dual)
			mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(a, "net1", tt.first...))
			before := read(t, w.Server)
			_, err := w.nb.Ensure(timeout(t), owner("web-2", "sandbox-2"), []ovnport.Request{want(b, "net1", tt.second...)}, nobody(t))
			wantCode(t, err, conf.CodeInUse, "web/b", tt.what, "shop/web-1")
			w.wantUnchanged(t, before)
			other := w.onWire(t, "web", "c", 101, dual)
			mustEnsure(t, w.nb, owner("web-2", "sandbox-2"), want(other, "net1", tt.second...)) // another VLAN is another wire
		})
	}
	t.Run("a MAC of the form of leases", func(t *testing.T) {
		w := newWorld(t)
		n := w.onWire(t, "shop", "a", 100, "")
		_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{want(n, "net1", "0a:58:0a:32:00:07")}, nobody(t))
		wantCode(t, err, conf.CodeInvalidConfig, "MAC 0a:58:0a:32:00:07 is not the one of its own address")
	})
}

// What a gateway has on the wire no pod gets: a fixed address is refused with the claimants' names, a dynamic one
// passes it.
func TestBoundaryPodDoesNotGetAGatewaysAddress(t *testing.T) {
	w := newWorld(t)
	n := w.onWire(t, "shop", "a", 100, `,"subnets":"10.50.0.0/29","gateway":"10.50.0.6"`) // .1 to .5 are left
	for _, a := range []string{"10.50.0.1", "10.50.0.2", "10.50.0.3", "10.50.0.4"} {
		w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.AddressKey(n.AddressBook(), netip.MustParseAddr(a)), "row": ovndbtest.Op{
			"name": a, "external_ids": ovndbtest.Map(map[string]string{ovndb.BookKey: n.AddressBook(),
				ovndb.ClaimantPrefix + "router core": "gateway", ovndb.ClaimantPrefix + "network web/b": "gateway"})}})
	}
	before := read(t, w.Server)
	for _, ips := range [][]string{{"10.50.0.2"}, {"10.50.0.5", "10.50.0.2"}} {
		_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{want(n, "net1", ips...)}, nobody(t))
		wantCode(t, err, conf.CodeInUse, "address 10.50.0.2 of network shop/a is in use by network web/b (gateway) and router core (gateway)")
		w.wantUnchanged(t, before)
	}
	ports := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
	if got := ports[0].Addresses[0].Addr().String(); got != "10.50.0.5" {
		t.Errorf("the pod has %s", got)
	}
	_, err := w.nb.Ensure(timeout(t), owner("web-2", "sandbox-2"), []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft, "shop/a")
}

// A lost port whose address is a gateway's by now is not restored, and the error says whose the address is.
func TestLostPortMeetsAGatewaysAddress(t *testing.T) {
	for _, gateway := range []string{"10.50.0.7", "10.50.0.8"} {
		t.Run(gateway, func(t *testing.T) {
			w := newWorld(t)
			n := w.onWire(t, "shop", "a", 100, `,"subnets":"10.50.0.0/24"`)
			o, wanted := owner("web-1", "sandbox-1"), want(n, "net1", "10.50.0.7", "10.50.0.8")
			had := mustEnsure(t, w.nb, o, wanted)[0]
			mustRelease(t, w.nb, "sandbox-1", had)
			w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.AddressKey(n.AddressBook(), netip.MustParseAddr(gateway)), "row": ovndbtest.Op{
				"name": gateway, "external_ids": ovndbtest.Map(map[string]string{ovndb.ClaimantPrefix + "router core": "gateway"})}})
			err := w.nb.Restore(timeout(t), o, wanted, had, nobody(t))
			if _, taken := errors.AsType[*ovnport.InUse](err); !taken || err.Error() != "address "+gateway+" is in use by router core (gateway)" {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A pod that comes back in a new sandbox keeps its address and its MAC on a wire too, and its claims go with it.
func TestBoundaryWirePortComesBack(t *testing.T) {
	for i, keys := range []string{"", `,"subnets":"fd50::/64"`, `,"subnets":"10.50.0.0/24,fd50::/64"`, `,"subnets":"10.50.0.0/24"`} {
		w := newWorld(t)
		n := w.onWire(t, "shop", "a", 100+i, keys)
		first := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
		second := mustEnsure(t, w.nb, owner("web-1", "sandbox-2"), want(n, "net1"))
		if fmt.Sprint(first) != fmt.Sprint(second) {
			t.Errorf("%s: %v became %v", keys, first, second)
		}
		if mac := second[0].MAC.String(); strings.HasPrefix(mac, "0a:58:") != strings.Contains(keys, "10.50.") {
			t.Errorf("%s: MAC %s", keys, mac)
		}
		mustRelease(t, w.nb, "sandbox-2", second...)
		if s := read(t, w.Server); len(s.ports)+len(s.claims) != 0 {
			t.Errorf("%s: left are %s", keys, s)
		}
	}
}

// One port on a wire is one committed transaction, like any other.
func TestBoundaryWireCostsNoMore(t *testing.T) {
	w := newWorld(t)
	var wants []ovnport.Request
	for i := range 4 {
		wants = append(wants, want(w.onWire(t, "shop", fmt.Sprint("n", i), 100+i%2, fmt.Sprintf(`,"subnets":"10.%d.0.0/16,fd50::/64"`, i)), fmt.Sprint("net", i)))
	}
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), wants...)
	w.wantCounts(t, 1, 0, 0)
	keys := map[string]bool{}
	for _, p := range ports {
		for _, key := range append(slices.Clone(p.Claims), p.UUID) {
			keys[key] = true
		}
	}
	if len(keys) != 8 {
		t.Errorf("%d keys of 4 ports with 2 addresses each", len(keys))
	}
}
