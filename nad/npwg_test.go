package nad

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// The annotations have the names of multi-net-spec 1.3, sections 4.1 and 5, whatever our constants say.
// Conformance: N-14 N-94
func TestAnnotationsOfTheSpecification(t *testing.T) {
	for form, text := range map[string]string{"short": "blue,infra/red", "JSON": `[{"name":"blue"},{"name":"red","namespace":"infra"}]`} {
		got, err := ParseRequests(map[string]string{"k8s.v1.cni.cncf.io/networks": text}, "shop", "eth0")
		if want := "shop/blue@net1; infra/red@net2"; err != nil || show(got) != want {
			t.Errorf("%s: got %s, %v; want %s", form, show(got), err, want)
		}
	}
	if StatusAnnotation != "k8s.v1.cni.cncf.io/network-status" {
		t.Errorf("the status goes to %s", StatusAnnotation)
	}
}

// Names are of DNS-1123 units (multi-net-spec 1.3, section 3.3).
// Conformance: N-6
func TestUnitsOfAName(t *testing.T) {
	for _, name := range []string{"a..b", "a.-b", "a-.b", "a.b-.c", ".a", "a."} {
		got, err := ParseRequests(networks(name), "shop", "eth0")
		if err == nil {
			t.Errorf("taken as %s", show(got))
			continue
		}
		wantRefusal(t, err, `annotation k8s.v1.cni.cncf.io/networks: entry 0: "`+name+`" cannot be the name of a NetworkAttachmentDefinition`)
	}
}

// An IPAMClaim has the addresses: ips beside it is an error (multi-net-spec 1.3, section 4.1.2.1.11).
// Conformance: N-85
func TestIPAMClaimBesideAddresses(t *testing.T) {
	got, err := ParseRequests(networks(`[{"name":"blue","ips":["10.1.0.7"],"ipam-claim-reference":"vm.blue"}]`), "shop", "eth0")
	if err == nil {
		t.Fatalf("taken as %s", show(got))
	}
	wantRefusal(t, err, `annotation k8s.v1.cni.cncf.io/networks: entry 0: ips beside ipam-claim-reference: the IPAMClaim has the `+
		`addresses; its spec.ipRequests names them`)
}

// TestIPAMClaimOfNetworks: a network without allowPersistentIPs refuses an IPAMClaim, also a second interface with the same
// one is refused, on whatever network, and a delegate is not told: KubeVirt's webhook names one for each network that has the key.
// Conformance: N-84
func TestIPAMClaimOfNetworks(t *testing.T) {
	for config, want := range map[string]string{
		`{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet","allowPersistentIPs":true}`: "interfaces net1 and net2 both ask for " +
			"IPAMClaim vm.blue",
		`{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet"}`: "interface net1: ipam-claim-reference on network shop/blue: the " +
			"network lets no address outlive its pod; its key allowPersistentIPs does",
		`{"cniVersion":"1.0.0","name":"x","type":"macvlan"}`: "",
	} {
		for _, second := range []string{"blue", "red"} {
			requests, err := ParseRequests(networks(`[{"name":"blue","ipam-claim-reference":"vm.blue"},`+
				`{"name":"`+second+`","ipam-claim-reference":"vm.blue"}]`), "shop", "eth0")
			if err != nil {
				t.Fatal(err)
			}
			list, err := Resolve(t.Context(), "shop", requests, Rules{}, func(_ context.Context, _, name string) (*netmodel.NAD, error) {
				return &netmodel.NAD{Namespace: "shop", Name: name, Config: netmodel.ParseConfig("shop", name, config, len(config))}, nil
			})
			switch {
			case want == "" && err == nil:
				if text := string(list[0].Delegate.Conflist) + fmt.Sprint(list[0].Delegate.Capabilities, list[0].Delegate.Args); strings.Contains(text, "vm.blue") {
					t.Errorf("the delegate gets %s", text)
				}
			case want == "" || err == nil || !strings.HasPrefix(err.Error(), want):
				t.Errorf("%s: %v, want %q", config, err, want)
			}
		}
	}
}

// A limit of nothing is none (multi-net-spec 1.3, section 4.1.2.1.8).
// Conformance: N-63 N-64 N-65 N-66
func TestBandwidthIsNotZero(t *testing.T) {
	for _, key := range []string{"ingressRate", "ingressBurst", "egressRate", "egressBurst"} {
		values := map[string]int{"ingressRate": 1, "ingressBurst": 2, "egressRate": 3, "egressBurst": 4}
		values[key] = 0
		bandwidth, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseRequests(networks(`[{"name":"blue","bandwidth":`+string(bandwidth)+`}]`), "shop", "eth0")
		if err == nil {
			t.Errorf("%s is taken as %+v", bandwidth, got[0].Bandwidth)
			continue
		}
		wantRefusal(t, err, "annotation k8s.v1.cni.cncf.io/networks: entry 0: bandwidth."+key+": 0 is not more than 0")
	}
}

// oddResults are those of plugins that tell much, little, oddly and in old forms.
var oddResults = map[string]string{
	"all that there is": `{"cniVersion":"1.1.0","interfaces":[{"name":"br0","mac":"02:00:00:00:00:01"},{"name":"net1","mac":"02:00:00:00:00:02","mtu":1400,"sandbox":"/x"}],
		"ips":[{"address":"10.9.0.7/24","interface":1},{"address":"10.9.0.1/24","interface":0}],
		"dns":{"nameservers":["10.9.0.2"],"domain":"a.example","search":["b.example"],"options":["ndots:1"]},"routes":[{"dst":"0.0.0.0/0"}]}`,
	"nothing":           `{"cniVersion":"1.0.0"}`,
	"another interface": `{"cniVersion":"1.0.0","interfaces":[{"name":"vf3","mac":"02:00:00:00:00:02","sandbox":"/x"}]}`,
	"no name":           `{"cniVersion":"1.0.0","interfaces":[{"mac":"02:00:00:00:00:02","sandbox":"/x"}]}`,
	"none in the pod":   `{"cniVersion":"0.3.1","interfaces":[{"name":"vf3","mac":"02:00:00:00:00:02"}],"ips":[{"version":"4","address":"10.9.0.7/24"}]}`,
	"the oldest":        `{"cniVersion":"0.2.0","ip4":{"ip":"10.9.0.7/24"},"dns":{}}`,
}

// Every entry of the status keeps the rules of multi-net-spec 1.3, section 5.3, whatever a plugin's result was. The keys
// mtu and gateway, and options of dns, are those that the specification's own library writes beside its text.
// Conformance: N-105 N-106 N-107 N-117 N-120
func TestStatusEntries(t *testing.T) {
	keys := []string{"name", "interface", "ips", "mac", "default", "dns", "default-route", "device-info", "mtu", "gateway"}
	ofDNS := []string{"nameservers", "domain", "search", "options"}
	for name, text := range oddResults {
		t.Run(name, func(t *testing.T) {
			entries := statusOfResult(t, text)
			if len(entries) != 3 {
				t.Fatalf("%d entries, want the primary network's, a delegate's and an OVN network's", len(entries))
			}
			for i, e := range entries {
				if want := []string{"cbr0", "shop/ext", "shop/blue"}[i]; e["name"] != want {
					t.Errorf("entry %d: name %v, want %s", i, e["name"], want)
				}
				if (e["default"] == true) != (i == 0) {
					t.Errorf("entry %d: default %v", i, e["default"])
				}
				if e["mac"] != nil && (e["interface"] == nil || e["interface"] == "") {
					t.Errorf("entry %d: a MAC without its interface: %v", i, e)
				}
				wantKeys(t, e, keys)
				if dns, ok := e["dns"].(map[string]any); ok {
					wantKeys(t, dns, ofDNS)
				}
			}
		})
	}
}

// statusOfResult is the status of a pod whose primary network and whose delegate have this result.
func statusOfResult(t *testing.T, text string) (entries []map[string]any) {
	t.Helper()
	r, err := create.CreateFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	result, err := types100.GetResult(r)
	if err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(Status("cbr0", "eth0", result, []Attached{
		{Network: "shop/ext", Interface: "net1", Result: result, Gateways: []netip.Addr{netip.MustParseAddr("10.9.0.1")}},
		{Network: "shop/blue", Interface: "net2", MAC: "0a:58:0a:01:00:07", MTU: 1400, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24")}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(status, &entries); err != nil {
		t.Fatal(err)
	}
	return entries
}

func wantKeys(t *testing.T, object map[string]any, known []string) {
	t.Helper()
	for key := range object {
		if !slices.Contains(known, key) {
			t.Errorf("key %q is in %v", key, object)
		}
	}
}
