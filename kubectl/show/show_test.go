package show

import (
	"net/netip"
	"testing"
)

// TestStateOfANetwork: a network with several NADs shows the first that is not ready, else the first warning.
func TestStateOfANetwork(t *testing.T) {
	ready, warned := NAD{Name: "shop/a", Ready: true}, NAD{Name: "shop/b", Ready: true, Reason: "a fault"}
	refused := NAD{Name: "shop/c", Reason: "refused"}
	for _, tt := range []struct {
		nads []NAD
		want string
	}{
		{nil, "not ready: no NetworkAttachmentDefinition is left of it, it goes with its last port"},
		{[]NAD{ready}, "ready"},
		{[]NAD{warned}, "ready, but a fault"},
		{[]NAD{refused}, "not ready: refused"},
		{[]NAD{ready, ready}, "ready"},
		{[]NAD{ready, warned}, "ready, but shop/b: a fault"},
		{[]NAD{ready, warned, refused}, "not ready: shop/c: refused"},
	} {
		n := Network{NADs: tt.nads}
		n.judge()
		if got := readiness(n.Ready, n.Reason); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.nads, got, tt.want)
		}
	}
}

// TestLacks: a network that is there as described, and that no pod can use, is not simply ready.
func TestLacks(t *testing.T) {
	full := Subnet{Subnet: netip.MustParsePrefix("10.1.0.0/30"), Used: 1}
	for _, tt := range []struct {
		name string
		n    Network
		want string
	}{
		{"full", Network{Subnets: []Subnet{{Free: 3}, full}}, "no address of 10.1.0.0/30 is free"},
		{"a node's part is full", Network{Subnets: []Subnet{{Node: "node1", Used: 1}}}, ""},
		{"nobody counts", Network{Subnets: []Subnet{{uncounted: true, Used: 1}}}, ""},
		{"without subnets", Network{}, ""},
		{"a gateway without a node", Network{Router: "/core", Gateway: &Gateway{Selector: "gateway=core"}},
			"the gateway of router /core has no node: label one with gateway=core"},
		{"a gateway", Network{Gateway: &Gateway{Nodes: []string{"node1"}}}, ""},
	} {
		tt.n.NADs = []NAD{{Ready: true}}
		if tt.n.judge(); tt.n.Reason != tt.want || !tt.n.Ready {
			t.Errorf("%s: ready %t, reason %q", tt.name, tt.n.Ready, tt.n.Reason)
		}
		if tt.n.NADs[0].Reason = "a warning"; tt.want != "" {
			if tt.n.judge(); tt.n.Reason != "a warning" {
				t.Errorf("%s: the controller's warning is not shown, but %q", tt.name, tt.n.Reason)
			}
		}
	}
}
