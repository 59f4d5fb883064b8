package delegate

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/journal"
)

// What the results say of default routes is what the kernel has: CHECK compares the two.
// Conformance: C-45 C-54
func TestSettleResults(t *testing.T) {
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
			e := &journal.Entry{Summary: journal.Summary{Plan: p}, Results: []json.RawMessage{json.RawMessage(tt.result)}}
			if err := settleResults(e, tt.moved); err != nil || string(e.Results[0]) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", e.Results[0], err, tt.want)
			}
		})
	}
}
