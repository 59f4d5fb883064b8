package nad

import (
	"context"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// A pod of the namespace shop, and networks of others.
// Conformance: N-146 N-147 F-8
func TestIsolation(t *testing.T) {
	const (
		short = "blue,infra/blue"
		json  = `[{"name":"blue"},{"name":"blue","namespace":"infra","interface":"x"}]`
	)
	isolated := Rules{Isolated: true}
	refused := func(interfaceName string) string {
		return "interface " + interfaceName + ": network infra/blue is not for pods of namespace shop"
	}
	tests := []struct {
		name  string
		text  string
		rules Rules
		want  string // the error
	}{
		{"off", short, Rules{}, ""},
		{"its own", "blue,shop/blue,shop/bridge", isolated, ""},
		{"its own by name", `[{"name":"blue","namespace":"shop"}]`, isolated, ""},
		{"another's", short, isolated, refused("net2")},
		{"another's, in JSON", json, isolated, refused("x")},
		{"another's that is not there", "infra/gone", isolated, "interface net1: network infra/gone is not for pods of namespace shop"},
		{"a global one's", short, Rules{Isolated: true, Global: []string{"default", "infra"}}, ""},
		{"a global one's, in JSON", json, Rules{Isolated: true, Global: []string{"infra"}}, ""},
		{"another global one", short, Rules{Isolated: true, Global: []string{"default", "infra2", ""}}, refused("net2")},
		{"global, yet not isolated", short, Rules{Global: []string{"default"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, asked, err := resolveBy(t, tt.rules, tt.text)
			if tt.want == "" {
				if err != nil || len(got) == 0 {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("taken as %+v", got)
			}
			code, msg, details := conf.Describe(err)
			if code != conf.CodeNotAllowed || msg != tt.want || details == "" {
				t.Errorf("got  %d %s (%s)\nwant 102 %s", code, msg, details, tt.want)
			}
			// Whether it exists is not the pod's business.
			if asked["infra/blue"]+asked["infra/gone"] != 0 {
				t.Errorf("read: %v", asked)
			}
		})
	}
}

// The pod's namespace counts, not what its annotation says.
func TestIsolationIsByThePodsNamespace(t *testing.T) {
	get, _ := getter(cluster)
	_, err := Resolve(context.Background(), "infra", []Request{{Namespace: "shop", Name: "blue", Interface: "net1"}}, Rules{Isolated: true}, get)
	if !conf.HasCode(err, conf.CodeNotAllowed) {
		t.Errorf("a pod of infra on shop/blue: %v", err)
	}
}

// What an OVN network cannot do is said, and why.
// Conformance: N-43 N-56 N-69 N-79
func TestKeysThatOVNNetworksRefuse(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"portMappings", `[{"name":"blue","portMappings":[{"hostPort":1,"containerPort":1}]}]`,
			"interface net1: portMappings on network shop/blue: the host has no address on an OVN network to map a port of"},
		{"bandwidth", `[{"name":"mac"},{"name":"mac","bandwidth":{"egressRate":1}}]`, "interface net2: bandwidth on network shop/mac: it is not served on OVN networks"},
		{"GUID", `[{"name":"blue","infiniband-guid":"24:8a:07:03:00:8d:ae:2f"}]`, "interface net1: infiniband-guid on network shop/blue: an OVN port is Ethernet"},
		{"cni-args", `[{"name":"blue","cni-args":{"a":1}}]`, "interface net1: cni-args on network shop/blue: an OVN port knows securityProfiles alone"},
		{"cni-args beside profiles", `[{"name":"blue","cni-args":{"a":1,"securityProfiles":["web"]}}]`, "interface net1: cni-args on network shop/blue: an OVN port knows securityProfiles alone"},
		{"profiles on another plugin's network", `[{"name":"bridge","cni-args":{"securityProfiles":["web"]}}]`,
			"interface net1: cni-args: securityProfiles on network shop/bridge: only ports of OVN networks have security profiles"},
		{"cni-args that are empty", `[{"name":"shared","cni-args":{}}]`, "interface net1: cni-args on network l2: an OVN port knows securityProfiles alone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := resolveBy(t, Rules{Compatible: true}, tt.text)
			if err == nil {
				t.Fatalf("taken as %+v", got)
			}
			wantRefusal(t, err, tt.want)
		})
	}
}

// Plugins know of addresses what we do not: the same one twice is theirs to refuse.
func TestDelegatesBesideOVN(t *testing.T) {
	nads := map[string]string{"shop/blue": cluster["shop/blue"], "shop/ext": `{"type":"x","capabilities":{"ips":true,"mac":true}}`}
	requests, err := ParseRequests(networks(`[{"name":"ext","ips":["10.1.0.7"]},{"name":"blue","ips":["10.1.0.7"]},{"name":"ext","ips":["10.1.0.7"]}]`), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	get, asked := getter(nads)
	got, err := Resolve(context.Background(), "shop", requests, Rules{}, get)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, ovn := range []bool{false, true, false} {
		if (got[i].Network != nil) != ovn || (got[i].Delegate != nil) == ovn {
			t.Errorf("attachment %d: %+v", i, got[i])
		}
	}
	if asked["shop/ext"] != 1 {
		t.Errorf("read: %v", asked)
	}
}
