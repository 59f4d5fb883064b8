package nad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// config writes a spec.config of an OVN network.
func config(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return `{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet"` + keys + `}`
}

// cluster is the NADs of most tests.
var cluster = map[string]string{
	"shop/blue":     config(`"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.128/25"`),
	"shop/dual":     config(`"subnets":"fd01::/64,10.2.0.0/16"`),
	"shop/mac":      config(""),
	"infra/blue":    config(`"subnets":"10.1.0.0/24"`),
	"shop/routed":   config(`"subnets":"10.3.0.0/24","routes":[{"dst":"192.0.2.0/24"},{"dst":"198.51.100.0/24","gw":"10.3.0.9"}]`),
	"shop/rival":    config(`"subnets":"10.4.0.0/24","routes":[{"dst":"192.0.2.0/24"}]`),
	"shop/narrower": config(`"subnets":"10.5.0.0/24","routes":[{"dst":"192.0.2.0/25"}]`),
	"shop/bridge":   `{"cniVersion":"1.0.0","name":"x","type":"bridge"}`,
	"shop/list":     `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge"},{"type":"ovn-multinet"}]}`,
	"shop/notype":   `{"cniVersion":"1.0.0","name":"x"}`,
	"shop/null":     "null",
	"shop/empty":    "",
	"shop/words":    "blue",
	"shop/typo":     config(`"subnet":"10.1.0.0/24"`),
	"shop/shared":   `{"cniVersion":"0.3.1","name":"l2","type":"ovn-k8s-cni-overlay","topology":"layer2","subnets":"10.6.0.0/24","netAttachDefName":"shop/shared"}`,
	"infra/shared":  `{"cniVersion":"0.3.1","name":"l2","type":"ovn-k8s-cni-overlay","topology":"layer2","subnets":"10.6.0.0/24","netAttachDefName":"infra/shared"}`,
	"shop/primary":  `{"cniVersion":"0.3.1","name":"l2","type":"ovn-k8s-cni-overlay","topology":"layer2","role":"primary"}`,
}

// getter serves NADs and counts how often each is asked for.
func getter(nads map[string]string) (get func(context.Context, string, string) (*netmodel.NAD, error), asked map[string]int) {
	asked = map[string]int{}
	return func(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
		id := namespace + "/" + name
		asked[id]++
		text, found := nads[id]
		if !found {
			return nil, fmt.Errorf("%s: %w", id, netmodel.ErrNotFound)
		}
		return nadOf(namespace, name, text), nil
	}, asked
}

// resolve is Select and Resolve of a pod in the namespace shop.
func resolve(t testing.TB, text string) ([]Attachment, map[string]int, error) {
	t.Helper()
	return resolveBy(t, Rules{}, text)
}

func resolveBy(t testing.TB, rules Rules, text string) ([]Attachment, map[string]int, error) {
	t.Helper()
	requests, err := ParseRequests(networks(text), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	get, asked := getter(cluster)
	attachments, err := Resolve(context.Background(), "shop", requests, rules, get)
	return attachments, asked, err
}

func TestResolve(t *testing.T) {
	tests := []struct {
		name string
		text string
		want string // as show has it, with the network's ID behind the interface
	}{
		{"none", "", ""},
		{"one", "blue", "shop/blue@net1"},
		{"of two namespaces", "blue,infra/blue", "shop/blue@net1; infra/blue@net2"},
		{"one network twice", "blue,mac,blue", "shop/blue@net1; shop/mac@net2; shop/blue@net3"},
		{"fixed address gets its prefix length", `[{"name":"blue","ips":["10.1.0.7"]}]`, "shop/blue@net1 10.1.0.7/24"},
		{"prefix length as it is", `[{"name":"blue","ips":["10.1.0.7/24"]}]`, "shop/blue@net1 10.1.0.7/24"},
		{"both families, in the user's order", `[{"name":"dual","ips":["fd01::7","10.2.0.7"]}]`, "shop/dual@net1 fd01::7/64,10.2.0.7/16"},
		{"two of one family", `[{"name":"blue","ips":["10.1.0.7","10.1.0.6"]}]`, "shop/blue@net1 10.1.0.7/24,10.1.0.6/24"},
		{"MAC only network with a prefix length", `[{"name":"mac","ips":["10.9.0.7/29"]}]`, "shop/mac@net1 10.9.0.7/29"},
		{"one address on two networks", `[{"name":"blue","ips":["10.1.0.7"]},{"name":"blue","namespace":"infra","ips":["10.1.0.7"]}]`,
			"shop/blue@net1 10.1.0.7/24; infra/blue@net2 10.1.0.7/24"},
		{"one MAC on two networks", `[{"name":"blue","mac":"02:00:00:00:00:01"},{"name":"mac","mac":"02:00:00:00:00:01"}]`,
			"shop/blue@net1 02:00:00:00:00:01; shop/mac@net2 02:00:00:00:00:01"},
		{"ovn-kubernetes' NADs", `[{"name":"shared","ips":["10.6.0.7"]},{"name":"shared","namespace":"infra","ips":["10.6.0.8/24"]}]`,
			"shop/shared@net1 10.6.0.7/24; infra/shared@net2 10.6.0.8/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, asked, err := resolve(t, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			var requests []Request
			for _, a := range got {
				requests = append(requests, a.Request)
				if a.Network.NAD() != a.String() || a.Refusal != "" {
					t.Errorf("%s has network %s, refused: %q", &a.Request, a.Network.NAD(), a.Refusal)
				}
			}
			if show(requests) != tt.want {
				t.Errorf("got  %s\nwant %s", show(requests), tt.want)
			}
			for id, times := range asked {
				if times != 1 {
					t.Errorf("%s was read %d times", id, times)
				}
			}
		})
	}
}

// Conformance: N-29 N-30
func TestResolveRefuses(t *testing.T) {
	ips := func(network, list string) string { return `[{"name":"` + network + `","ips":[` + list + `]}]` }
	tests := []struct {
		name string
		text string
		code uint
		want string
	}{
		{"not found", "blue,gone", conf.CodeNetworkNotFound, "interface net2: network shop/gone is not found"},
		{"a list that chains it", "list", conf.CodeInvalidConfig, `interface net1: network shop/list: spec.config: plugins[1]: type: "ovn-multinet" is a network of its own, it cannot be chained: a list has it once, as its first plugin`},
		{"no type", "notype", conf.CodeInvalidConfig, `interface net1: network shop/notype: spec.config: "type" is missing`},
		{"null", "null,blue", conf.CodeInvalidConfig, `interface net1: network shop/null: spec.config: "type" is missing`},
		{"empty", "empty", conf.CodeInvalidConfig, `interface net1: network shop/empty: spec.config: not valid JSON: unexpected end of JSON input`},
		{"no JSON", "words", conf.CodeInvalidConfig, `interface net1: network shop/words: spec.config: not valid JSON: invalid character 'b' looking for beginning of value`},
		{"unknown key", "typo", conf.CodeInvalidConfig, `interface net1: network shop/typo: unknown key "subnet", did you mean "subnets"?`},

		{"outside", ips("blue", `"10.2.0.7"`), conf.CodeInvalidConfig, "interface net1: address 10.2.0.7 is outside the subnets 10.1.0.0/24 of network shop/blue"},
		{"of a family that the network has not", ips("blue", `"fd01::7"`), conf.CodeInvalidConfig, "interface net1: address fd01::7 is outside the subnets 10.1.0.0/24 of network shop/blue"},
		{"network address", ips("blue", `"10.1.0.0"`), conf.CodeInvalidConfig, "interface net1: address 10.1.0.0 is the network address of 10.1.0.0/24"},
		{"broadcast address", ips("dual", `"10.2.255.255"`), conf.CodeInvalidConfig, "interface net1: address 10.2.255.255 is the broadcast address of 10.2.0.0/16"},
		{"gateway", ips("dual", `"fd01::1"`), conf.CodeInvalidConfig, "interface net1: address fd01::1 is the gateway of network shop/dual"},
		{"excluded", ips("blue", `"10.1.0.200"`), conf.CodeInvalidConfig, "interface net1: address 10.1.0.200 is excluded by excludeSubnets 10.1.0.128/25 of network shop/blue"},
		{"prefix length of another subnet", ips("blue", `"10.1.0.6","10.1.0.7/16"`), conf.CodeInvalidConfig, "interface net1: ips: 10.1.0.7/16 has not the prefix length of its subnet 10.1.0.0/24"},
		{"prefix length 0", ips("blue", `"10.1.0.7/0"`), conf.CodeInvalidConfig, "interface net1: ips: 10.1.0.7/0 has not the prefix length of its subnet 10.1.0.0/24"},
		{"MAC only network, no prefix length", ips("mac", `"10.9.0.7"`), conf.CodeInvalidConfig, "interface net1: ips: 10.9.0.7 needs its prefix length, network shop/mac has no subnets"},

		{"one address twice", `[{"name":"blue","ips":["10.1.0.7"]},{"name":"mac"},{"name":"blue","ips":["10.1.0.8","10.1.0.7/24"]}]`,
			conf.CodeInvalidConfig, "interfaces net1 and net3 both ask for address 10.1.0.7 on network shop/blue"},
		{"ovn-kubernetes', of a role that is not served", "primary", conf.CodeInvalidConfig, `interface net1: network shop/primary: role: "primary" is not served, only "secondary": a pod's first interface stays with the primary network`},
		{"one address twice by two NADs of one network", `[{"name":"shared","ips":["10.6.0.7"]},{"name":"shared","namespace":"infra","ips":["10.6.0.7"]}]`,
			conf.CodeInvalidConfig, "interfaces net1 and net2 both ask for address 10.6.0.7 on network l2"},
		{"one MAC twice", `[{"name":"mac","mac":"02:00:00:00:00:01"},{"name":"mac","mac":"02-00-00-00-00-01","interface":"x"}]`,
			conf.CodeInvalidConfig, "interfaces net1 and x both ask for MAC 02:00:00:00:00:01 on network shop/mac"},
		{"one destination by two networks", "routed,blue,rival", conf.CodeInvalidConfig, "networks shop/routed and shop/rival both route 192.0.2.0/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := resolve(t, tt.text)
			if err == nil {
				t.Fatal("it is taken")
			}
			code, _, details := conf.Describe(err)
			if code != tt.code || details == "" || err.Error() != tt.want {
				t.Errorf("got  %d %s (details %q)\nwant %d %s", code, err, details, tt.code, tt.want)
			}
		})
	}
}

// What ails a source is not the network's fault: the error passes with its cause and without a code of ours.
func TestResolvePassesOtherErrors(t *testing.T) {
	down := errors.New("connection refused")
	_, err := Resolve(context.Background(), "shop", []Request{{Namespace: "shop", Name: "blue", Interface: "net1"}}, Rules{},
		func(context.Context, string, string) (*netmodel.NAD, error) { return nil, down })
	if !errors.Is(err, down) || err.Error() != "interface net1: network shop/blue: connection refused" {
		t.Errorf("error %v", err)
	}
	if code, _, _ := conf.Describe(err); code != conf.CodeInternal {
		t.Errorf("code %d", code)
	}
}

func TestResolveStopsAtTheFirstFault(t *testing.T) {
	_, asked, err := resolve(t, "gone,blue")
	if err == nil || asked["shop/blue"] != 0 {
		t.Errorf("%v; read: %v", err, asked)
	}
}

// The kernel takes a route once: the first interface on a network gets its routes.
func TestRoutesAreOnTheFirstInterface(t *testing.T) {
	routes := func(rs []conf.Route) string {
		var words []string
		for _, r := range rs {
			words = append(words, r.Dst.String()+" via "+r.GW.String())
		}
		return strings.Join(words, ", ")
	}
	const two = "192.0.2.0/24 via 10.3.0.1, 198.51.100.0/24 via 10.3.0.9"
	tests := []struct {
		name string
		text string
		want []string // by interface
	}{
		{"no routes", "blue", []string{""}},
		{"one interface", "routed", []string{two}},
		{"two interfaces on it", "blue,routed,routed", []string{"", two, ""}},
		{"a network between them", "routed,blue,routed", []string{two, "", ""}},
		{"another network with a part of the destination", "routed,narrower", []string{two, "192.0.2.0/25 via 10.5.0.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			attachments, _, err := resolve(t, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range attachments {
				got = append(got, routes(a.Routes))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func FuzzResolve(f *testing.F) {
	for _, keys := range slices.Sorted(maps.Values(cluster)) {
		f.Add("n,n", keys, false)
		f.Add(`[{"name":"n","ips":["10.1.0.7","fd01::7/64"],"mac":"02:00:00:00:00:01"},{"name":"n","ips":["10.3.0.7/24"]}]`, keys, true)
	}
	f.Add("n", `{"type":1}`, false)
	f.Add("n", `{"type":"ovn-multinet","routes":[null]}`, false)
	f.Add(`[{"name":"n","cni-args":{"a":1e400},"mac":"02:00:00:00:00:01"}]`, `{"plugins":[{"type":"x","capabilities":{"mac":true},"args":{"cni":{"a":2}}},{"type":"y"}]}`, false)
	f.Add(`[{"name":"n","cni-args":{"securityProfiles":["a"]}}]`, `{"type":"ovn-multinet","securityProfiles":["b"]}`, false)
	f.Add(`[{"name":"n","ips":["10.1.0.7"],"default-route":[]}]`, `{"type":"x","disableCheck":"true","prevResult":{}}`, true)
	f.Fuzz(func(t *testing.T, text, config string, compatible bool) {
		requests, err := ParseRequests(networks(text), "shop", "eth0")
		if err != nil {
			return
		}
		attachments, err := Resolve(context.Background(), "shop", requests, Rules{Compatible: compatible}, always(config, netmodel.NAD{}))
		if err != nil {
			if code, _, _ := conf.Describe(err); code != conf.CodeInvalidConfig {
				t.Errorf("code %d: %v", code, err)
			}
			return
		}
		held := map[string]bool{}
		routed := map[netip.Prefix]bool{}
		for _, a := range attachments {
			if a.Delegate != nil {
				checkDelegate(t, &a)
				continue
			}
			checkAddresses(t, &a, held)
			for _, r := range a.Routes {
				if routed[r.Dst] {
					t.Errorf("%s is routed twice", r.Dst)
				}
				routed[r.Dst] = true
			}
		}
	})
}

// checkAddresses sees to an attachment's fixed addresses, of which held are the pod's others.
func checkAddresses(t *testing.T, a *Attachment, held map[string]bool) {
	t.Helper()
	for _, p := range a.IPs {
		if p.Bits() < 0 {
			t.Errorf("%s: no prefix length", p.Addr())
		}
		if i := a.Network.SubnetOf(p.Addr()); len(a.Network.Subnets) > 0 && !a.Network.Pool(i).Contains(p.Addr()) && below32(a.Network.Subnets[i], p.Addr()) {
			t.Errorf("%s is not of the pool of %v", p, a.Network)
		}
		if held[a.Network.ID()+p.Addr().String()] {
			t.Errorf("%s is asked for twice", p)
		}
		held[a.Network.ID()+p.Addr().String()] = true
	}
}

// checkDelegate holds a delegate against what libcni and the plugins demand.
func checkDelegate(t *testing.T, a *Attachment) {
	t.Helper()
	var list struct {
		CNIVersion string                       `json:"cniVersion"`
		Name       string                       `json:"name"`
		Plugins    []map[string]json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(a.Delegate.Conflist, &list); err != nil || a.Network != nil {
		t.Fatalf("%s: %v", a.Delegate.Conflist, err)
	}
	if !slices.Contains(cniVersions, list.CNIVersion) || list.Name == "" || strings.Contains(list.Name, "/") || len(list.Plugins) == 0 {
		t.Errorf("list %s", a.Delegate.Conflist)
	}
	for _, p := range list.Plugins {
		var kind string
		if err := json.Unmarshal(p["type"], &kind); err != nil || kind == "" || strings.ContainsAny(kind, "/\\\x00") || conf.IsOVN(kind) {
			t.Errorf("type %s", p["type"])
		}
		if p["runtimeConfig"] != nil || p["prevResult"] != nil {
			t.Errorf("keys of the runtime: %s", a.Delegate.Conflist)
		}
	}
	for key, value := range a.Delegate.Capabilities {
		if !json.Valid(value) {
			t.Errorf("%s: %s", key, value)
		}
	}
	for _, arg := range a.Delegate.Args {
		if strings.ContainsAny(arg[0]+arg[1], ";=") || a.Delegate.Warning == "" {
			t.Errorf("argument %q, warning %q", arg, a.Delegate.Warning)
		}
	}
}

// below32 reports whether an address is among the subnet's first 2^32, which is all that a pool holds.
func below32(subnet netip.Prefix, a netip.Addr) bool {
	if a.Is4() {
		return true
	}
	first, its := subnet.Addr().As16(), a.As16()
	return string(first[:12]) == string(its[:12])
}
