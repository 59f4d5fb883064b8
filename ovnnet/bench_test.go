package ovnnet

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// BenchmarkWanted makes the rows that a network should have. Each pass over a network does this.
func BenchmarkWanted(b *testing.B) {
	network, err := netmodel.ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/24,fd01::/64",
		"router":"core","routes":[{"dst":"10.2.0.0/24"}],"dhcp":true,"virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a"}}],
		"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.5,10.1.0.6"}]}`))
	if err != nil {
		b.Fatal(err)
	}
	store := nbrows.NewStore(nil)
	n := New(store, gateway.New(store, nil), 16)
	have := &present{id: network.ID(), networkRows: networkRows{own: &nbrows.Switch{Guards: map[string]*nb.ACL{}}, claims: &nbrows.BookClaims{}}}
	nads := []string{"shop/blue"}
	b.ReportAllocs()
	for b.Loop() {
		n.wanted(have, network, "shop", nads)
	}
}
