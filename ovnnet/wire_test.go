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
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// onExt is the wire of r1's gateway, as gwFull has it.
const onExt = `"topology":"localnet","physicalNetworkName":"provider","vlanID":42`

const extBook = "physical:provider:42"

func extKey(address string) string { return ovndb.AddressKey(extBook, netip.MustParseAddr(address)) }

// An address that a pod has cannot become a gateway's, or the next hop's, or the gateway of another network of the wire.
func TestBoundaryGatewayOfAPodsAddress(t *testing.T) {
	held := func(what string) string {
		return "gateway: " + what + " on physical network provider, VLAN 42 belongs to port web/web-0/net1; delete its pod, or choose another address"
	}
	green := `"subnets":"192.0.2.0/24","gateway":"192.0.2.1"`
	for _, tt := range []struct {
		name, keys, address, what string
		of                        string // a router's gateway, or a network
	}{
		{"a router's external address", nbtest.GwFull, "192.0.2.10", "address 192.0.2.10", "shop/r1"},
		{"a router's external address, IPv6", nbtest.GwFull, "2001:db8::10", "address 2001:db8::10", "shop/r1"},
		{"its next hop", nbtest.GwFull, "192.0.2.1", "address 192.0.2.1", "shop/r1"},
		{"a network's gateway", onExt + "," + green, "192.0.2.1", "address 192.0.2.1", ""},
	} {
		for _, claim := range []bool{false, true} {
			t.Run(nbtest.Sprint("%s, a claim: %t", tt.name, claim), func(t *testing.T) {
				w := nbtest.NewWorld(t)
				red := nbtest.Network(t, "red", onExt+`,"subnets":"192.0.2.0/25","gateway":"192.0.2.126"`)
				nbtest.Ensure(t, w.Networks, red)
				if claim {
					w.Put(t, "Copp", extKey(tt.address), "ovn-multinet web/x", map[string]string{
						"ovn-multinet/port": nbtest.Strange, "ovn-multinet/port-name": "web/web-0/net1", "ovn-multinet/address-book": extBook})
				} else {
					w.PutPort(t, "Logical_Switch", ovndb.SwitchKey(red.ID()), extKey(tt.address), ovndbtest.Op{"name": "web/web-0/net1"})
				}
				var err error
				if tt.of == "shop/r1" {
					ensureRouterAlone(t, w)
				}
				before := w.Versions(t)
				want := held(tt.what)
				if tt.of == "shop/r1" {
					want = "router shop/r1: " + want
					_, err = w.Networks.Gateways.Ensure(nbtest.WithLimit(t), nbtest.GatewayConf(t, "shop/r1", tt.keys), nbtest.OneNode)
				} else {
					_, err = w.Networks.Ensure(nbtest.WithLimit(t), nbtest.Network(t, "green", tt.keys), []string{"shop/green"})
				}
				if refused, ok := errors.AsType[*nbrows.Refused](err); !ok || refused.Reason != want {
					t.Errorf("got  %v,\nwant %s", err, want)
				}
				if after := w.Versions(t); !maps.Equal(before, after) {
					t.Errorf("rows %v became %v", before, after)
				}
			})
		}
	}
}

func ensureRouterAlone(t *testing.T, w *nbtest.World) {
	t.Helper()
	w.Put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", map[string]string{"ovn-multinet/router": "shop/r1"})
}

// Two gateways share an address of the provider's router, but no MAC of their own.
func TestBoundaryGatewaysMACIsNotShared(t *testing.T) {
	const v6 = nbtest.GwPhysical + "," + nbtest.GwNodes + `,"externalSubnet":"2001:db8::/64","externalAddress":"2001:db8::10","nextHop":"2001:db8::1"`
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, v6, nbtest.OneNode)
	claims := w.Rows(t)["Copp"]
	w.Clear(t)
	for key, claim := range claims { // of another gateway's: on the next hop, on its address, on its MAC
		if strings.Contains(claim["name"], "address 2001:db8::10") {
			continue
		}
		w.Put(t, "Copp", key, claim["name"], map[string]string{ovndb.BookKey: nbtest.Ext(claim, ovndb.BookKey), "ovn-multinet/claimant:router shop/r2": "gateway"})
	}
	before := w.Versions(t)
	delete(before, "Logical_Router "+ovndb.RouterKey("shop/r1"))
	_, err := w.Networks.Gateways.Ensure(nbtest.WithLimit(t), nbtest.GatewayConf(t, "shop/r1", v6), nbtest.OneNode)
	refused, ok := errors.AsType[*nbrows.Refused](err)
	if !ok || !strings.HasPrefix(refused.Reason, "router shop/r1: gateway: MAC ") ||
		!strings.HasSuffix(refused.Reason, " on physical network provider, untagged belongs to router shop/r2 (gateway); choose another external address") {
		t.Errorf("error %v", err)
	}
	after := w.Versions(t)
	delete(after, "Logical_Router "+ovndb.RouterKey("shop/r1")) // which has a transaction of its own
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// Those who name one provider's router share the claim on its address, whoever comes and goes first; the last takes the
// row with it.
func TestBoundarySharedClaim(t *testing.T) {
	const hop = "192.0.2.1"
	w := nbtest.NewWorld(t)
	n := w.Routed(t, nbtest.GwFull)
	come := map[string]func(t *testing.T){
		"network shop/green": func(t *testing.T) { nbtest.Ensure(t, n, nbtest.Network(t, "green", onExt+`,"subnets":"192.0.2.0/24"`)) },
		"network shop/red": func(t *testing.T) {
			nbtest.Ensure(t, n, nbtest.Network(t, "red", onExt+`,"subnets":"192.0.2.0/25","excludeSubnets":"192.0.2.8/29","gateway":"192.0.2.1"`))
		},
		"router shop/r1": func(t *testing.T) { nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode) },
	}
	leave := map[string]func(t *testing.T){
		"network shop/green": func(t *testing.T) { w.MustRemove(t, "shop/green", false) },
		"network shop/red":   func(t *testing.T) { w.MustRemove(t, "shop/red", false) },
		"router shop/r1": func(t *testing.T) {
			if err := w.Networks.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
				t.Error(err)
			}
		},
	}
	wantShared := func(t *testing.T, who []string) {
		t.Helper()
		var want nbtest.Fields
		if len(who) > 0 {
			want = nbtest.BookClaims(extBook, strings.Join(slices.Sorted(slices.Values(who)), ","), hop)[extKey(hop)]
		}
		if got := w.Rows(t)["Copp"][extKey(hop)]; !maps.Equal(got, want) {
			t.Errorf("the claim is %v,\nwant %v", got, want)
		}
	}
	all := slices.Sorted(maps.Keys(come))
	for _, order := range [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(nbtest.Sprint("%v", order), func(t *testing.T) {
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
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
}

// Claimants that come and go at once lose no claim and leave none.
func TestBoundarySharedClaimIsRaced(t *testing.T) {
	w := nbtest.NewWorld(t)
	var all sync.WaitGroup
	for i := range 6 {
		n, name := w.Other(t), nbtest.Sprint("n%d", i)
		all.Go(func() {
			for range 5 {
				nbtest.Ensure(t, n, nbtest.Network(t, name, onExt+`,"subnets":"192.0.2.0/24"`))
				if err := n.Delete(nbtest.WithLimit(t), "shop/"+name, false); err != nil {
					t.Error(err)
				}
			}
			if i < 2 {
				nbtest.Ensure(t, n, nbtest.Network(t, name, onExt+`,"subnets":"192.0.2.0/24"`))
			}
		})
	}
	all.Wait()
	want := nbtest.BookClaims(extBook, "network shop/n0,network shop/n1", "192.0.2.1")
	if got := w.Rows(t)["Copp"]; len(got) != 3 || // with what is accepted for the two networks
		!maps.Equal(got[extKey("192.0.2.1")], want[extKey("192.0.2.1")]) {
		t.Errorf("claims %v,\nwant   %v", got, want)
	}
}

// A pod that takes the address between the look and the write is seen.
func TestBoundaryGatewayIsRacedByAPod(t *testing.T) {
	for _, table := range []string{"Logical_Switch_Port", "Copp"} {
		t.Run(table, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			red := nbtest.Network(t, "red", onExt)
			nbtest.Ensure(t, w.Networks, red)
			w.Meanwhile(t, "HA_Chassis_Group", func() {
				if table == "Copp" {
					w.Put(t, "Copp", extKey("192.0.2.10"), "x", map[string]string{"ovn-multinet/port-name": "web/web-0/net1"})
				} else {
					w.PutPort(t, "Logical_Switch", ovndb.SwitchKey(red.ID()), extKey("192.0.2.10"), ovndbtest.Op{"name": "web/web-0/net1"})
				}
			})
			_, err := w.Networks.Gateways.Ensure(nbtest.WithLimit(t), nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull), nbtest.OneNode)
			if _, ok := errors.AsType[*nbrows.Refused](err); !ok || !strings.Contains(err.Error(), "belongs to port web/web-0/net1") {
				t.Errorf("got %v", err)
			}
			if got := w.Names(t, "HA_Chassis_Group"); got != "" {
				t.Errorf("the gateway is there: %s", got)
			}
		})
	}
}

// A configuration that changes moves the claims; what others took of the claimant's own rows hides none.
func TestBoundaryClaimsFollowTheConfiguration(t *testing.T) {
	other := strings.NewReplacer("192.0.2.10", "192.0.2.20", `"vlanID":42`, `"vlanID":43`).Replace(nbtest.GwFull)
	v6 := nbtest.GwPhysical + "," + nbtest.GwNodes + `,"externalSubnet":"2001:db8::/64","externalAddress":"2001:db8::10"`
	for _, tt := range []struct{ name, from, to string }{
		{"other addresses on another VLAN", nbtest.GwFull, other}, {"one family less", nbtest.GwFull, nbtest.Gw4}, {"one more", nbtest.Gw4, nbtest.GwFull},
		{"a MAC that is claimed", nbtest.GwFull, v6}, {"a MAC that is not claimed any more", v6, nbtest.GwFull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.EnsureGateway(t, w.Networks, tt.to, nbtest.OneNode)
			want := w.Rows(t)["Copp"]
			w.Clear(t)
			nbtest.EnsureGateway(t, w.Networks, tt.from, nbtest.OneNode)
			nbtest.EnsureGateway(t, w.Networks, tt.to, nbtest.OneNode)
			if got := w.Rows(t)["Copp"]; nbtest.Sprint("%v", got) != nbtest.Sprint("%v", want) {
				t.Errorf("claims %v,\nwant   %v", got, want)
			}
			w.Remove(t, "Logical_Router", nbtest.GwRouter)
			nbtest.EnsureGateway(t, w.Networks, tt.from, nbtest.OneNode)
			nbtest.EnsureGateway(t, w.Networks, tt.to, nbtest.OneNode)
			if got := w.Rows(t)["Copp"]; nbtest.Sprint("%v", got) != nbtest.Sprint("%v", want) {
				t.Errorf("after the gateway was deleted by hand: claims %v,\nwant   %v", got, want)
			}
		})
	}
	t.Run("a network whose switch is deleted by hand", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", onExt+","+nbtest.Net4))
		w.Remove(t, "Logical_Switch", nbtest.BlueKey)
		w.MustRemove(t, "shop/blue", false)
		w.WantRows(t, map[string]map[string]nbtest.Fields{})
	})
	t.Run("a claim is deleted by hand", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		blue := nbtest.Network(t, "blue", onExt+","+nbtest.Net4)
		nbtest.Ensure(t, w.Networks, blue)
		want := w.Rows(t)
		w.Remove(t, "Copp", extKey("10.1.0.1"))
		nbtest.Ensure(t, w.Networks, blue)
		w.WantRows(t, want)
	})
}
