package agent

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// What an agent remembers of addresses that hosts outside use has bounds: a time, a number, and a number of networks.
func TestUsedOutside(t *testing.T) {
	u := newUsedOutside()
	passed := time.Duration(0)
	begun := time.Now()
	u.now = func() time.Time { return begun.Add(passed) }
	first, second := netip.MustParseAddr("10.9.0.7"), netip.MustParseAddr("10.9.0.8")
	want := func(network, want string) {
		t.Helper()
		if got := fmt.Sprint(u.of(network)); got != want {
			t.Errorf("of %s %s, want %s", network, got, want)
		}
	}
	u.add("shop/wire", first)
	passed = usedFor - 1
	u.add("shop/wire", second)
	want("shop/wire", "[10.9.0.7 10.9.0.8]")
	want("shop/blue", "[]")
	u.add("shop/wire", first) // again
	want("shop/wire", "[10.9.0.8 10.9.0.7]")
	passed += usedFor
	want("shop/wire", "[]")
	if len(u.all) != 0 {
		t.Errorf("kept: %v", u.all)
	}
	a := first
	for range maxUsed + 1 {
		u.add("shop/wire", a)
		a = a.Next()
	}
	if got := u.of("shop/wire"); len(got) != maxUsed || got[0] != second {
		t.Errorf("%d addresses from %s on", len(got), got[0])
	}
	for i := range maxUsedNets {
		u.add(fmt.Sprint("shop/", i), first)
	}
	if len(u.all) != maxUsedNets {
		t.Errorf("%d networks", len(u.all))
	}
}
