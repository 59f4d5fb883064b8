package ovnnet_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// However wide the subnets of a namespace are: OVN's allocator gets none that it could hand out nothing of.
func TestBoundaryWideSubnetsCostOVNNothing(t *testing.T) {
	w := nbtest.NewWorld(t)
	for i := range 40 {
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, nbtest.Sprint("wide%d", i), `"subnets":"32.0.0.0/3"`))
	}
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "whole", `"subnets":"10.0.0.0/8/12","topology":"layer3"`))
	if got := w.OtherConfigs(t); got != 0 {
		t.Errorf("the switches have %d bytes of other_config, want none", got)
	}
	t.Attr("boundary.other-config-bytes", strconv.Itoa(w.OtherConfigs(t)))
}

// A subnet that OVN's allocator would serve is no wider than the operator says; a wider one is refused and leaves
// nothing.
func TestBoundarySubnetOfOVNsAllocatorIsBounded(t *testing.T) {
	w := nbtest.NewWorld(t)
	for name, tt := range map[string]struct{ keys, refused string }{
		"layer2 at the bound":  {`"subnets":"10.1.0.0/16","excludeSubnets":"10.1.9.0/24"`, ""},
		"layer2 beyond it":     {`"subnets":"32.0.0.0/3","excludeSubnets":"33.0.0.0/8"`, "excludeSubnets: 32.0.0.0/3" + nbtest.TooWide},
		"layer3 of narrow":     {`"topology":"layer3","subnets":"10.0.0.0/8/24","excludeSubnets":"10.1.9.0/26"`, ""},
		"layer3 at the bound":  {`"topology":"layer3","subnets":"10.0.0.0/8/16","excludeSubnets":"10.1.9.0/26"`, ""},
		"layer3 of wide":       {`"topology":"layer3","subnets":"10.0.0.0/8/15","excludeSubnets":"10.1.9.0/26"`, "excludeSubnets: 10.0.0.0/15" + nbtest.TooWide},
		"localnet beyond it":   {nbtest.Localnet("phys", `,"subnets":"10.0.0.0/15","excludeSubnets":"10.1.9.0/24"`), "excludeSubnets: 10.0.0.0/15" + nbtest.TooWide},
		"IPv6 has no bound":    {`"subnets":"fd01::/64","excludeSubnets":"fd01::1:0/112"`, ""},
		"excluded in IPv6":     {`"subnets":"32.0.0.0/3,fd01::/64","excludeSubnets":"fd01::1:0/112"`, ""},
		"beside a wide family": {`"subnets":"10.1.0.0/16,fd01::/64","excludeSubnets":"fd01::1:0/112,10.1.9.0/24"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.Clear(t)
			n := nbtest.Network(t, "blue", tt.keys)
			if tt.refused == "" {
				if !nbtest.Ensure(t, w.Networks, n) {
					t.Error("changed is false")
				}
				return
			}
			w.WantRefused(t, n, tt.refused)
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
	t.Run("the operator's bound", func(t *testing.T) {
		w.Clear(t)
		n := nbtest.Network(t, "blue", `"subnets":"10.0.0.0/8","excludeSubnets":"10.1.9.0/24"`)
		wider := nbtest.Connect(t, w.Proxy.Endpoint())
		wider = wider.WithIPAM(8)
		nbtest.Ensure(t, wider, n)
		const served = "exclude_ips=10.0.0.1 10.0.0.2..10.1.8.255 10.1.10.0..10.255.255.254 subnet=10.0.0.0/8"
		if got := w.Rows(t)["Logical_Switch"][nbtest.BlueKey]["other_config"]; got != served {
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
			w := nbtest.NewWorld(t)
			n := nbtest.Network(t, "blue", keys)
			before := nbtest.Connect(t, w.Endpoint())
			before = before.WithIPAM(1)
			nbtest.Ensure(t, before, n)
			part := nbtest.BlueKey
			if n.Topology == netmodel.Layer3 {
				part = ovndb.SwitchKey("shop/blue@n1")
				nbtest.Share(t, before, n, "n1")
			}
			was := w.Rows(t)
			if was["Logical_Switch"][part]["other_config"] == "" {
				t.Fatal("OVN's allocator does not serve it before")
			}
			if !nbtest.Ensure(t, w.Networks, n) {
				t.Error("changed is false")
			}
			delete(was["Logical_Switch"][part], "other_config")
			own := was["Logical_Switch"][nbtest.BlueKey]
			own["external_ids"] = strings.ReplaceAll(own["external_ids"], " ovn-multinet/widest-ipam-subnet=1", "")
			w.WantRows(t, was)
			if nbtest.Ensure(t, w.Networks, n) {
				t.Error("it is changed again")
			}
			width := map[string]int{netmodel.Layer2: 8, netmodel.Layer3: 12}[n.Topology]
			w.WantRefused(t, nbtest.Network(t, "blue", keys+`,"mtu":1400`), nbtest.Sprint("excludeSubnets: 10.0.0.0/%d%s", width, nbtest.TooWide))
		})
	}
}

// An agent goes by the controller's bound and not by the default: the controller has nothing to mend in a node's switch.
func TestBoundaryAgentsKnowTheBound(t *testing.T) {
	n := nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.0.0.0/8/12","excludeSubnets":"10.0.9.0/24,10.16.9.0/24,10.32.0.0/11,10.64.0.0/10,10.128.0.0/9"`)
	for _, tt := range []struct {
		accepted, now int
		served        bool
	}{{8, 8, true}, {8, 14, false}, {8, conf.DefaultWidestIPAM, false}, {conf.DefaultWidestIPAM, 8, true}} {
		t.Run(nbtest.Sprint("accepted at %d, now %d", tt.accepted, tt.now), func(t *testing.T) {
			w := nbtest.NewWorld(t)
			controller := w.Other(t)
			for _, bits := range []int{tt.accepted, tt.now} {
				controller = controller.WithIPAM(bits)
				if _, err := controller.Ensure(nbtest.WithLimit(t), n, []string{"shop/blue"}); err != nil && bits == tt.now {
					t.Fatal(err)
				}
			}
			nbtest.Share(t, w.Networks, n, "n1")
			if got := w.Rows(t)["Logical_Switch"][ovndb.SwitchKey("shop/blue@n1")]["other_config"]; (got != "") != tt.served {
				t.Errorf("an agent has OVN's allocator serve %q, want it served: %t", got, tt.served)
			}
			if nbtest.Ensure(t, controller, n) {
				t.Error("the controller has something to mend")
			}
		})
	}
}

// What another hand gives to OVN's allocator is taken from it.
func TestBoundaryAllocatorsSubnetIsMended(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := nbtest.Network(t, "blue", nbtest.Net4)
	nbtest.Ensure(t, w.Networks, n)
	w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"other_config": ovndbtest.Map(map[string]string{"subnet": "32.0.0.0/3"})})
	if !nbtest.Ensure(t, w.Networks, n) || w.OtherConfigs(t) != 0 {
		t.Errorf("other_config has %d bytes still", w.OtherConfigs(t))
	}
}
