package lab

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

func TestEchoOf(t *testing.T) {
	const (
		macs = "020000000002020000000001"
		four = "450000540000400040010000c0000201c000020a"
		six  = "60000000000840" // version to hop limit, but for the next header
		a, b = "20010db8000000000000000000000001", "20010db800000000000000000000000a"
	)
	v4 := Echo{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.10"), 0}
	v6 := Echo{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::a"), 0}
	in := func(e Echo, vlan int) Echo { e.VLAN = vlan; return e }
	icmp6 := "6000000000083a40" + a + b
	for _, test := range []struct {
		name, frame string
		beside      int
		want        Echo // zero: none
	}{
		{"IPv4", macs + "0800" + four + "0800", 0, v4},
		{"IPv4 with options", macs + "0800" + "46" + four[2:] + "00000000" + "0800", 0, v4},
		{"IPv6", macs + "86dd" + icmp6 + "8000", 0, v6},
		{"tag in the frame", macs + "8100602a" + "0800" + four + "0800", 0, in(v4, 42)},
		{"tag beside it", macs + "86dd" + icmp6 + "8000", 43, in(v6, 43)},
		{"reply", macs + "0800" + four + "0000", 0, Echo{}},
		{"reply of IPv6", macs + "86dd" + icmp6 + "8100", 0, Echo{}},
		{"UDP", macs + "0800" + strings.Replace(four, "4001", "4011", 1) + "0800", 0, Echo{}},
		{"ARP", macs + "0806" + four + "0800", 0, Echo{}},
		{"cut before the type", macs + "0800" + four, 0, Echo{}},
		{"cut in the header", macs + "0800" + four[:30], 0, Echo{}},
		{"cut in IPv6's header", macs + "86dd" + six, 0, Echo{}},
		{"cut in the tag", macs + "8100", 0, Echo{}},
		{"empty", "", 0, Echo{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			frame, err := hex.DecodeString(test.frame)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := echoOf(frame, test.beside); got != test.want || ok != (test.want != Echo{}) {
				t.Errorf("got %v, %t, want %v", got, ok, test.want)
			}
		})
	}
}
