package ovndb

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// The keys are in databases that live longer than a release: a change of them would lease every address twice.
func TestKeysStayAsTheyAre(t *testing.T) {
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x2a}
	tests := []struct{ name, got, want string }{
		{"switch", SwitchKey("shop/blue"), "a6a817f4-450b-8854-87d2-bc6c8a4d80f1"},
		{"router", RouterKey("shop"), "e03d1b5c-6e0f-83d1-b64d-b9fa77bfd279"},
		{"router's port", RouterPortKey("shop/blue"), "a3600f27-d8eb-8c2b-a07a-9ca5966ca553"},
		{"ipv4", AddressKey("shop/blue", netip.MustParseAddr("10.1.0.7")), "e9d87121-d98d-8d2a-bc9a-631d9116d53a"},
		{"ipv6", AddressKey("shop/blue", netip.MustParseAddr("fd01::7")), "0d448fc2-a0bc-8944-ac65-b1d98674a1b5"},
		{"mac", MACKey("shop/blue", mac), "b72f7757-24a7-805a-b5bb-2c188ea7af82"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

// Open vSwitch's C library takes the first 32 bits of a UUID as its hash: rows whose keys share them share one bucket.
// The keys of one network share no first word at all, and those of many networks share about as few as random keys do.
func TestKeysSpread(t *testing.T) {
	addresses := func(book string, n int) []string {
		var keys []string
		for i := range n {
			keys = append(keys, AddressKey(book, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})))
		}
		return keys
	}
	tests := []struct {
		name    string
		keys    func() []string
		repeats int // of first words; random keys have n*n/2^33
	}{
		{"the addresses of a /16", func() []string { return addresses("shop/blue", 1<<16) }, 0},
		{"the first addresses of an IPv6 subnet", func() (keys []string) {
			for i := range 1 << 16 {
				keys = append(keys, AddressKey("shop/blue", netip.AddrFrom16([16]byte{0xfd, 1, 14: byte(i >> 8), 15: byte(i)})))
			}
			return keys
		}, 0},
		{"MACs", func() (keys []string) {
			for i := range 1 << 16 {
				keys = append(keys, MACKey("shop/blue", Low32MAC(uint32(i), false)))
			}
			return keys
		}, 0},
		{"256 networks with the same /24", func() (keys []string) {
			for n := range 256 {
				keys = append(keys, addresses(fmt.Sprint("shop/n", n), 256)...)
			}
			return keys
		}, 8},
		{"both families and the MACs of two networks", func() (keys []string) {
			for _, book := range []string{"shop/blue", "physical:provider:100"} {
				for i := range 1 << 13 {
					keys = append(keys, AddressKey(book, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})),
						AddressKey(book, netip.AddrFrom16([16]byte{0xfd, 1, 14: byte(i >> 8), 15: byte(i)})), MACKey(book, Low32MAC(uint32(i), false)))
				}
			}
			return keys
		}, 8},
		{"what has one key per name", func() (keys []string) {
			for i := range 1 << 13 {
				name := fmt.Sprint("shop/n", i)
				keys = append(keys, SwitchKey(name), RouterKey(name), GatewayKey(name), RouterPortKey(name), NodeKey(name),
					PartKey("localnet", name), PartKey("route back4", name), NodeSubnetKey(name, netip.MustParsePrefix("10.128.0.0/24")))
			}
			return keys
		}, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys := tt.keys()
			words, buckets := map[uint32]int{}, map[uint32]int{}
			for _, key := range keys {
				word := firstWord(t, key)
				words[word]++
				buckets[word&0xffff]++ // as a hash table of 65,536 buckets does
			}
			if repeats := len(keys) - len(words); repeats > tt.repeats {
				t.Errorf("%d of %d keys have the first word of another, want at most %d", repeats, len(keys), tt.repeats)
			}
			longest := slices.Max(slices.Collect(maps.Values(buckets)))
			// 65,536 random keys: the longest of as many buckets holds 8 or 9.
			if longest > 12 {
				t.Errorf("one bucket of 65,536 holds %d of %d keys", longest, len(keys))
			}
			t.Attr("keys.distinct-first-words", fmt.Sprint(len(words)))
			t.Attr("keys.longest-bucket", fmt.Sprint(longest))
		})
	}
}

// The lease can be computed back from a first word, so no two leases of one address book have one key.
func FuzzMixCanBeUndone(f *testing.F) {
	for _, x := range []uint32{0, 1, 0x0a010007, 0x80000000, 0xffffffff} {
		f.Add(x)
	}
	f.Fuzz(func(t *testing.T, x uint32) {
		y := mix(x)
		y ^= y >> 16
		y *= 0x7ed1b41d // the inverse of 0xc2b2ae35 modulo 2^32
		y ^= y>>13 ^ y>>26
		y *= 0xa5cb9243 // the inverse of 0x85ebca6b
		if y ^= y >> 16; y != x {
			t.Errorf("mix(%#x) is undone to %#x", x, y)
		}
	})
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
		add("gateway of "+network, GatewayKey(network))
		add("part of "+network, PartKey("localnet", network))
		for _, a := range []string{"10.1.0.7", "10.1.0.8", "11.1.0.7", "fd01::0a01:7", "fd02::0a01:7", "::0a01:7", "::ffff:10.1.0.9", "0.0.0.0", "::"} {
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
		{"IPv6 beyond", "fd01::/64", "fd01::1:0:7", "0a:59:b8:40:8a:5e", true},
		{"IPv6 far beyond", "fd01::/64", "fd01::ffff:0:0:7", "0a:59:41:92:f7:fc", true},
		{"IPv4 on a wire", "", "10.1.0.7", "0a:58:0a:01:00:07", false},
		{"IPv6 on a wire", "", "fd01::7", "0a:59:e4:70:53:ec", true},
		{"IPv6 of a small subnet", "fd01::1:0:0/126", "fd01::1:0:2", "0a:58:00:00:00:02", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var subnet netip.Prefix
			if tt.subnet != "" {
				subnet = netip.MustParsePrefix(tt.subnet)
			}
			mac, claimed := LeaseMAC(subnet, netip.MustParseAddr(tt.address))
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

// The MACs of addresses that people and programs number in some order hardly ever meet, whichever bits are counted up.
func TestLeaseMACsOfManyAddresses(t *testing.T) {
	const many = 50_000
	subnet := netip.MustParsePrefix("fd51:0:0:1::/64")
	for name, host := range map[string]func(i uint64) uint64{
		"one host of each /96":      func(i uint64) uint64 { return i<<32 | 1 },
		"the hosts of one /96":      func(i uint64) uint64 { return 1<<32 + i },
		"the hosts of one /80":      func(i uint64) uint64 { return 1<<48 + i<<16 + i },
		"made from a vendor's MACs": func(i uint64) uint64 { return 0x0250_56ff_fe00_0000 + i },
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for i := range uint64(many) {
				b := subnet.Addr().As16()
				binary.BigEndian.PutUint64(b[8:], host(i+1))
				a := netip.AddrFrom16(b)
				mac, claimed := LeaseMAC(subnet, a)
				if !claimed || mac[0]&3 != 2 { // unicast, locally administered
					t.Fatalf("%v: %v, claimed %t", a, mac, claimed)
				}
				seen[mac.String()] = true
			}
			// Of 50,000 random numbers of 32 bits, 0.3 repeat another.
			if repeats := many - len(seen); repeats > 3 {
				t.Errorf("%d of %d addresses have the MAC of another", repeats, many)
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
		if got := Low32MAC(low, false); got.String() != want || !IsLeaseMAC(got) {
			t.Errorf("%#x: %s, want %s", low, got, want)
		}
		want = strings.Replace(want, "58", "59", 1)
		if got := Low32MAC(low, true); got.String() != want || IsLeaseMAC(got) {
			t.Errorf("%#x, wide: %s, want %s", low, got, want)
		}
	}
}

func firstWord(t *testing.T, key string) uint32 {
	t.Helper()
	u, err := uuid.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint32(u[:])
}
