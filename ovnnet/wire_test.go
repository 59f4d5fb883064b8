package ovnnet_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// onExt is the wire of r1's gateway, as gwFull has it.
const onExt = `"topology":"localnet","physicalNetworkName":"provider","vlanID":42`

const extBook = "physical:provider:42"

func extKey(address string) string { return ovndb.AddressKey(extBook, netip.MustParseAddr(address)) }

// An address that a pod has cannot become a gateway's, or the next hop's, or the gateway of another network of the wire.
func TestBoundaryGatewayOfAPodsAddress(t *testing.T) {
	held := func(what string) string {
		return "gateway: " + what + " on physical network provider, VLAN 42 is held by port web/web-0/net1; delete its pod, or choose another address"
	}
	green := `"subnets":"192.0.2.0/24","gateway":"192.0.2.1"`
	for _, tt := range []struct {
		name, keys, address, what string
		of                        string // a router's gateway, or a network
	}{
		{"a router's external address", gwFull, "192.0.2.10", "address 192.0.2.10", "shop/r1"},
		{"a router's external address, IPv6", gwFull, "2001:db8::10", "address 2001:db8::10", "shop/r1"},
		{"its next hop", gwFull, "192.0.2.1", "address 192.0.2.1", "shop/r1"},
		{"a network's gateway", onExt + "," + green, "192.0.2.1", "address 192.0.2.1", ""},
	} {
		for _, claim := range []bool{false, true} {
			t.Run(sprint("%s, a claim: %t", tt.name, claim), func(t *testing.T) {
				w := newWorld(t)
				red := network(t, "red", onExt+`,"subnets":"192.0.2.0/25","gateway":"192.0.2.126"`)
				ensure(t, w.networks, red)
				if claim {
					w.put(t, "Copp", extKey(tt.address), "ovn-multinet web/x", map[string]string{
						"ovn-multinet/port": strange, "ovn-multinet/port-name": "web/web-0/net1", "ovn-multinet/address-book": extBook})
				} else {
					w.putPort(t, "Logical_Switch", ovndb.SwitchKey(red.ID()), extKey(tt.address), ovndbtest.Op{"name": "web/web-0/net1"})
				}
				var err error
				if tt.of == "shop/r1" {
					ensureRouterAlone(t, w)
				}
				before := w.versions(t)
				want := held(tt.what)
				if tt.of == "shop/r1" {
					want = "router shop/r1: " + want
					_, err = w.networks.EnsureGateway(withLimit(t), gatewayConf(t, "shop/r1", tt.keys), oneNode)
				} else {
					_, err = w.networks.Ensure(withLimit(t), network(t, "green", tt.keys), []string{"shop/green"})
				}
				if refused, ok := errors.AsType[*ovnnet.Refused](err); !ok || refused.Reason != want {
					t.Errorf("got  %v,\nwant %s", err, want)
				}
				if after := w.versions(t); !maps.Equal(before, after) {
					t.Errorf("rows %v became %v", before, after)
				}
			})
		}
	}
}

func ensureRouterAlone(t *testing.T, w *world) {
	t.Helper()
	w.put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", map[string]string{"ovn-multinet/router": "shop/r1"})
}

// Two gateways share an address of the provider's router, but no MAC of their own.
func TestBoundaryGatewaysMACIsNotShared(t *testing.T) {
	const v6 = gwPhysical + "," + gwNodes + `,"externalSubnet":"2001:db8::/64","externalAddress":"2001:db8::10","nextHop":"2001:db8::1"`
	w := newWorld(t)
	ensureGateway(t, w.networks, v6, oneNode)
	claims := w.rows(t)["Copp"]
	w.clear(t)
	for key, claim := range claims { // of another gateway's: on the next hop, on its address, on its MAC
		if strings.Contains(claim["name"], "address 2001:db8::10") {
			continue
		}
		w.put(t, "Copp", key, claim["name"], map[string]string{ovndb.BookKey: ext(claim, ovndb.BookKey), "ovn-multinet/claimant:router shop/r2": "gateway"})
	}
	before := w.versions(t)
	delete(before, "Logical_Router "+ovndb.RouterKey("shop/r1"))
	_, err := w.networks.EnsureGateway(withLimit(t), gatewayConf(t, "shop/r1", v6), oneNode)
	refused, ok := errors.AsType[*ovnnet.Refused](err)
	if !ok || !strings.HasPrefix(refused.Reason, "router shop/r1: gateway: MAC ") ||
		!strings.HasSuffix(refused.Reason, " on physical network provider, untagged is held by router shop/r2 (gateway); choose another external address") {
		t.Errorf("error %v", err)
	}
	after := w.versions(t)
	delete(after, "Logical_Router "+ovndb.RouterKey("shop/r1")) // which has a transaction of its own
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// Those who name one provider's router share the claim on its address, whoever comes and goes first; the last takes the
// row with it.
func TestBoundarySharedClaim(t *testing.T) {
	const hop = "192.0.2.1"
	w := newWorld(t)
	n := w.routed(t, gwFull)
	come := map[string]func(t *testing.T){
		"network shop/green": func(t *testing.T) { ensure(t, n, network(t, "green", onExt+`,"subnets":"192.0.2.0/24"`)) },
		"network shop/red": func(t *testing.T) {
			ensure(t, n, network(t, "red", onExt+`,"subnets":"192.0.2.0/25","excludeSubnets":"192.0.2.8/29","gateway":"192.0.2.1"`))
		},
		"router shop/r1": func(t *testing.T) { ensureGateway(t, n, gwFull, oneNode) },
	}
	leave := map[string]func(t *testing.T){
		"network shop/green": func(t *testing.T) { w.mustRemove(t, "shop/green", false) },
		"network shop/red":   func(t *testing.T) { w.mustRemove(t, "shop/red", false) },
		"router shop/r1": func(t *testing.T) {
			if err := w.networks.DropGateways(withLimit(t)); err != nil {
				t.Error(err)
			}
		},
	}
	wantShared := func(t *testing.T, who []string) {
		t.Helper()
		var want fields
		if len(who) > 0 {
			want = wireClaims(extBook, strings.Join(slices.Sorted(slices.Values(who)), ","), hop)[extKey(hop)]
		}
		if got := w.rows(t)["Copp"][extKey(hop)]; !maps.Equal(got, want) {
			t.Errorf("the claim is %v,\nwant %v", got, want)
		}
	}
	all := slices.Sorted(maps.Keys(come))
	for _, order := range [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(sprint("%v", order), func(t *testing.T) {
			var there []string
			for _, i := range order {
				come[all[i]](t)
				there = append(there, all[i])
				wantShared(t, there)
			}
			for _, i := range order {
				leave[all[i]](t)
				there = slices.DeleteFunc(there, func(who string) bool { return who == all[i] })
				wantShared(t, there)
			}
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
}

// Claimants that come and go at once lose no claim and leave none.
func TestBoundarySharedClaimIsRaced(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 6 {
		n, name := w.other(t), sprint("n%d", i)
		all.Go(func() {
			for range 5 {
				ensure(t, n, network(t, name, onExt+`,"subnets":"192.0.2.0/24"`))
				if err := n.Remove(withLimit(t), "shop/"+name, false); err != nil {
					t.Error(err)
				}
			}
			if i < 2 {
				ensure(t, n, network(t, name, onExt+`,"subnets":"192.0.2.0/24"`))
			}
		})
	}
	all.Wait()
	want := wireClaims(extBook, "network shop/n0,network shop/n1", "192.0.2.1")
	if got := w.rows(t)["Copp"]; len(got) != 1 || !maps.Equal(got[extKey("192.0.2.1")], want[extKey("192.0.2.1")]) {
		t.Errorf("claims %v,\nwant   %v", got, want)
	}
}

// A pod that takes the address between the look and the write is seen.
func TestBoundaryGatewayIsRacedByAPod(t *testing.T) {
	for _, table := range []string{"Logical_Switch_Port", "Copp"} {
		t.Run(table, func(t *testing.T) {
			w := newWorld(t)
			red := network(t, "red", onExt)
			ensure(t, w.networks, red)
			w.meanwhile(t, "HA_Chassis_Group", func() {
				if table == "Copp" {
					w.put(t, "Copp", extKey("192.0.2.10"), "x", map[string]string{"ovn-multinet/port-name": "web/web-0/net1"})
				} else {
					w.putPort(t, "Logical_Switch", ovndb.SwitchKey(red.ID()), extKey("192.0.2.10"), ovndbtest.Op{"name": "web/web-0/net1"})
				}
			})
			_, err := w.networks.EnsureGateway(withLimit(t), gatewayConf(t, "shop/r1", gwFull), oneNode)
			if _, ok := errors.AsType[*ovnnet.Refused](err); !ok || !strings.Contains(err.Error(), "is held by port web/web-0/net1") {
				t.Errorf("got %v", err)
			}
			if got := w.names(t, "HA_Chassis_Group"); got != "" {
				t.Errorf("the gateway is there: %s", got)
			}
		})
	}
}

// A configuration that changes moves the claims; what others took of the claimant's own rows hides none.
func TestBoundaryClaimsFollowTheConfiguration(t *testing.T) {
	other := strings.NewReplacer("192.0.2.10", "192.0.2.20", `"vlanID":42`, `"vlanID":43`).Replace(gwFull)
	v6 := gwPhysical + "," + gwNodes + `,"externalSubnet":"2001:db8::/64","externalAddress":"2001:db8::10"`
	for _, tt := range []struct{ name, from, to string }{
		{"other addresses on another VLAN", gwFull, other}, {"one family less", gwFull, gw4}, {"one more", gw4, gwFull},
		{"a MAC that is claimed", gwFull, v6}, {"a MAC that is not claimed any more", v6, gwFull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			ensureGateway(t, w.networks, tt.to, oneNode)
			want := w.rows(t)["Copp"]
			w.clear(t)
			ensureGateway(t, w.networks, tt.from, oneNode)
			ensureGateway(t, w.networks, tt.to, oneNode)
			if got := w.rows(t)["Copp"]; sprint("%v", got) != sprint("%v", want) {
				t.Errorf("claims %v,\nwant   %v", got, want)
			}
			w.remove(t, "Logical_Router", gwRouter)
			ensureGateway(t, w.networks, tt.from, oneNode)
			ensureGateway(t, w.networks, tt.to, oneNode)
			if got := w.rows(t)["Copp"]; sprint("%v", got) != sprint("%v", want) {
				t.Errorf("after the gateway was deleted by hand: claims %v,\nwant   %v", got, want)
			}
		})
	}
	t.Run("a network whose switch is deleted by hand", func(t *testing.T) {
		w := newWorld(t)
		ensure(t, w.networks, network(t, "blue", onExt+","+net4))
		w.remove(t, "Logical_Switch", blueKey)
		w.mustRemove(t, "shop/blue", false)
		w.wantRows(t, map[string]map[string]fields{})
	})
	t.Run("a claim is deleted by hand", func(t *testing.T) {
		w := newWorld(t)
		blue := network(t, "blue", onExt+","+net4)
		ensure(t, w.networks, blue)
		want := w.rows(t)
		w.remove(t, "Copp", extKey("10.1.0.1"))
		ensure(t, w.networks, blue)
		w.wantRows(t, want)
	})
}
