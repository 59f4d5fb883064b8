package ovndb

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"testing"
)

// The keys are in databases that live longer than a release: a change of them would lease every address twice.
func TestKeysStayAsTheyAre(t *testing.T) {
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x2a}
	tests := []struct{ name, got, want string }{
		{"switch", SwitchKey("shop/blue"), "a6a817f4-450b-8854-87d2-bc6c6616da21"},
		{"ipv4", AddressKey("shop/blue", netip.MustParseAddr("10.1.0.7")), "2b1d1c15-d98d-8d2a-bc9a-631d0a010007"},
		{"ipv6", AddressKey("shop/blue", netip.MustParseAddr("fd01::7")), "158d2106-a0bc-8944-ac65-b1d900000007"},
		{"mac", MACKey("shop/blue", mac), "bf50ba0b-24a7-805a-b5bb-2c180000002a"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestLeaseIsTheLowerBits(t *testing.T) {
	tests := []struct {
		key  string
		want uint32
	}{
		{AddressKey("a/b", netip.MustParseAddr("10.1.0.7")), 0x0a010007},
		{AddressKey("a/b", netip.MustParseAddr("255.255.255.255")), 0xffffffff},
		{AddressKey("a/b", netip.MustParseAddr("fd01::1:2")), 0x00010002},
		{MACKey("a/b", net.HardwareAddr{2, 0, 1, 2, 3, 4}), 0x01020304},
	}
	for _, tt := range tests {
		if got, err := Low32(tt.key); err != nil || got != tt.want {
			t.Errorf("%s: %#x, %v; want %#x", tt.key, got, err, tt.want)
		}
	}
	if _, err := Low32("no key"); err == nil {
		t.Error("Low32 of what is no UUID gives no error")
	}
}

// Two things are one key only if they are one thing.
func TestKeysTellThingsApart(t *testing.T) {
	v8 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]string{}
	add := func(what, key string) {
		t.Helper()
		if !v8.MatchString(key) {
			t.Errorf("%s: %s is no UUID of version 8", what, key)
		}
		if other := seen[key]; other != "" {
			t.Errorf("%s and %s have the key %s", what, other, key)
		}
		seen[key] = what
	}
	for _, network := range []string{"a/b", "a/bc", "ab/c", "shop/blue"} {
		add("switch "+network, SwitchKey(network))
		// The address whose lower bits are those of the switch's key.
		low, err := Low32(SwitchKey(network))
		if err != nil {
			t.Fatal(err)
		}
		same := netip.AddrFrom4([4]byte{byte(low >> 24), byte(low >> 16), byte(low >> 8), byte(low)})
		add(fmt.Sprint(network, " ", same), AddressKey(network, same))
		for _, a := range []string{"10.1.0.7", "10.1.0.8", "11.1.0.7", "fd01::0a01:7", "fd02::0a01:7", "::0a01:7", "::ffff:10.1.0.9"} {
			add(fmt.Sprint(network, " ", a), AddressKey(network, netip.MustParseAddr(a)))
		}
		for _, m := range []string{"0a:58:0a:01:00:07", "0a:59:0a:01:00:07", "02:00:0a:01:00:07"} {
			hw, err := net.ParseMAC(m)
			if err != nil {
				t.Fatal(err)
			}
			add(network+" "+m, MACKey(network, hw))
		}
	}
}
