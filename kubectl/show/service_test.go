package show

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// serviceObject is Service shop/web with a state, as its source has it.
func serviceObject(created int64, selector, state string) *service.Object {
	return service.NewObject("shop", "web", created, map[string]string{service.ProxyLabel: service.ProxyName}, map[string]string{
		service.NetworkAnnotation: "blue", service.SelectorAnnotation: selector, service.AddressAnnotation: "auto",
		service.StateAnnotation: state,
	}, []byte(`{"clusterIP":"None","ports":[{"port":80}]}`))
}

// served is what NB has of Service shop/web, with as many backends.
func served(backends int) *services.View {
	v := &services.View{Key: services.Key{Network: "shop/blue", Service: "shop/web"},
		Service: serviceObject(1, "app=web", "").Service, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.200")}}
	vip := services.Vip{Protocol: "tcp", Address: netip.MustParseAddrPort("10.1.0.200:80")}
	for i := range backends {
		vip.Backends = append(vip.Backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 80))
	}
	v.Vips = append(v.Vips, vip)
	return v
}

// TestServiceStates: NB says what is served, and the objects say what is not.
func TestServiceStates(t *testing.T) {
	v, spoilt, unreadable := served(1), served(1), served(1)
	spoilt.Differs, unreadable.Differs, unreadable.Service = true, true, nil
	const good = `{"ready":true,"network":"shop/blue"}`
	ready := serviceObject(1, "app=web", good)
	other := *ready
	words := *ready.Service
	words.Text = "other words"
	other.Service = &words
	for name, tt := range map[string]struct {
		object *service.Object
		known  bool
		view   *services.View
		want   string
	}{
		"ready":                {ready, true, v, "ready"},
		"nobody reads states":  {nil, false, v, "ready"},
		"deleted":              {nil, true, v, "not ready: " + stillInNB},
		"not seen":             {serviceObject(1, "app=web", ""), true, v, "not ready: " + notSeen},
		"limited":              {serviceObject(1, "app=web", `{"ready":true,"network":"shop/blue","reason":"why"}`), true, v, "ready, but why"},
		"a tenant's own state": {serviceObject(1, "app=web", `{"reason":"\u001b[2Jwhy\nready"}`), true, v, "not ready: ?[2Jwhy ready"},
		"changed":              {serviceObject(1, "app=api", good), true, v, "not ready: " + changedSince},
		"created again":        {serviceObject(2, "app=web", good), true, v, "not ready: " + changedSince},
		"another text":         {&other, true, v, "ready"},
		"another network":      {serviceObject(1, "app=web", `{"ready":true,"network":"shop/red"}`), true, v, "not ready: " + changedSince},
		"not in NB":            {ready, true, nil, "not ready: " + changedSince},
		"other rows":           {ready, true, spoilt, "not ready: " + serviceRowsDiffer},
		"rows of no service":   {nil, false, unreadable, "not ready: " + serviceRowsDiffer},
	} {
		var objects []*service.Object
		if tt.object != nil {
			objects = append(objects, tt.object)
		}
		var views []*services.View
		if tt.view != nil {
			views = append(views, tt.view)
		}
		list := Services(objects, tt.known, views)
		if len(list) != 1 || readiness(list[0].Ready, list[0].Reason) != tt.want {
			t.Errorf("%s: %+v, want %s", name, list, tt.want)
		}
		if d := list[0].Details(nil); len(d.Vips) != len(views) || (d.Object == nil) != (tt.object == nil) {
			t.Errorf("%s: details %+v", name, d)
		}
	}
	v.Vips = nil
	if list := Services(nil, false, []*services.View{v}); len(list[0].Backends) != 1 || list[0].Backends[0] != 0 {
		t.Errorf("without load balancer: %+v", list)
	}
}

// TestOneService: of a Service that NB has on two networks, the one that is ready is shown.
func TestOneService(t *testing.T) {
	former, now := served(1), served(1)
	former.Key.Network, now.Key.Network = "shop/aqua", "shop/grey"
	for _, views := range [][]*services.View{{former, served(0), now}, {served(0), former}} {
		list := Services([]*service.Object{serviceObject(1, "app=web", `{"ready":true,"network":"shop/blue"}`)}, true, views)
		if s := OneService(list); s == nil || s.Network != "shop/blue" || len(list) != len(views) {
			t.Errorf("found %+v of %+v", s, list)
		}
	}
	if s := OneService(nil); s != nil {
		t.Errorf("found %+v", s)
	}
}

// TestServicePageIsShort: the page of a Service has the first backends of a port, and JSON has all.
func TestServicePageIsShort(t *testing.T) {
	ports := map[netip.Addr]view.Port{}
	for i := range 33 {
		ports[netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})] = view.Port{Namespace: "shop", Pod: fmt.Sprintf("p%02d", i)}
	}
	d := OneService(Services(nil, false, []*services.View{served(33)})).Details(ports)
	var out strings.Builder
	if err := ServicePage(&out, d); err != nil || len(d.Vips[0].Backends) != 33 {
		t.Fatalf("%v, %+v", err, d)
	}
	for _, want := range []string{"shop/p19 ", "and 13 more: -o json has all"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "shop/p20") {
		t.Errorf("the page has too many backends:\n%s", out.String())
	}
}

// TestHostileNames: the names of Services are one line without control characters.
func TestHostileNames(t *testing.T) {
	const name = "shop/\x1b[2Jweb\nshop/db"
	n := Network{}
	n.SetVirtualAddresses([]services.Claimed{{Address: netip.MustParseAddr("10.1.0.200"), Service: name}})
	v := served(1)
	v.Key.Service = name
	var out strings.Builder
	n.virtual(&out)
	if err := ServiceList(&out, Services(nil, false, []*services.View{v})); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "shop/?[2Jweb shop/db") != 2 || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}
