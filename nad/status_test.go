package nad

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

// result reads a CNI result as the chain hands it.
func result(t *testing.T, text string) *types100.Result {
	t.Helper()
	r := &types100.Result{CNIVersion: "1.0.0"}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Conformance: N-99 N-103 N-104 N-108 N-109 N-111 N-112 N-113 N-114 N-116 N-118 N-119 N-120 N-121 N-122 N-123
// Conformance: N-124
func TestStatus(t *testing.T) {
	const flannel = `{"cniVersion":"1.0.0","interfaces":[
		{"name":"cni0","mac":"02:00:00:00:00:01"},
		{"name":"veth0","mac":"02:00:00:00:00:02"},
		{"name":"eth0","mac":"02:00:00:00:00:03","mtu":1450,"sandbox":"/run/netns/x"}],
		"ips":[{"address":"10.244.1.7/24","gateway":"10.244.1.1","interface":2}]}`
	tests := []struct {
		name    string
		primary string
		made    []Attached
		want    string
	}{
		{"only the primary", flannel, nil,
			`[{"name":"cbr0","interface":"eth0","ips":["10.244.1.7"],"mac":"02:00:00:00:00:03","mtu":1450,"default":true,"dns":{}}]`},
		{"attachments in their order", flannel, []Attached{
			{Network: "shop/b", Interface: "net1", MAC: "0a:58:0a:01:00:07", MTU: 1400,
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24"), netip.MustParsePrefix("fd01::7/64")}},
			{Network: "shop/a", Interface: "net2", MAC: "0a:58:00:00:00:01", MTU: 1300},
		},
			`[{"name":"cbr0","interface":"eth0","ips":["10.244.1.7"],"mac":"02:00:00:00:00:03","mtu":1450,"default":true,"dns":{}},
			{"name":"shop/b","interface":"net1","ips":["10.1.0.7","fd01::7"],"mac":"0a:58:0a:01:00:07","mtu":1400,"default":false,"dns":{}},
			{"name":"shop/a","interface":"net2","mac":"0a:58:00:00:00:01","mtu":1300,"default":false,"dns":{}}]`},
		{"plugins behind ours name another interface, or none", flannel, []Attached{
			{Network: "shop/b", Interface: "net1", MAC: "0a:58:0a:01:00:07", MTU: 1400, Result: &types100.Result{
				Interfaces: []*types100.Interface{{Name: "other", Mac: "02:00:00:00:00:0b", Mtu: 9000, Sandbox: "/x"}}}},
			{Network: "shop/a", Interface: "net2"},
		},
			`[{"name":"cbr0","interface":"eth0","ips":["10.244.1.7"],"mac":"02:00:00:00:00:03","mtu":1450,"default":true,"dns":{}},
			{"name":"shop/b","interface":"net1","mac":"0a:58:0a:01:00:07","mtu":1400,"default":false,"dns":{}},
			{"name":"shop/a","interface":"net2","default":false,"dns":{}}]`},
		{"addresses by their interface", `{"interfaces":[{"name":"eth0","sandbox":"/x"},{"name":"eth1","sandbox":"/x"}],
			"ips":[{"address":"10.1.1.1/24","interface":1},{"address":"10.1.1.2/24","interface":0},{"address":"fd01::2/64","interface":0}]}`, nil,
			`[{"name":"cbr0","interface":"eth0","ips":["10.1.1.2","fd01::2"],"default":true,"dns":{}}]`},
		{"an address without an interface is the sandbox's", `{"interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.1.1.2/24"}]}`, nil,
			`[{"name":"cbr0","interface":"eth0","ips":["10.1.1.2"],"default":true,"dns":{}}]`},
		{"an index beyond the list", `{"interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.1.1.2/24","interface":7}]}`, nil,
			`[{"name":"cbr0","interface":"eth0","default":true,"dns":{}}]`},
		{"no interface in the sandbox", `{"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:03"}],"ips":[{"address":"10.1.1.2/24","interface":0}]}`, nil,
			`[{"name":"cbr0","interface":"eth0","default":true,"dns":{}}]`},
		{"no interfaces at all", `{"ips":[{"address":"10.1.1.2/24"}]}`, nil,
			`[{"name":"cbr0","interface":"eth0","ips":["10.1.1.2"],"default":true,"dns":{}}]`},
		{"an empty result", `{}`, nil, `[{"name":"cbr0","interface":"eth0","default":true,"dns":{}}]`},
		{"nulls in the lists", `{"interfaces":[null,{"name":"eth0","mac":"02:00:00:00:00:03","sandbox":"/x"}],"ips":[null,{"address":"10.1.1.2/24","interface":1}]}`, nil,
			`[{"name":"cbr0","interface":"eth0","ips":["10.1.1.2"],"mac":"02:00:00:00:00:03","default":true,"dns":{}}]`},
		{"default routes by an OVN network", flannel, []Attached{{Network: "shop/b", Interface: "net1", MAC: "0a:58:0a:01:00:07", MTU: 1400,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24")}, Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd01::1")}}},
			`[{"name":"cbr0","interface":"eth0","ips":["10.244.1.7"],"mac":"02:00:00:00:00:03","mtu":1450,"default":true,"dns":{}},
			{"name":"shop/b","interface":"net1","ips":["10.1.0.7"],"mac":"0a:58:0a:01:00:07","mtu":1400,"default":false,"dns":{},"gateway":["10.1.0.1","fd01::1"],"default-route":["10.1.0.1","fd01::1"]}]`},
		{"the interface of its name before another one in the sandbox", `{"interfaces":[{"name":"a","mac":"02:00:00:00:00:0a","sandbox":"/x"},{"name":"eth0","mac":"02:00:00:00:00:03","sandbox":"/x"}],
			"ips":[{"address":"10.1.1.1/24","interface":0},{"address":"10.1.1.2/24","interface":1}]}`, nil,
			`[{"name":"cbr0","interface":"eth0","ips":["10.1.1.2"],"mac":"02:00:00:00:00:03","default":true,"dns":{}}]`},
		{"the first in the sandbox when none has its name", `{"interfaces":[{"name":"veth0"},{"name":"a","mac":"02:00:00:00:00:0a","sandbox":"/x"},{"name":"b","mac":"02:00:00:00:00:0b","sandbox":"/x"}],
			"ips":[{"address":"10.1.1.1/24","interface":1},{"address":"10.1.1.2/24","interface":2},{"address":"10.1.1.3/24","interface":-1}]}`, nil,
			`[{"name":"cbr0","interface":"a","ips":["10.1.1.1","10.1.1.3"],"mac":"02:00:00:00:00:0a","default":true,"dns":{}}]`},
		{"the interface of its name is not in the sandbox", `{"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:03"},{"name":"a","sandbox":"/x"}]}`, nil,
			`[{"name":"cbr0","interface":"a","default":true,"dns":{}}]`},
		{"name servers", `{"dns":{"nameservers":["10.0.0.1"],"domain":"a","search":["b"],"options":["c"]}}`, nil,
			`[{"name":"cbr0","interface":"eth0","default":true,"dns":{"nameservers":["10.0.0.1"],"domain":"a","search":["b"],"options":["c"]}}]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status := Status("cbr0", "eth0", result(t, tt.primary), tt.made)
			got, err := json.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.NewReplacer("\n", "", "\t", "").Replace(tt.want); string(got) != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			for i, s := range status {
				if s.Default != (i == 0) {
					t.Errorf("entry %d: default %t", i, s.Default)
				}
				for _, ip := range s.IPs {
					if net.ParseIP(ip) == nil {
						t.Errorf("entry %d: ip %q", i, ip)
					}
				}
			}
		})
	}
}

// Results of delegates, in the forms that plugins give.
// Conformance: N-96 N-99 N-100 N-101 N-102 N-110 N-113 N-115 N-119 F-16
func TestStatusOfDelegates(t *testing.T) {
	const of100 = `{"cniVersion":"1.0.0","interfaces":[{"name":"br1","mac":"02:00:00:00:00:01"},{"name":"veth1","mac":"02:00:00:00:00:02"},
		{"name":"net1","mac":"02:00:00:00:00:03","mtu":1400,"sandbox":"/x"}],
		"ips":[{"address":"10.9.0.7/24","gateway":"10.9.0.1","interface":2},{"address":"fd09::7/64","interface":2},{"address":"10.9.0.1/24","interface":0}],
		"dns":{"nameservers":["10.9.0.2"]}}`
	// The version in between has "version" with its addresses.
	const of031 = `{"cniVersion":"0.3.1","interfaces":[{"name":"br1"},{"name":"net1","mac":"02:00:00:00:00:03","sandbox":"/x"}],
		"ips":[{"version":"4","address":"10.9.0.7/24","gateway":"10.9.0.1","interface":1}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}`
	// The oldest has no interfaces.
	const of020 = `{"cniVersion":"0.2.0","ip4":{"ip":"10.9.0.7/24","gateway":"10.9.0.1"},"ip6":{"ip":"fd09::7/64"},"dns":{}}`
	tests := []struct {
		name, result string
		gateways     []netip.Addr
		want         string
	}{
		{"1.0.0", of100, nil, `"name":"shop/ext","interface":"net1","ips":["10.9.0.7","fd09::7"],"mac":"02:00:00:00:00:03","mtu":1400,"default":false,"dns":{"nameservers":["10.9.0.2"]}`},
		{"0.3.1", of031, nil, `"name":"shop/ext","interface":"net1","ips":["10.9.0.7"],"mac":"02:00:00:00:00:03","default":false,"dns":{}`},
		{"0.2.0", of020, nil, `"name":"shop/ext","interface":"net1","ips":["10.9.0.7","fd09::7"],"default":false,"dns":{}`},
		{"default routes", of031, []netip.Addr{netip.MustParseAddr("10.9.0.9")},
			`"name":"shop/ext","interface":"net1","ips":["10.9.0.7"],"mac":"02:00:00:00:00:03","default":false,"dns":{},"gateway":["10.9.0.9"],"default-route":["10.9.0.9"]`},
		{"without interfaces", `{"cniVersion":"1.0.0"}`, nil, `"name":"shop/ext","interface":"net1","default":false,"dns":{}`},
		{"none in the sandbox", `{"cniVersion":"1.0.0","interfaces":[{"name":"vf0","mac":"02:00:00:00:00:03"}],"ips":[{"address":"10.9.0.7/24","interface":0},{"address":"10.9.0.8/24"}]}`, nil,
			`"name":"shop/ext","interface":"net1","ips":["10.9.0.8"],"default":false,"dns":{}`},
		{"no result", "", nil, `"name":"shop/ext","interface":"net1","default":false,"dns":{}`},
		{"no result, but default routes", "", []netip.Addr{netip.MustParseAddr("10.9.0.9")}, `"name":"shop/ext","interface":"net1","default":false,"dns":{},"gateway":["10.9.0.9"],"default-route":["10.9.0.9"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			made := Attached{Network: "shop/ext", Interface: "net1", Gateways: tt.gateways}
			if tt.result != "" {
				r, err := create.CreateFromBytes([]byte(tt.result))
				if err != nil {
					t.Fatal(err)
				}
				if made.Result, err = types100.GetResult(r); err != nil {
					t.Fatal(err)
				}
			}
			got, err := json.Marshal(Status("cbr0", "eth0", result(t, "{}"), []Attached{made, {Network: "shop/last", Interface: "net2"}}))
			if err != nil {
				t.Fatal(err)
			}
			want := `[{"name":"cbr0","interface":"eth0","default":true,"dns":{}},{` + tt.want + `},{"name":"shop/last","interface":"net2","default":false,"dns":{}}]`
			if string(got) != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
