package ovnnet_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// otherConfigs are the bytes that all switches have in other_config, which northd works off at each recompute.
func (w *world) otherConfigs(t *testing.T) (bytes int) {
	t.Helper()
	for _, sw := range w.rows(t)["Logical_Switch"] {
		bytes += len(sw["other_config"])
	}
	return bytes
}

// However wide the subnets of a namespace are: OVN's allocator gets none that it could hand out nothing of.
func TestBoundaryWideSubnetsCostOVNNothing(t *testing.T) {
	w := newWorld(t)
	for i := range 40 {
		ensure(t, w.networks, network(t, sprint("wide%d", i), `"subnets":"32.0.0.0/3"`))
	}
	ensure(t, w.networks, network(t, "whole", `"subnets":"10.0.0.0/8/12","topology":"layer3"`))
	if got := w.otherConfigs(t); got != 0 {
		t.Errorf("the switches have %d bytes of other_config, want none", got)
	}
	t.Attr("boundary.other-config-bytes", strconv.Itoa(w.otherConfigs(t)))
}

const tooWide = " is wider than /16, and the controller's --widest-ipam-subnet lets OVN hand out addresses of no wider one: " +
	"narrow it, or leave excludeSubnets out"

// A subnet that OVN's allocator would serve is no wider than the operator says; a wider one is refused and leaves
// nothing.
func TestBoundarySubnetOfOVNsAllocatorIsBounded(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct{ keys, refused string }{
		"layer2 at the bound":  {`"subnets":"10.1.0.0/16","excludeSubnets":"10.1.9.0/24"`, ""},
		"layer2 beyond it":     {`"subnets":"32.0.0.0/3","excludeSubnets":"33.0.0.0/8"`, "excludeSubnets: 32.0.0.0/3" + tooWide},
		"layer3 of narrow":     {`"topology":"layer3","subnets":"10.0.0.0/8/24","excludeSubnets":"10.1.9.0/26"`, ""},
		"layer3 at the bound":  {`"topology":"layer3","subnets":"10.0.0.0/8/16","excludeSubnets":"10.1.9.0/26"`, ""},
		"layer3 of wide":       {`"topology":"layer3","subnets":"10.0.0.0/8/15","excludeSubnets":"10.1.9.0/26"`, "excludeSubnets: 10.0.0.0/15" + tooWide},
		"localnet beyond it":   {localnet("phys", `,"subnets":"10.0.0.0/15","excludeSubnets":"10.1.9.0/24"`), "excludeSubnets: 10.0.0.0/15" + tooWide},
		"IPv6 has no bound":    {`"subnets":"fd01::/64","excludeSubnets":"fd01::1:0/112"`, ""},
		"excluded in IPv6":     {`"subnets":"32.0.0.0/3,fd01::/64","excludeSubnets":"fd01::1:0/112"`, ""},
		"beside a wide family": {`"subnets":"10.1.0.0/16,fd01::/64","excludeSubnets":"fd01::1:0/112,10.1.9.0/24"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.clear(t)
			n := network(t, "blue", tt.keys)
			if tt.refused == "" {
				if !ensure(t, w.networks, n) {
					t.Error("changed is false")
				}
				return
			}
			w.wantRefused(t, n, tt.refused)
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
	t.Run("the operator's bound", func(t *testing.T) {
		w.clear(t)
		n := network(t, "blue", `"subnets":"10.0.0.0/8","excludeSubnets":"10.1.9.0/24"`)
		wider := connect(t, w.proxy.Endpoint())
		wider.SetWidestIPAM(8)
		ensure(t, wider, n)
		const served = "exclude_ips=10.0.0.1 10.0.0.2..10.1.8.255 10.1.10.0..10.255.255.254 subnet=10.0.0.0/8"
		if got := w.rows(t)["Logical_Switch"][blueKey]["other_config"]; got != served {
			t.Errorf("other_config %q, want %q", got, served)
		}
	})
}

// A wide network from before the bound keeps its ports and its configuration; OVN's allocator does not serve it any
// more.
func TestBoundaryWideNetworkFromBefore(t *testing.T) {
	for name, keys := range map[string]string{
		"layer2": `"subnets":"10.0.0.0/8","excludeSubnets":"10.1.9.0/24"`,
		"layer3": `"topology":"layer3","subnets":"10.0.0.0/8/12","excludeSubnets":"10.0.9.0/24,10.16.9.0/24,10.32.0.0/11,10.64.0.0/10,10.128.0.0/9"`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := network(t, "blue", keys)
			before := connect(t, w.Endpoint())
			before.SetWidestIPAM(1)
			ensure(t, before, n)
			part := blueKey
			if n.Topology == netmodel.Layer3 {
				part = ovndb.SwitchKey("shop/blue@n1")
				share(t, before, n, "n1")
			}
			was := w.rows(t)
			if was["Logical_Switch"][part]["other_config"] == "" {
				t.Fatal("OVN's allocator does not serve it before")
			}
			if !ensure(t, w.networks, n) {
				t.Error("changed is false")
			}
			delete(was["Logical_Switch"][part], "other_config")
			own := was["Logical_Switch"][blueKey]
			own["external_ids"] = strings.ReplaceAll(own["external_ids"], " ovn-multinet/widest-ipam-subnet=1", "")
			w.wantRows(t, was)
			if ensure(t, w.networks, n) {
				t.Error("it is changed again")
			}
			width := map[string]int{netmodel.Layer2: 8, netmodel.Layer3: 12}[n.Topology]
			w.wantRefused(t, network(t, "blue", keys+`,"mtu":1400`), sprint("excludeSubnets: 10.0.0.0/%d%s", width, tooWide))
		})
	}
}

// A guest that was accepted under a wider bound leaves the router when its consent is withdrawn.
func TestBoundaryWideGuestLeavesItsRouter(t *testing.T) {
	for served, wide := range map[string]string{
		"10.16.0.0/12": `"subnets":"10.16.0.0/12","excludeSubnets":"10.16.9.0/24"`,
		"10.16.0.0/14": `"topology":"layer3","subnets":"10.16.0.0/12/14","excludeSubnets":"10.16.9.0/24"`,
	} {
		t.Run(served, func(t *testing.T) {
			const anything = `,"routerGuests":[{"namespace":"web","subnets":"0.0.0.0/0"}]`
			w, a := newWorld(t), newAPI()
			before := connect(t, w.Endpoint())
			before.SetWidestIPAM(8)
			first := runAs(t, w, before, a, leads)
			first.apply("shop/blue", spec(net4+onR1+anything))
			first.apply("web/green", spec(wide+onShopR1))
			first.wantState(t, "web/green", "ready, held")
			first.stop()

			r := run(t, w, a)
			r.apply("shop/blue", spec(net4+onR1))
			// Back on the router it would be a new configuration, to which the bound applies.
			r.wantState(t, "web/green", "refused: excludeSubnets: "+served+tooWide+", held")
			rows := r.rows(t)
			for _, row := range slices.Concat(slices.Collect(maps.Values(rows["Logical_Router_Port"])), slices.Collect(maps.Values(rows["Logical_Router_Static_Route"]))) {
				if strings.Contains(row["external_ids"], "ovn-multinet/network=web/green") && strings.Contains(row["external_ids"], "ovn-multinet/router=shop/r1") {
					t.Errorf("it is on the router still: %v", row)
				}
			}
			if got := ext(rows["Logical_Switch"][greenKey], "ovn-multinet/config"); got != networkIn(t, "web", "green", wide).Canonical() {
				t.Errorf("its accepted configuration is %s", got)
			}
		})
	}
}

// An agent goes by the controller's bound and not by the default: the controller has nothing to mend in a node's switch.
func TestBoundaryAgentsKnowTheBound(t *testing.T) {
	n := network(t, "blue", `"topology":"layer3","subnets":"10.0.0.0/8/12","excludeSubnets":"10.0.9.0/24,10.16.9.0/24,10.32.0.0/11,10.64.0.0/10,10.128.0.0/9"`)
	for _, tt := range []struct {
		accepted, now int
		served        bool
	}{{8, 8, true}, {8, 14, false}, {8, conf.DefaultWidestIPAM, false}, {conf.DefaultWidestIPAM, 8, true}} {
		t.Run(sprint("accepted at %d, now %d", tt.accepted, tt.now), func(t *testing.T) {
			w := newWorld(t)
			controller := w.other(t)
			for _, bits := range []int{tt.accepted, tt.now} {
				controller.SetWidestIPAM(bits)
				if _, err := controller.Ensure(withLimit(t), n, []string{"shop/blue"}); err != nil && bits == tt.now {
					t.Fatal(err)
				}
			}
			share(t, w.networks, n, "n1")
			if got := w.rows(t)["Logical_Switch"][ovndb.SwitchKey("shop/blue@n1")]["other_config"]; (got != "") != tt.served {
				t.Errorf("an agent has OVN's allocator serve %q, want it served: %t", got, tt.served)
			}
			if ensure(t, controller, n) {
				t.Error("the controller has something to mend")
			}
		})
	}
}

// What another hand gives to OVN's allocator is taken from it.
func TestBoundaryAllocatorsSubnetIsMended(t *testing.T) {
	w := newWorld(t)
	n := network(t, "blue", net4)
	ensure(t, w.networks, n)
	w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"other_config": ovndbtest.Map(map[string]string{"subnet": "32.0.0.0/3"})})
	if !ensure(t, w.networks, n) || w.otherConfigs(t) != 0 {
		t.Errorf("other_config has %d bytes still", w.otherConfigs(t))
	}
}
