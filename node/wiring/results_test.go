package wiring

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// What the results say of default routes is what the kernel has: CHECK compares the two.
// Conformance: C-45 C-54
func TestCorrectResults(t *testing.T) {
	const (
		plain = `{"cniVersion":"1.0.0","x":12345678901234567890}`
		both  = `{"cniVersion":"1.0.0","routes":[{"dst":"0.0.0.0/0","gw":"10.9.0.1","mtu":1300},{"dst":"10.8.0.0/16","gw":"10.9.0.9","priority":7},{"dst":"::/0"}]}`
		none  = `{"cniVersion":"1.0.0","routes":[{"dst":"10.8.0.0/16","gw":"10.9.0.9","priority":7}]}`
	)
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	tests := []struct {
		name, result, byInterface string // which has the default routes
		moved                     []netip.Addr
		want                      string
	}{
		{"nobody asked for them", both, "", nil, none},
		{"another has them", both, "net9", addrs("10.1.0.1"), none},
		{"it has none", plain, "", nil, plain},
		{"there is no result", "null", "net1", addrs("10.1.0.1"), "null"},
		{"it has them by another gateway", both, "net1", addrs("10.9.0.2"), `{"cniVersion":"1.0.0","routes":[{"dst":"10.8.0.0/16","gw":"10.9.0.9","priority":7},{"dst":"0.0.0.0/0","gw":"10.9.0.2"}]}`},
		{"it has them since", plain, "net1", addrs("10.9.0.2", "fd09::2"), `{"cniVersion":"1.0.0","routes":[{"dst":"0.0.0.0/0","gw":"10.9.0.2"},{"dst":"::/0","gw":"fd09::2"}],"x":12345678901234567890}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &agentapi.Plan{Delegates: []agentapi.Delegate{{Name: "net1"}}}
			if tt.byInterface != "" {
				p.Default = &agentapi.Default{Interface: tt.byInterface}
			}
			results := []json.RawMessage{json.RawMessage(tt.result)}
			if err := CorrectResults(p, results, tt.moved); err != nil || string(results[0]) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", results[0], err, tt.want)
			}
		})
	}
}

// TestMovedDefaultInTheResult: the result is the one before, with the default route where it goes now (section 5, "ADD
// Success").
// Conformance: C-30 C-137 C-138 C-139
func TestMovedDefaultInTheResult(t *testing.T) {
	const before = `{"cniVersion":"1.0.0","dns":{"nameservers":["192.0.2.53"]},"interfaces":[{"name":"eth0","x":1}],"ips":[{"address":"10.244.1.2/24","gateway":"10.244.1.1"}],"routes":[%s{"dst":"10.96.0.0/12","mtu":1400}%s],"x-unknown":12345678901234567890}`
	prev := fmt.Sprintf(before, `{"dst":"0.0.0.0/0","gw":"10.244.1.1"},`, "")
	for want, moved := range map[string][]netip.Addr{
		prev: nil,
		fmt.Sprintf(before, "", `,{"dst":"0.0.0.0/0","gw":"10.1.0.1"}`): {netip.MustParseAddr("10.1.0.1")},
	} {
		if got, err := CorrectPrimaryResult(json.RawMessage(prev), moved); err != nil || string(got) != want {
			t.Errorf("%v: %v\ngot  %s\nwant %s", moved, err, got, want)
		}
	}
}
