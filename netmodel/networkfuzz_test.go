package netmodel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

func FuzzParseNetwork(f *testing.F) {
	for _, keys := range []string{
		"", `"subnets":"10.1.0.0/16,fd01::/64","gateway":"10.1.0.9","excludeSubnets":"10.1.128.0/17","mtu":1400,"portSecurity":false`,
		`"subnets":"10.1.0.0/30"`, `"subnets":"fd01::/126","routes":[{"dst":"fd02::/64","gw":"fd01::2"}]`, `"routes":[null]`,
		`"subnets":"10.1.0.0/29","excludeSubnets":"10.1.0.4/30,10.1.0.0/30"`, `"topology":"layer3"`, `"args":{}`, `"mtu":null,"mtu":1`,
		`"subnets":"10.1.0.0/16","router":"r1"`, `"subnets":"10.1.0.0/16","router":"r1","snat":false`, `"snat":true`, `"topology":"localnet"`,
		`"topology":"localnet","physicalNetworkName":"phys","vlanID":4094,"subnets":"10.1.0.0/16"`, `"vlanID":0,"topology":"localnet","physicalNetworkName":"a:b"`,
		`"topology":"layer3","subnets":"10.128.0.0/16/24,fd01::/32/64","excludeSubnets":"10.128.0.0/24","routes":[{"dst":"fd02::/64"}]`,
		`"topology":"layer3","subnets":"fd01::/125/126","router":"r1","snat":true`, `"topology":"layer3","subnets":"10.128.0.0/11/21"`,
		`"topology":"layer3","subnets":"10.128.0.0/16/99999999999999999999"`, `"topology":"layer3","subnets":"10.0.0.0/8/30/24"`,
		`"subnets":"10.1.0.0/31,fd01::/127"`, `"subnets":"10.1.0.0/16,fd01::/127"`, `"subnets":"10.1.0.0/31","routes":[{"dst":"10.2.0.0/16","gw":"10.1.0.1"}]`,
		`"securityProfiles":["web-only","db"]`, `"securityProfiles":[null]`, `"securityProfiles":{}`,
	} {
		f.Add(config(keys))
	}
	f.Add(overlay(`"subnets":"10.1.0.0/16","netAttachDefName":"shop/blue","role":"secondary"`))
	f.Add(overlay(`"topology":"layer3","subnets":"10.128.0.0/16/24,fd01::/48"`))
	f.Add(overlay(`"topology":"localnet","vlanID":7`))
	f.Add("null")
	f.Add("[]")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseNetwork("shop", "blue", []byte(text))
		if err != nil {
			code, msg, details := conf.Describe(err)
			if code != conf.CodeInvalidConfig || details == "" || strings.ContainsAny(err.Error(), "\r\n") || len(msg) > 1024 {
				t.Errorf("%d %q %q", code, msg, details)
			}
			return
		}
		checkNetwork(t, n)
	})
}

// checkNetwork is what the rest of the program relies on.
func checkNetwork(t *testing.T, n *Network) {
	t.Helper()
	if n.Topology == Layer3 {
		if len(n.Gateways) != 0 || len(n.Subnets) == 0 || len(n.NodeSubnetBits) != len(n.Subnets) {
			t.Fatalf("%d gateways, %d subnets, %d lengths of blocks", len(n.Gateways), len(n.Subnets), len(n.NodeSubnetBits))
		}
		checkBlocks(t, n)
	} else {
		if len(n.NodeSubnetBits) != 0 {
			t.Fatalf("%d lengths of blocks", len(n.NodeSubnetBits))
		}
		checkSubnets(t, n)
		checkRoutes(t, n)
		for i, s := range n.Subnets {
			if n.Pool(i).Size() == 0 {
				t.Errorf("nothing of %s can be leased", s)
			}
		}
	}
	if n.Router != "" && (len(n.Subnets) == 0 || n.Topology == Localnet) || n.Router == "" && n.SNAT != nil {
		t.Errorf("router %q, and nothing to route: %s", n.Router, show(n))
	}
	if (n.Topology == Localnet) != (n.Physical != "") || n.VLAN < 0 || n.VLAN > 4094 || n.Topology != Localnet && n.VLAN != 0 {
		t.Errorf("%s of %q, VLAN %d", n.Topology, n.Physical, n.VLAN)
	}
	if n.SharedName != "" && (strings.Contains(n.ID(), "/") || n.Router != "" || len(n.Routes) != 0) {
		t.Errorf("network %s of several NADs: %s", n.ID(), show(n))
	}
	if n.MTU != 0 && (n.MTU < 68 || n.MTU > 65535) {
		t.Errorf("mtu %d", n.MTU)
	}
}

// checkSubnets is of the subnets that pods see: a node's blocks, or the network's.
func checkSubnets(t *testing.T, n *Network) {
	t.Helper()
	gateways := len(n.Subnets)
	if slices.ContainsFunc(n.Subnets, PointToPoint) {
		gateways = 0
	}
	if len(n.Gateways) != gateways || len(n.Subnets) > 2 {
		t.Fatalf("%d gateways, %d subnets", len(n.Gateways), len(n.Subnets))
	}
	for i, s := range n.Subnets {
		pool, gateway := n.Pool(i), n.Gateway(i)
		if s != s.Masked() || s.Addr().Is4() != (i == 0 && s.Addr().BitLen() == 32) || gateway.IsValid() && !s.Contains(gateway) {
			t.Errorf("subnet %d is %s with gateway %s", i, s, gateway)
		}
		if gateway.IsValid() && pool.Contains(gateway) || pool.Contains(s.Addr()) && !PointToPoint(s) {
			t.Errorf("pool %v of %d", pool.Spans(), pool.Size())
		}
		if pool.Size() == 0 { // of a block that is excluded
			continue
		}
		for _, at := range []uint64{0, pool.Size() / 2, pool.Size() - 1} {
			if a := pool.At(at); !s.Contains(a) || !pool.Contains(a) || n.CheckFixed(a) != nil {
				t.Errorf("address %d of the pool is %s: %v", at, a, n.CheckFixed(a))
			}
		}
	}
}

// checkRoutes is of the routes that pods get.
func checkRoutes(t *testing.T, n *Network) {
	t.Helper()
	seen := map[netip.Prefix]bool{}
	for _, r := range n.Routes {
		if r.Dst != r.Dst.Masked() || r.Dst.Bits() == 0 || r.Dst.Addr().Is4() != r.GW.Is4() || n.SubnetOf(r.GW) < 0 || seen[r.Dst] ||
			slices.Contains(n.Subnets, r.Dst) {
			t.Errorf("route %v", r)
		}
		seen[r.Dst] = true
	}
}
