package ovndb

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"testing"

	"github.com/google/uuid"
)

// The keys are in databases that live longer than a release: a change of them would lease every address twice.
func TestKeysStayAsTheyAre(t *testing.T) {
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x2a}
	tests := []struct{ name, got, want string }{
		{"switch", SwitchKey("shop/blue"), "a6a817f4-450b-8854-87d2-bc6c6616da21"},
		{"router", RouterKey("shop"), "e03d1b5c-6e0f-83d1-b64d-b9fa8d9001d3"},
		{"router's port", RouterPortKey("shop/blue"), "a3600f27-d8eb-8c2b-a07a-9ca56616da21"},
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
		if got, err := low32(tt.key); err != nil || got != tt.want {
			t.Errorf("%s: %#x, %v; want %#x", tt.key, got, err, tt.want)
		}
	}
	if _, err := low32("no key"); err == nil {
		t.Error("low32 of what is no UUID gives no error")
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
		add("router "+network, RouterKey(network))
		add("router's port of "+network, RouterPortKey(network))
		// The address whose lower bits are those of the switch's key.
		low, err := low32(SwitchKey(network))
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

// The MAC says which lease it is of, unless another lease can have the same lower 32 bits.
func TestLeaseMAC(t *testing.T) {
	tests := []struct {
		name            string
		subnet, address string
		want            string
		claimed         bool
	}{
		{"IPv4", "10.1.0.0/16", "10.1.0.7", "0a:58:0a:01:00:07", false},
		{"IPv4, highest", "255.0.0.0/8", "255.255.255.254", "0a:58:ff:ff:ff:fe", false},
		{"IPv6 among the subnet's first 2^32", "fd01::/64", "fd01::7", "0a:58:00:00:00:07", false},
		{"IPv6, the last of those", "fd01::/64", "fd01::ffff:ffff", "0a:58:ff:ff:ff:ff", false},
		{"IPv6 beyond", "fd01::/64", "fd01::1:0:7", "0a:59:00:00:00:07", true},
		{"IPv6 far beyond", "fd01::/64", "fd01::ffff:0:0:7", "0a:59:00:00:00:07", true},
		{"IPv6 of a small subnet", "fd01::1:0:0/126", "fd01::1:0:2", "0a:58:00:00:00:02", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mac, claimed := LeaseMAC(netip.MustParsePrefix(tt.subnet), netip.MustParseAddr(tt.address))
			if mac.String() != tt.want || claimed != tt.claimed {
				t.Errorf("got %s, claimed %t; want %s, %t", mac, claimed, tt.want, tt.claimed)
			}
			// A MAC that is claimed is one like any other: it belongs to nobody by its form.
			if IsLeaseMAC(mac) == claimed {
				t.Errorf("%s is of a lease alone: %t", mac, !claimed)
			}
		})
	}
}

func TestIsLeaseMAC(t *testing.T) {
	for text, want := range map[string]bool{
		"0a:58:00:00:00:00": true, "0a:58:ff:ff:ff:ff": true, "0a:59:00:00:00:07": false, "0a:57:00:00:00:07": false, "02:58:00:00:00:07": false,
	} {
		mac, err := net.ParseMAC(text)
		if err != nil {
			t.Fatal(err)
		}
		if IsLeaseMAC(mac) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
	if IsLeaseMAC(nil) {
		t.Error("no MAC is of a lease")
	}
}

func TestLow32MAC(t *testing.T) {
	for low, want := range map[uint32]string{0: "0a:58:00:00:00:00", 0x01020304: "0a:58:01:02:03:04", 0xffffffff: "0a:58:ff:ff:ff:ff"} {
		if got := Low32MAC(low); got.String() != want || !IsLeaseMAC(got) {
			t.Errorf("%#x: %s, want %s", low, got, want)
		}
	}
}

// low32 returns the lower 32 bits of a row key: the lease.
func low32(key string) (uint32, error) {
	u, err := uuid.Parse(key)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(u[12:]), nil
}
