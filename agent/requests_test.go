package agent

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Each mention of a network is an attachment of its own: an interface, a port with its own addresses and MAC, an
// entry in the status (multi-net-spec 1.3, section 4.2).
// Conformance: N-86 N-87
func TestOneNetworkTwice(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.planFor("c1", "blue,blue")
	r.must(err)
	if len(p.Interfaces) != 2 || p.Interfaces[0].Name != "net1" || p.Interfaces[1].Name != "net2" {
		t.Fatalf("interfaces %+v, want net1 and net2", p.Interfaces)
	}
	a, b := p.Interfaces[0], p.Interfaces[1]
	if a.Port.UUID == b.Port.UUID || a.MAC == b.MAC || len(a.Addresses) != 1 || len(b.Addresses) != 1 || a.Addresses[0] == b.Addresses[0] {
		t.Errorf("%+v\nand %+v share what each should have of its own", a, b)
	}
	if want := map[string]string{"shop/web/net1": "c1", "shop/web/net2": "c1"}; !maps.Equal(r.ports(), want) {
		t.Errorf("ports %v, want %v", r.ports(), want)
	}
	text, err := statusOf(&agentapi.BindRequest{Sandbox: r.sandbox("c1"), Plan: *p, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`)})
	r.must(err)
	var status []struct {
		Name, Interface, MAC string
		IPs                  []netip.Addr
	}
	r.must(json.Unmarshal(text, &status))
	if len(status) != 3 {
		t.Fatalf("status %s, want three entries", text)
	}
	for i, made := range p.Interfaces {
		e := status[i+1]
		if e.Name != "shop/blue" || e.Interface != made.Name || e.MAC != made.MAC || len(e.IPs) != 1 || e.IPs[0] != made.Addresses[0].Addr() {
			t.Errorf("entry %+v, want what %+v is", e, made)
		}
	}
}

// A pod's wishes for addresses and MAC are what its interface and its port have (multi-net-spec 1.3, sections
// 4.1.2.1.3 to 4.1.2.1.5).
// Conformance: N-24 N-33 N-38
func TestWishesForAnInterface(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.planFor("c1", `[{"name":"blue","interface":"data0","ips":["10.1.0.77","10.1.0.78/24"],"mac":"02:00:00:00:00:4d"}]`)
	r.must(err)
	if len(p.Interfaces) != 1 {
		t.Fatalf("plan %+v", p)
	}
	i := p.Interfaces[0]
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.77/24"), netip.MustParsePrefix("10.1.0.78/24")}
	if i.Name != "data0" || i.MAC != "02:00:00:00:00:4d" || !slices.Equal(i.Addresses, want) {
		t.Errorf("interface %+v, want data0 with %v", i, want)
	}
	r.wantRow(i)
}

// An annotation that the specification calls invalid, and lets be ignored, fails the pod before anything is made,
// though its first network is as it should be (multi-net-spec 1.3, section 4.1.2.1).
// Conformance: N-25 N-28 N-35 N-40 N-41 N-48 N-60 N-77 N-81
func TestInvalidAnnotationFailsThePod(t *testing.T) {
	r := newRig(t)
	r.source.nads["ext"] = testNAD{Config: ext}
	r.start()
	for _, tt := range []struct{ name, keys, word string }{
		{"no name", `"namespace":"shop"`, `"name" is missing`},
		{"ips, empty", `"name":"blue","ips":[]`, "ips is an empty list"},
		{"ips, no address", `"name":"blue","ips":["10.1.0.300"]`, "is not an IP address"},
		{"mac", `"name":"blue","mac":"02:00:00:00:00"`, "is not a MAC address"},
		{"interface", `"name":"blue","interface":"a/b"`, "has a character that an interface cannot have"},
		{"interface, taken", `"name":"blue","interface":"net1"`, `interface "net1" is asked for by entry 0`},
		{"portMappings", `"name":"ext","portMappings":[{"hostPort":0,"containerPort":1}]`, "is not between 1 and 65535"},
		{"bandwidth", `"name":"ext","bandwidth":{"ingressBurst":1}`, "bandwidth.ingressBurst needs ingressRate"},
		{"infiniband-guid", `"name":"ext","infiniband-guid":"24:8a:07"`, "is not a GUID"},
		{"default-route, twice", `"name":"blue","default-route":[]},{"name":"ext","default-route":[]`, "both ask for the default-route"},
		{"ipam-claim-reference", `"name":"blue","ipam-claim-reference":"x"`, "the network lets no address outlive its pod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.planFor("c1", `[{"name":"blue"},{`+tt.keys+`}]`)
			(&rig{t: t, nb: r.nb}).wantRefused(err, conf.CodeInvalidConfig, tt.word)
		})
	}
}
