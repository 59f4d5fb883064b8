package netmodel

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func spans(p Pool) string {
	var words []string
	for _, s := range p.Spans() {
		words = append(words, s.First.String()+".."+s.Last.String())
	}
	return strings.Join(words, " ")
}

func TestPool(t *testing.T) {
	tests := []struct {
		name string
		keys string
		size uint64
		want string
	}{
		{"/31", `"subnets":"10.1.0.2/31"`, 2, "10.1.0.2..10.1.0.3"},
		{"/31 less its first", `"subnets":"10.1.0.2/31","excludeSubnets":"10.1.0.2/32"`, 1, "10.1.0.3..10.1.0.3"},
		{"/31 less its last", `"subnets":"10.1.0.2/31","excludeSubnets":"10.1.0.3/32"`, 1, "10.1.0.2..10.1.0.2"},
		{"/127", `"subnets":"fd01::/127"`, 2, "fd01::..fd01::1"},
		{"/30", `"subnets":"10.1.0.0/30"`, 1, "10.1.0.2..10.1.0.2"},
		{"/30, gateway second", `"subnets":"10.1.0.0/30","gateway":"10.1.0.2"`, 1, "10.1.0.1..10.1.0.1"},
		{"/29", `"subnets":"10.1.0.8/29"`, 5, "10.1.0.10..10.1.0.14"},
		{"/29, gateway last", `"subnets":"10.1.0.8/29","gateway":"10.1.0.14"`, 5, "10.1.0.9..10.1.0.13"},
		{"/29, gateway within", `"subnets":"10.1.0.8/29","gateway":"10.1.0.11"`, 5, "10.1.0.9..10.1.0.10 10.1.0.12..10.1.0.14"},
		{"/29 less its end", `"subnets":"10.1.0.8/29","excludeSubnets":"10.1.0.12/30"`, 2, "10.1.0.10..10.1.0.11"},
		{"/29 less its beginning", `"subnets":"10.1.0.8/29","excludeSubnets":"10.1.0.8/30"`, 3, "10.1.0.12..10.1.0.14"},
		{"/29 less its broadcast", `"subnets":"10.1.0.8/29","excludeSubnets":"10.1.0.15/32"`, 5, "10.1.0.10..10.1.0.14"},
		{"/29 less one", `"subnets":"10.1.0.8/29","excludeSubnets":"10.1.0.12/32"`, 4, "10.1.0.10..10.1.0.11 10.1.0.13..10.1.0.14"},
		{"/29 less the gateway, twice said", `"subnets":"10.1.0.8/29","excludeSubnets":"10.1.0.9/32"`, 5, "10.1.0.10..10.1.0.14"},
		{"nested", `"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.70/32,10.1.0.64/26,10.1.0.72/29"`, 189,
			"10.1.0.2..10.1.0.63 10.1.0.128..10.1.0.254"},
		{"nested, the wide one first", `"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.64/26,10.1.0.64/32"`, 189,
			"10.1.0.2..10.1.0.63 10.1.0.128..10.1.0.254"},
		{"adjacent", `"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.128/26,10.1.0.64/26"`, 125,
			"10.1.0.2..10.1.0.63 10.1.0.192..10.1.0.254"},
		{"the same twice", `"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.128/25,10.1.0.128/25"`, 126, "10.1.0.2..10.1.0.127"},
		{"/16", `"subnets":"10.1.0.0/16"`, 1<<16 - 3, "10.1.0.2..10.1.255.254"},
		{"/5", `"subnets":"8.0.0.0/5"`, 1<<27 - 3, "8.0.0.2..15.255.255.254"},
		{"/126", `"subnets":"fd01::/126"`, 2, "fd01::2..fd01::3"},
		{"/126, gateway last", `"subnets":"fd01::/126","gateway":"fd01::3"`, 2, "fd01::1..fd01::2"},
		{"/120", `"subnets":"fd01::100/120"`, 254, "fd01::102..fd01::1ff"},
		{"/97", `"subnets":"fd01::8000:0/97"`, 1<<31 - 2, "fd01::8000:2..fd01::ffff:ffff"},
		{"/96", `"subnets":"fd01::/96"`, 1<<32 - 2, "fd01::2..fd01::ffff:ffff"},
		{"/95", `"subnets":"fd01::/95"`, 1<<32 - 2, "fd01::2..fd01::ffff:ffff"},
		{"/64", `"subnets":"fd01::/64"`, 1<<32 - 2, "fd01::2..fd01::ffff:ffff"},
		{"/64, gateway far up", `"subnets":"fd01::/64","gateway":"fd01::1:0:0:1"`, 1<<32 - 1, "fd01::1..fd01::ffff:ffff"},
		{"a range", `"subnets":"10.1.0.0/24","ranges":[{"from":"10.1.0.100","to":"10.1.0.199"}]`, 100, "10.1.0.100..10.1.0.199"},
		{"all as a range", `"subnets":"10.1.0.0/24","ranges":[{"from":"10.1.0.0","to":"10.1.0.255"}]`, 253, "10.1.0.2..10.1.0.254"},
		{"a range less a part", `"subnets":"10.1.0.0/24","ranges":[{"from":"10.1.0.100","to":"10.1.0.199"}],"excludeSubnets":"10.1.0.128/25"`, 28, "10.1.0.100..10.1.0.127"},
		{"a range of IPv6", `"subnets":"fd01::/64","ranges":[{"from":"fd01::1:0","to":"fd01::1:ff"}]`, 256, "fd01::1:0..fd01::1:ff"},
		{"a range of the other family", `"subnets":"10.1.0.0/29,fd01::/64","ranges":[{"from":"fd01::9","to":"fd01::9"}]`, 5, "10.1.0.2..10.1.0.6"},
		{"/64 less much", `"subnets":"fd01::/64","excludeSubnets":"fd01::8000:0/97,fd01:0:0:0:8000::/65,fd01::/112"`, 1<<31 - 1<<16, "fd01::1:0..fd01::7fff:ffff"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := parse(t, tt.keys).Pool(0)
			if p.Size() != tt.size || spans(p) != tt.want {
				t.Errorf("got  %d of %s\nwant %d of %s", p.Size(), spans(p), tt.size, tt.want)
			}
			if first, last := p.Spans()[0].First, p.Spans()[len(p.Spans())-1].Last; p.At(0) != first || p.At(p.Size()-1) != last {
				t.Errorf("At(0) is %s, At(size-1) is %s", p.At(0), p.At(p.Size()-1))
			}
		})
	}
}

func TestPoolsOfTwoFamilies(t *testing.T) {
	for _, tt := range []struct {
		keys string
		want []string
	}{
		{`"subnets":"10.1.0.0/29,fd01::/125","excludeSubnets":"10.1.0.4/30,fd01::4/126"`, []string{"10.1.0.2..10.1.0.3", "fd01::2..fd01::3"}},
		{`"subnets":"10.1.0.0/31,fd01::/64"`, []string{"10.1.0.0..10.1.0.1", "fd01::1..fd01::ffff:ffff"}}, // and no gateway
	} {
		n := parse(t, tt.keys)
		for i, want := range tt.want {
			if got := spans(n.Pool(i)); got != want {
				t.Errorf("%s: pool %d: %s, want %s", tt.keys, i, got, want)
			}
		}
	}
}

func TestAtBeyondThePoolPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	p := parse(t, `"subnets":"10.1.0.0/30"`).Pool(0)
	p.At(p.Size())
}

// A pool is what a loop over all addresses of the subnet finds, in this order.
func TestPoolIsWhatCountingFinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		n := randomNetwork(rng)
		subnet := n.Subnets[0]
		var leasable, dynamic []netip.Addr
		for a := subnet.Addr().Next(); subnet.Contains(a); a = a.Next() {
			if a == n.Gateways[0] || a.Is4() && !subnet.Contains(a.Next()) ||
				slices.ContainsFunc(n.Exclude, func(e netip.Prefix) bool { return e.Contains(a) }) {
				continue
			}
			leasable = append(leasable, a)
			if len(n.Ranges) == 0 || slices.ContainsFunc(n.Ranges, Span{a, a}.overlaps) {
				dynamic = append(dynamic, a)
			}
		}
		for _, tt := range []struct {
			pool Pool
			want []netip.Addr
		}{{n.Leasable(0), leasable}, {n.Pool(0), dynamic}} {
			var got []netip.Addr
			for i := range tt.pool.Size() {
				got = append(got, tt.pool.At(i))
			}
			if !slices.Equal(got, tt.want) {
				t.Fatalf("%s without %v and %s, ranges %v:\ngot  %v\nwant %v", subnet, n.Exclude, n.Gateways[0], n.Ranges, got, tt.want)
			}
			for a, past := subnet.Addr().Prev(), LastAddr(subnet).Next().Next(); a != past; a = a.Next() {
				if tt.pool.Contains(a) != slices.Contains(tt.want, a) {
					t.Fatalf("%s without %v and %s, ranges %v: Contains(%s) is %t", subnet, n.Exclude, n.Gateways[0], n.Ranges, a, tt.pool.Contains(a))
				}
			}
		}
	}
}

// randomNetwork has a subnet of 4 to 128 addresses with up to five excluded nets, which may overlap, and up to three ranges.
func randomNetwork(rng *rand.Rand) *Network {
	base := netip.MustParseAddr([]string{"10.1.255.128", "fd01::ffff:ff80", "fd01::ff:0:0"}[rng.IntN(3)])
	host := 2 + rng.IntN(6)
	subnet := netip.PrefixFrom(addTo(base, rng.Uint64N(128)), base.BitLen()-host).Masked()
	n := &Network{Subnets: []netip.Prefix{subnet}, Gateways: []netip.Addr{addTo(subnet.Addr(), 1+rng.Uint64N(1<<host-2))}}
	for range rng.IntN(6) {
		n.Exclude = append(n.Exclude, netip.PrefixFrom(addTo(subnet.Addr(), rng.Uint64N(1<<host)), subnet.Bits()+rng.IntN(host+1)).Masked())
	}
	for at, left := uint64(0), rng.IntN(4); left > 0 && at < 1<<host; left-- {
		first := at + rng.Uint64N(1<<host-at)
		last := first + rng.Uint64N(1<<host-first)
		n.Ranges, at = append(n.Ranges, Span{addTo(subnet.Addr(), first), addTo(subnet.Addr(), last)}), last+1
	}
	return n
}

func TestLastAddr(t *testing.T) {
	tests := []struct{ prefix, want string }{
		{"10.1.0.0/16", "10.1.255.255"},
		{"10.1.2.3/32", "10.1.2.3"},
		{"10.1.2.3/20", "10.1.15.255"},
		{"0.0.0.0/0", "255.255.255.255"},
		{"fd01::/64", "fd01::ffff:ffff:ffff:ffff"},
		{"fd01::/61", "fd01::7:ffff:ffff:ffff:ffff"},
		{"fd01::1/128", "fd01::1"},
	}
	for _, tt := range tests {
		if got := LastAddr(netip.MustParsePrefix(tt.prefix)); got.String() != tt.want {
			t.Errorf("%s: %s, want %s", tt.prefix, got, tt.want)
		}
	}
}

// 128 excluded nets are more than operators write.
func BenchmarkPool(b *testing.B) {
	var exclude []netip.Prefix
	for i := range uint64(128) {
		exclude = append(exclude, netip.PrefixFrom(addTo(netip.MustParseAddr("10.1.0.0"), i*512), 24))
	}
	n := &Network{Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Exclude: exclude,
		Gateways: []netip.Addr{netip.MustParseAddr("10.1.1.1")}}
	b.ReportAllocs()
	for b.Loop() {
		p := n.Pool(0)
		p.At(p.Size() - 1)
	}
}
