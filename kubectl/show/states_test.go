package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// TestNetworksByState: without NB, a network has the ports that pods name in their network-status, and no numbers.
// Tenants write this annotation: it ends no line.
func TestNetworksByState(t *testing.T) {
	nads := []*netmodel.NAD{{
		Namespace: "shop", Name: "blue", State: `{"ready":true,"since":"2026-01-02T03:04:05Z"}`,
		Config: netmodel.ParseConfig("shop", "blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24"}`, netmodel.KeptConfig),
	}}
	list := NetworksByState(nads, []PodStatus{
		{"shop", "web", "n1", `[{"name":"cbr0","interface":"eth0","ips":["10.244.0.2"]},
			{"name":"shop/blue","interface":"net1","ips":["10.1.0.7","no address"],"mac":"0a:58:0a:01:00:07"}]`, "", nil},
		{"shop", "evil", "n1", `[{"name":"shop/blue","interface":"net1\nNETWORK x"}]`, "", nil},
		{"shop", "broken", "n1", `[{`, "", nil},
	})
	var lines, page bytes.Buffer
	if err := List(&lines, list); err != nil {
		t.Fatal(err)
	}
	if err := Details(&page, &list[0]); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(lines.String()), " "), "NETWORK TOPOLOGY SUBNETS ROUTER PORTS USED FREE STATE "+
		"shop/blue layer2 10.1.0.0/24 - 2 ? ? ready"; got != want {
		t.Errorf("list %q, want %q", got, want)
	}
	for _, want := range []string{
		"10.1.0.0/24  10.1.0.1  ?     ?\n", "shop/web   net1            n1    10.1.0.7   0a:58:0a:01:00:07  true\n",
		"net1 NETWORK x",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, &page)
		}
	}
	text, err := json.Marshal(list[0].Subnets)
	if want := `[{"subnet":"10.1.0.0/24","gateway":"10.1.0.1"}]`; err != nil || string(text) != want {
		t.Errorf("JSON %s, %v; want %s", text, err, want)
	}
	counted, err := json.Marshal(Networks(nads, nil)[0].Subnets)
	if err != nil || !strings.Contains(string(counted), `"used":0,"free":25`) {
		t.Errorf("JSON of a network that was counted: %s, %v", counted, err)
	}
}

// TestServicesByState: without NB, a Service has the addresses of its state.
func TestServicesByState(t *testing.T) {
	ours := map[string]string{service.ProxyLabel: service.ProxyName}
	object := func(name, state string) *service.Object {
		return service.NewObject("shop", name, 1, ours, map[string]string{
			service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=web", service.StateAnnotation: state,
		}, []byte(`{"clusterIP":"None","ports":[{"port":80}]}`))
	}
	var lines bytes.Buffer
	err := ServiceList(&lines, ServicesByState([]*service.Object{
		object("web", `{"ready":true,"network":"shop/blue","addresses":["10.1.0.20"],"outsideAddresses":["192.0.2.17"]}`),
		object("old", `{"ready":false,"reason":"no\nroom"}`), object("new", ""),
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(lines.String()), " "), "SERVICE NETWORK ADDRESSES OUTSIDE PORTS BACKENDS STATE "+
		"shop/new shop/blue headless - tcp/80 - not ready: "+notSeen+" "+
		"shop/old shop/blue headless - tcp/80 - not ready: no room "+
		"shop/web shop/blue headless 192.0.2.17 tcp/80 - ready"; got != want {
		t.Errorf("list\n%s\nwant\n%s", got, want)
	}
}
