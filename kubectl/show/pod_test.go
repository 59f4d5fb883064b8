package show

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

const webStatus = `[{"name":"cbr0","interface":"eth0","ips":["10.244.1.7"],"mac":"02:00:00:00:00:07","default":true},
	{"name":"shop/blue","interface":"net1","ips":["10.1.0.7","fd01::7"],"mac":"0a:58:0a:01:00:07","mtu":1442},
	{"name":"shop/vf","interface":"net2","ips":["192.0.2.7"],"mac":"02:00:00:00:00:17"}]`

// webSources are those of pod shop/web, whose net1 is on network shop/blue and whose net2 is another plugin's.
func webSources(t *testing.T) *PodSources {
	t.Helper()
	blue, err := netmodel.ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/24,fd01::/64","router":"/core"}`))
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr
	port := func(pod string, last byte) view.Port {
		return view.Port{Key: "key-of-" + pod, Name: "shop/" + pod + "/net1", Namespace: "shop", Pod: pod, Interface: "net1", Node: "n1",
			MAC: net.HardwareAddr{0x0a, 0x58, 0x0a, 1, 0, last}, Addresses: []netip.Addr{address("10.1.0.7"), address("fd01::7")}, Up: true}
	}
	other := port("other", 8)
	other.Addresses = []netip.Addr{address("10.1.0.8")}
	return &PodSources{
		Status:   &PodStatus{Namespace: "shop", Name: "web", Node: "n1", Text: webStatus},
		Networks: []view.Network{{ID: "shop/blue", Config: blue, Accepted: []string{"shop/blue"}, Ports: []view.Port{other, port("web", 7)}}},
		Outside: []*outside.Entry{
			{Key: outside.Key{Router: "/core", User: outside.User{Namespace: "shop", Pod: "web", Interface: "net1"}}, Kind: outside.Floating,
				Addresses: []outside.Address{{Addr: address("192.0.2.20"), Pool: "public"}}},
			{Key: outside.Key{Router: "/core", User: outside.User{Namespace: "shop", Pod: "other", Interface: "net1"}}, Kind: outside.Floating,
				Addresses: []outside.Address{{Addr: address("192.0.2.21"), Pool: "public"}}},
		},
	}
}

// TestPod: everything that a pod has is on one page, and nothing of another pod.
func TestPod(t *testing.T) {
	p, err := PodOf("shop", "web", webSources(t))
	if err != nil {
		t.Fatal(err)
	}
	db := policy.Selector{Pods: "app=db"}
	web := policy.Selector{Pods: "app=web"}
	views := []*policies.View{{Scope: policies.Scope{Network: "shop/blue", Namespace: "shop"},
		Set: &policy.Set{Policies: []*policy.Policy{
			{Namespace: "shop", Name: "web", Subject: web, Ingress: &policy.Rules{}},
			{Namespace: "shop", Name: "db", Subject: db, Egress: &policy.Rules{}},
		}},
		Members: map[policy.Selector][]string{web: {"key-of-web"}, db: {"key-of-other"}},
	}}
	if own := p.Scopes(); !slices.Contains(own, views[0].Scope) || !slices.Contains(own, policies.Scope{Network: "shop/blue"}) || len(own) != 2 {
		t.Errorf("the scopes are %v", own)
	}
	p.SetPolicies(views)
	serviceOf := func(name, backend string) *services.View {
		return &services.View{Key: services.Key{Network: "shop/blue", Service: name}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.100")},
			Vips: []services.Vip{{Backends: []netip.AddrPort{netip.MustParseAddrPort(backend)}}}}
	}
	p.SetServices([]*services.View{serviceOf("shop/www", "10.1.0.7:80"), serviceOf("shop/else", "10.1.0.8:80")})
	var page bytes.Buffer
	if err := PodPage(&page, p); err != nil {
		t.Fatal(err)
	}
	const want = `Pod:   shop/web
Node:  n1

INTERFACE  NETWORK    ADDRESSES         MAC                MTU   PORT
eth0       cbr0       10.244.1.7        02:00:00:00:00:07  -     -
net1       shop/blue  10.1.0.7,fd01::7  0a:58:0a:01:00:07  1442  up
net2       shop/vf    192.0.2.7         02:00:00:00:00:17  -     -
Policies of net1:  MultiNetworkPolicy shop/web (ingress)
Services of net1:  shop/www (10.1.0.100)
Outside of net1:   192.0.2.20 (floating, pool public)
`
	if page.String() != want {
		t.Errorf("the page is\n%s\nwant\n%s", page.String(), want)
	}
}

// TestPodProblems: where the annotation and NB differ, and what does not work, is said.
func TestPodProblems(t *testing.T) {
	tests := []struct {
		name   string
		change func(s *PodSources, p *view.Port)
		want   []string
	}{
		{"all is well", func(*PodSources, *view.Port) {}, nil},
		{"without the right to read the pod", func(s *PodSources, _ *view.Port) { s.Status = nil }, nil},
		{"not bound", func(_ *PodSources, p *view.Port) { p.Up = false }, []string{"net1: ovn-controller of node n1 has not bound the port"}},
		{"another node", func(_ *PodSources, p *view.Port) { p.Node = "n2" }, []string{"net1: NB has the port on node n2, and the pod is on node n1"}},
		{"another address", func(_ *PodSources, p *view.Port) { p.Addresses = p.Addresses[:1] }, []string{
			"net1: the annotation k8s.v1.cni.cncf.io/network-status has 0a:58:0a:01:00:07 10.1.0.7,fd01::7, and NB has 0a:58:0a:01:00:07 10.1.0.7"}},
		{"another MAC", func(_ *PodSources, p *view.Port) { p.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1} }, []string{"net1: the annotation"}},
		{"its address is another pod's now", func(_ *PodSources, p *view.Port) { p.Pod = "other-2" }, []string{
			"net1: NB has no port on network shop/blue"}},
		{"no port", func(s *PodSources, _ *view.Port) { s.Networks[0].Ports = nil }, []string{
			"net1: NB has no port on network shop/blue"}},
		{"not in the annotation", func(_ *PodSources, p *view.Port) { p.Interface = "net9" }, []string{
			"net1: NB has no port", "net9: the annotation k8s.v1.cni.cncf.io/network-status does not have it"}},
		{"an edited annotation", func(s *PodSources, _ *view.Port) {
			s.Status.Requested = map[string]string{conf.NetworksAnnotation: "vf@net2,shop/blue@x1"}
		}, []string{"net1: the annotation k8s.v1.cni.cncf.io/networks does not name it any more, and the pod has it",
			"x1: the annotation k8s.v1.cni.cncf.io/networks names it, and the pod does not have it"}},
		{"a refused edit", func(s *PodSources, _ *view.Port) {
			s.Status.Requested = map[string]string{conf.NetworksAnnotation: "blue,blue@net2"}
		}, []string{"the pod keeps the networks that it has: interface net2 is on network shop/vf"}},
		{"the same in other words", func(s *PodSources, _ *view.Port) {
			s.Status.Requested = map[string]string{conf.NetworksAnnotation: `[{"name":"vf","interface":"net2"},{"name":"blue"}]`}
		}, nil},
		{"a conflict", func(_ *PodSources, p *view.Port) {
			p.Conflicts = []view.Conflict{{Addr: p.Addresses[0], MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}}}
		}, []string{"net1: the host with the MAC 02:00:00:00:00:09 uses the address 10.1.0.7, too"}},
		{"the pod is gone", func(s *PodSources, _ *view.Port) { s.Status, s.Gone = nil, true }, []string{"the pod is gone, and NB still has its ports"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := webSources(t)
			tt.change(s, &s.Networks[0].Ports[1])
			p, err := PodOf("shop", "web", s)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(p.Problems)
			if !slices.EqualFunc(p.Problems, tt.want, strings.HasPrefix) {
				t.Errorf("%q, want %q", p.Problems, tt.want)
			}
		})
	}
	migrates := webSources(t) // the source has the port, which is the virtual machine's
	migrates.Networks[0].Ports[1].Pod, migrates.Networks[0].Ports[1].IPAMClaim = "source", "shop/vm.net"
	if p, err := PodOf("shop", "web", migrates); err != nil || len(p.Problems) > 0 || p.find("net1").Port != "shop/web/net1" {
		t.Errorf("the target of a migration: %+v: %v", p, err)
	}
	s := webSources(t)
	s.Networks, s.Outside = nil, nil // without the right to read NB
	p, err := PodOf("shop", "web", s)
	if err != nil || len(p.Problems) > 0 || len(p.Interfaces) != 3 {
		t.Errorf("by the annotation alone: %+v: %v", p, err)
	}
	for _, s := range []*PodSources{{Gone: true}, {Status: &PodStatus{Namespace: "shop", Name: "web"}}, {Status: &PodStatus{Text: "{"}}} {
		if p, err := PodOf("shop", "web", s); err == nil {
			t.Errorf("a pod without interfaces: %+v", p)
		}
	}
	hostile := webSources(t)
	hostile.Status.Text = strings.ReplaceAll(webStatus, "shop/vf", `x\n\u001b[31mred`)
	if p, err = PodOf("shop", "web", hostile); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := PodPage(&page, p); err != nil || strings.Contains(page.String(), "\x1b") || strings.Count(page.String(), "\n") != 8 {
		t.Errorf("an annotation that a tenant wrote: %v\n%s", err, page.String())
	}
}
