package netmodel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// list joins n words.
func listOf(n int, word func(i int) string) string {
	words := make([]string, n)
	for i := range words {
		words[i] = word(i)
	}
	return strings.Join(words, ",")
}

func excludes(n int) string {
	return `"subnets":"10.0.0.0/8","excludeSubnets":"` + listOf(n, func(i int) string { return fmt.Sprintf("10.%d.%d.0/30", 1+i/256, i%256) }) + `"`
}

func manyRoutes(n int) string {
	return `"subnets":"10.0.0.0/8","routes":[` + listOf(n, func(i int) string { return fmt.Sprintf(`{"dst":"172.%d.%d.0/24"}`, 16+i/256, i%256) }) + `]`
}

// A NAD may say so much and no more; what is at the bound is taken.
func TestBoundaryNetworkBounds(t *testing.T) {
	padding := func(bytes int) string {
		text := config(`"subnets":"10.0.0.0/8"`)
		return text + strings.Repeat(" ", bytes-len(text))
	}
	for name, tt := range map[string]struct{ text, want string }{
		"excludes at the bound": {config(excludes(MaxExclude)), ""},
		"routes at the bound":   {config(manyRoutes(MaxRoutes)), ""},
		"bytes at the bound":    {padding(MaxNetworkConfig), ""},
		"excludes beyond it":    {config(excludes(MaxExclude + 1)), "network shop/blue: excludeSubnets: 257 are more than 256"},
		"routes beyond it":      {config(manyRoutes(MaxRoutes + 1)), "network shop/blue: routes: 257 are more than 256"},
		"bytes beyond it":       {padding(MaxNetworkConfig + 1), "network shop/blue: spec.config: 16385 bytes are more than 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseNetwork("shop", "blue", []byte(tt.text))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want || !conf.HasCode(err, conf.CodeInvalidConfig)) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if tt.want == "" {
				return
			}
			// What was accepted by other bounds is read to the letter.
			n, err := ParseAccepted("shop", "blue", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseAccepted("shop", "blue", []byte(n.Canonical()))
			if err != nil || again.Revision() != n.Revision() {
				t.Errorf("the accepted configuration does not read back as it was: %v", err)
			}
		})
	}
}

// blocksByLooking goes from block to block, as the pool of each tells.
func blocksByLooking(n *Network, k uint64) (passed uint64) {
	for ; k < n.NodeSubnetCount(0); k++ {
		if n.ForNode("n", []netip.Prefix{n.NodeSubnet(0, k)}).Pool(0).Size() > 0 {
			break
		}
		passed++
	}
	return passed
}

// The arithmetic finds the block that a look at every block finds.
func TestBoundarySkipExcludedFindsWhatASearchFinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 3000 {
		subnet, bits := netip.MustParsePrefix("10.1.0.0/24"), 26+rng.IntN(5)
		if rng.IntN(2) == 0 {
			subnet, bits = netip.MustParsePrefix("fd01::/120"), 122+rng.IntN(5)
		}
		n := &Network{Topology: Layer3, Subnets: []netip.Prefix{subnet}, NodeSubnetBits: []int{bits}}
		for range rng.IntN(40) {
			a := addTo(subnet.Addr(), rng.Uint64N(256))
			size := a.BitLen() - rng.IntN(8)
			n.Exclude = append(n.Exclude, netip.PrefixFrom(a, size).Masked())
		}
		k := rng.Uint64N(n.NodeSubnetCount(0))
		want := blocksByLooking(n, k)
		if got := n.SkipExcluded(0, k); got != want {
			t.Fatalf("subnet %s, blocks /%d, without %v, from block %d: passed over %d, want %d", subnet, bits, n.Exclude, k, got, want)
		}
		if want > 0 {
			found++
		}
	}
	if found < 500 {
		t.Errorf("only %d cases pass over a block", found)
	}
}

// The search takes steps by the excluded ranges, not by the blocks that they cover.
func TestBoundarySkipExcludedSteps(t *testing.T) {
	halves := func(at string) string { return listOf(128, func(i int) string { return fmt.Sprintf(at, i) }) }
	for name, tt := range map[string]struct {
		keys   string
		passed uint64
	}{
		"one prefix of a billion blocks": {`"subnets":"fd01::/32/64","excludeSubnets":"fd01::/33"`, 1 << 31},
		// None of the prefixes has a whole block.
		"halves of blocks": {`"subnets":"10.0.0.0/16/24","excludeSubnets":"` + halves("10.0.%d.0/25") + "," + halves("10.0.%d.128/25") + `"`, 128},
		"prefixes side by side": {`"subnets":"10.0.0.0/8/24","excludeSubnets":"` +
			listOf(255, func(i int) string { return fmt.Sprintf("10.%d.0.0/16", i) }) + `"`, 255 << 8},
		"with gaps that no pod gets": {`"subnets":"10.0.0.0/8/29","excludeSubnets":"` +
			listOf(MaxExclude/2, func(i int) string { return fmt.Sprintf("10.0.0.%s", pair(i)) }) + `"`, 32},
	} {
		t.Run(name, func(t *testing.T) {
			n := layer3(t, tt.keys)
			passed, steps := n.skipExcluded(0, 0)
			if passed != tt.passed || steps > 2*len(n.Exclude)+1 {
				t.Errorf("passed over %d blocks in %d steps, want %d in %d at most", passed, steps, tt.passed, 2*len(n.Exclude)+1)
			}
			t.Attr("boundary.block-search-steps", strconv.Itoa(steps))
		})
	}
}

// pair excludes the leasable addresses of the i-th /29 in two prefixes, 2 to 3 and 4 to 7.
func pair(i int) string {
	at := 8 * (i / 2 % 32)
	if i%2 == 0 {
		return fmt.Sprintf("%d/31", at+2)
	}
	return fmt.Sprintf("%d/30", at+4)
}

// A pool of many ranges answers by halving, and as counting does.
func TestBoundaryPoolOfManyRanges(t *testing.T) {
	n := parse(t, `"subnets":"10.0.0.0/21","excludeSubnets":"`+listOf(MaxExclude, func(i int) string {
		return fmt.Sprintf("10.0.%d.%d/30", i*8/256, i*8%256)
	})+`"`)
	p := n.Pool(0)
	var all []netip.Addr
	for a := netip.MustParseAddr("10.0.0.0"); n.Subnets[0].Contains(a); a = a.Next() {
		free := a != n.Gateways[0] && a != n.Subnets[0].Addr() && a != LastAddr(n.Subnets[0]) &&
			!slices.ContainsFunc(n.Exclude, func(e netip.Prefix) bool { return e.Contains(a) })
		if p.Contains(a) != free {
			t.Fatalf("the pool contains %s: %t", a, !free)
		}
		if free {
			all = append(all, a)
		}
	}
	if p.Size() != uint64(len(all)) {
		t.Fatalf("size %d, want %d", p.Size(), len(all))
	}
	for i, want := range all {
		if got := p.At(uint64(i)); got != want {
			t.Fatalf("address %d is %s, want %s", i, got, want)
		}
	}
}
