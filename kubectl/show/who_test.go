package show

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// TestWho: also outside addresses of pods and of Services, and what an IPAMClaim has without a pod, have a holder; two
// networks may have one address; nothing is called free that the client cannot know; and a hostile name stays in its cell.
func TestWho(t *testing.T) {
	address := netip.MustParseAddr
	list := []Network{
		{Name: "shop/blue", Router: "/core", Gateway: &Gateway{Addresses: []string{"192.0.2.10/24"}, Nodes: []string{"n1"}},
			Subnets: []Subnet{{Subnet: netip.MustParsePrefix("10.1.0.0/24"), Gateway: address("10.1.0.1")}},
			Ports:   []Port{{Name: "a", Namespace: "shop", Pod: "a", Interface: "net1", Node: "n2", MAC: "0a:58:0a:01:00:07", Addresses: []netip.Addr{address("10.1.0.7")}}}},
		{Name: "web/blue", Router: "/core", Gateway: &Gateway{Addresses: []string{"192.0.2.10/24"}, Nodes: []string{"n1"}},
			Subnets:    []Subnet{{Subnet: netip.MustParsePrefix("10.1.0.0/16"), Gateway: address("10.1.0.1")}},
			IPAMClaims: []IPAMClaim{{Name: "web/vm.net", MAC: "0a:58:0a:01:00:07", Addresses: []netip.Addr{address("10.1.0.7")}}}},
	}
	entry := func(user outside.User, kind outside.Kind, a string) *outside.Entry {
		return &outside.Entry{Key: outside.Key{Router: "/core", User: user}, Kind: kind, Addresses: []outside.Address{{Addr: address(a)}}}
	}
	entries := []*outside.Entry{
		entry(outside.User{Namespace: "shop", Pod: "a", Interface: "net1"}, outside.Floating, "192.0.2.17"),
		entry(outside.User{Namespace: "shop", Service: "web"}, outside.Floating, "192.0.2.18"),
		entry(outside.User{Namespace: "shop", Service: "web\nrouter /core  pod"}, outside.Floating, "192.0.2.19"),
	}
	list = append(list, Network{Name: "shop/seen", Subnets: []Subnet{{Subnet: netip.MustParsePrefix("10.5.0.0/24"), uncounted: true}}})
	virtual, err := netmodel.ParseNetwork("shop", "pair", []byte(`{"type":"ovn-multinet","subnets":"10.6.0.0/24",`+
		`"virtualAddresses":[{"address":"10.6.0.9","selector":{"app":"a","tier":"b"}}],`+
		`"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.6.0.5,10.6.0.6"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, Network{Name: "shop/pair", Subnets: []Subnet{{Subnet: virtual.Subnets[0]}}, network: virtual})
	for what, want := range map[string][]string{
		"10.6.0.9":          {"network shop/pair pods shop with app=a,tier=b virtual address -"},
		"10.60.7.7":         {"network shop/pair pods shop behind them: 10.60.0.0/16 via 10.6.0.5 and 10.6.0.6 (pods of shop) -"},
		"10.5.0.9":          {"network shop/seen unknown no pod that you may see has it -"},
		"10.1.0.7":          {"network shop/blue pod shop/a/net1 - n2", "network web/blue ipamclaim web/vm.net no pod has its port -"},
		"0a:58:0a:01:00:07": {"network shop/blue pod shop/a/net1 - n2", "network web/blue ipamclaim web/vm.net no pod has its port -"},
		"10.1.9.9":          {"network web/blue nobody free -"},
		"192.0.2.10":        {"router /core router /core address of the gateway n1"},
		"192.0.2.17":        {"router /core pod shop/a/net1 floating address -"},
		"192.0.2.18":        {"router /core service shop/web outside address -"},
		"192.0.2.19":        {`router /core service shop/web router /core pod outside address -`},
	} {
		found, err := Who(list, entries, what)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var text bytes.Buffer
		if err := Holders(&text, found); err != nil {
			t.Error(err)
		}
		var lines []string
		for line := range strings.Lines(text.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if got := fmt.Sprintf("%q", lines[1:]); got != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %s, want %q", what, got, want)
		}
	}
}
