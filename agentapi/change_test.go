package agentapi_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestPlansOfRunningPods: a plan is extended, split and arranged anew; the plan itself does not change.
func TestPlansOfRunningPods(t *testing.T) {
	p := &agentapi.Plan{
		Interfaces: []agentapi.Interface{{Name: "net2", Network: "shop/blue", Digest: "b", Position: 1}},
		Delegates: []agentapi.Delegate{{Name: "net1", Network: "shop/ext", Digest: "a"},
			{Name: "net2", Network: "shop/blue", Chained: true, Position: 1}},
	}
	want := []agentapi.Attachment{{Interface: "net1", Network: "shop/ext", Digest: "a"},
		{Interface: "net2", Network: "shop/blue", Digest: "b", Position: 1}}
	if list := p.List(); !reflect.DeepEqual(list, want) {
		t.Errorf("attachments %+v, want %+v", list, want)
	}
	more := &agentapi.Plan{Interfaces: []agentapi.Interface{{Name: "x1", Position: 0}}, ChecksumOff: true}
	all := p.With(more)
	all.Arrange(map[string]int{"net1": 1, "net2": 2})
	if names := all.Names(); !reflect.DeepEqual(names, []string{"x1", "net1", "net2"}) || !all.ChecksumOff {
		t.Errorf("together %q", names)
	}
	if all.Delegates[1].Position != 2 {
		t.Error("the chained plugins of an interface have another position than it")
	}
	without, with := all.Split([]string{"net2"})
	if !reflect.DeepEqual(without.Names(), []string{"x1", "net1"}) || !reflect.DeepEqual(with.Names(), []string{"net2"}) ||
		len(with.Delegates) != 1 || !with.ChecksumOff {
		t.Errorf("split into %+v and %+v", without, with)
	}
	if names := p.Names(); !reflect.DeepEqual(names, []string{"net1", "net2"}) || len(p.Interfaces) != 1 {
		t.Errorf("the plan has changed: %q", names)
	}
}

// TestInherit: the main routes of an interface that goes pass to one that stays on the same network, and that has or
// shares them; those that the pod asked for go with it.
func TestInherit(t *testing.T) {
	route := func(dst string) conf.Route {
		return conf.Route{Dst: netip.MustParsePrefix(dst), GW: netip.MustParseAddr("10.1.0.1")}
	}
	a, b, own := route("10.8.0.0/16"), route("10.9.0.0/16"), route("10.7.0.0/16")
	blue, green := agentapi.Port{Switch: "blue"}, agentapi.Port{Switch: "green"}
	plan := func() *agentapi.Plan {
		return &agentapi.Plan{Interfaces: []agentapi.Interface{
			{Name: "net1", Port: blue, Routes: []conf.Route{a, own}},
			{Name: "net2", Port: green, TableRoutes: []conf.Route{a, own}},
			{Name: "net3", Port: blue, TableRoutes: []conf.Route{a, b}},
			{Name: "net4", Port: blue, TableRoutes: []conf.Route{a}, SharedRoutes: []conf.Route{a}},
		}}
	}
	for gone, want := range map[string]struct {
		heirs  []string
		routes map[string][]conf.Route
	}{
		"net1": {[]string{"net3"}, map[string][]conf.Route{"net3": {a}}},
		"net2": {nil, map[string][]conf.Route{"net1": {a, own}}},
		"net4": {[]string{"net1"}, map[string][]conf.Route{"net1": {a, own}}}, // the kernel deletes the route of both
	} {
		without, with := plan().Split([]string{gone})
		if heirs := without.Inherit(with); !reflect.DeepEqual(heirs, want.heirs) {
			t.Errorf("without %s: heirs %q, want %q", gone, heirs, want.heirs)
		}
		for _, i := range without.Interfaces {
			if !reflect.DeepEqual(i.Routes, want.routes[i.Name]) {
				t.Errorf("without %s: %s has %v, want %v", gone, i.Name, i.Routes, want.routes[i.Name])
			}
		}
	}
	without, with := plan().Split([]string{"net1", "net3"})
	if without.Inherit(with); len(without.Interfaces[1].SharedRoutes) > 0 || len(without.Interfaces[1].Routes) != 1 {
		t.Errorf("the last one shares %v and has %v", without.Interfaces[1].SharedRoutes, without.Interfaces[1].Routes)
	}
}
