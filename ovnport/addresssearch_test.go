package ovnport

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Whatever a subnet's size, a search proposes each of its addresses once before one comes again.
func TestSearchVisitsEveryAddressOnce(t *testing.T) {
	for _, keys := range []string{
		`"subnets":"10.1.0.0/30"`, // one address
		`"subnets":"10.1.0.0/29"`, `"subnets":"10.1.0.0/28"`, `"subnets":"10.1.0.0/24"`, `"subnets":"10.1.0.0/22"`,
		`"subnets":"10.1.0.0/24","gateway":"10.1.0.77","excludeSubnets":"10.1.0.0/28,10.1.0.128/25"`,
		`"subnets":"fd01::/120"`,
	} {
		n, err := netmodel.ParseNetwork("shop", "blue", []byte(`{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet",`+keys+`}`))
		if err != nil {
			t.Fatal(err)
		}
		starts := map[string]bool{}
		for i := range 50 {
			f := &search{pool: n.Pool(0), network: n.ID(), book: n.AddressBook(), seed: fmt.Sprint("shop/web-", i, "/net1")}
			seen := map[string]bool{}
			for !f.exhausted() {
				c := f.next()
				a := c.addr.Addr()
				if !n.Pool(0).Contains(a) {
					t.Fatalf("%s: %v is not leasable", keys, a)
				}
				if len(seen) == 0 {
					starts[a.String()] = true
				}
				seen[c.key] = true
			}
			if uint64(len(seen)) != n.Pool(0).Size() {
				t.Fatalf("%s: %d addresses proposed of %d", keys, len(seen), n.Pool(0).Size())
			}
		}
		// Pods begin all over the subnet, or they would get in each other's way.
		if want := min(int(n.Pool(0).Size()), 50) / 2; len(starts) < want {
			t.Errorf("%s: 50 pods begin at %d addresses, want %d at least", keys, len(starts), want)
		}
	}
}

func TestSearchOfMACs(t *testing.T) {
	f := &search{macs: true, network: "shop/blue", book: "shop/blue", seed: "shop/web-1/net1"}
	seen := map[string]bool{}
	for range 10_000 {
		c := f.next()
		if c.mac[0] != 0x0a || c.mac[1] != 0x58 || len(c.mac) != 6 || c.addr.IsValid() {
			t.Fatalf("candidate %+v", c)
		}
		seen[c.key] = true
	}
	if len(seen) != 10_000 || f.exhausted() {
		t.Errorf("%d MACs in 10,000 candidates, exhausted: %t", len(seen), f.exhausted())
	}
}
