package main

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const onePort = `"ports":[{"port":80}]`

// ensureService makes NB have a Service of namespace shop on shop/blue, with these backends. Without an address, it is
// headless.
func ensureService(ctx context.Context, t *testing.T, db *ovndb.DB, name, address, spec string, pods ...service.Backend) {
	t.Helper()
	annotations := map[string]string{service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=" + name}
	if address != "" {
		annotations[service.AddressAnnotation] = address
	}
	created := time.Time{}.Unix() // as of a manifest without a time
	o := service.NewObject("shop", name, created, map[string]string{service.ProxyLabel: service.ProxyName}, annotations,
		[]byte(`{"clusterIP":"None",`+spec+`}`))
	if o.Service == nil {
		t.Fatal(o.Refusal)
	}
	want := &services.Wanted{Network: "shop/blue", Service: o.Service, Pods: pods}
	if _, err := services.New(nbrows.NewStore(db)).Ensure(ctx, want); err != nil {
		t.Fatal(err)
	}
}

// fillServices makes network shop/blue with pods web-0 and web-1, and Services of which the manifests of the script say
// something else, or nothing.
func fillServices(t *testing.T, server *ovndbtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	db := open(ctx, t, server)
	routers, err := netmodel.ParseRouters([]byte(`{"routers":{"shop/edge":{"namespaces":{"shop":{"subnets":"10.1.0.0/16,fd01::/16"}},
		"gatewayNodes":"edge=yes","physicalNetworkName":"provider","externalSubnet":"192.0.2.0/24,2001:db8::/64",
		"externalAddress":"192.0.2.10,2001:db8::10","portForwards":{"shop":2},"addressPools":{"public":{"addresses":"192.0.2.16/28","namespaces":{"shop":1}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	networks, ports := nbtest.NewClient(db, routers), ovnport.NewNB(db)
	blue := network(t, "shop", "blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24,fd01::/64","router":"edge"}`)
	if _, err := networks.Ensure(ctx, blue, []string{blue.NAD()}); err != nil {
		t.Fatal(err)
	}
	var pods []service.Backend
	for i, pod := range []string{"web-0", "web-1"} {
		owner := ovnport.Owner{Namespace: "shop", Pod: pod, UID: pod, Sandbox: pod, Node: "node-" + pod[4:], Chassis: "c"}
		p := service.Backend{Name: pod, Ready: true, Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 1, 0, byte(10 + i)}), netip.AddrFrom16([16]byte{0xfd, 1, 15: byte(10 + i)})}}
		r := ovnport.Request{Interface: "net1", Network: blue, IPs: []netip.Prefix{
			netip.PrefixFrom(p.Addresses[0], 24), netip.PrefixFrom(p.Addresses[1], 64)}}
		if _, err := ports.Ensure(ctx, owner, []ovnport.Request{r}, nil); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	pods[0].Ports = map[string]uint16{"udp/dns": 5353}
	gone := service.Backend{Ready: true, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.99")}} // has no port
	ensureService(ctx, t, db, "web", "10.1.0.200,fd01::c8", `"ports":[{"name":"http","port":80,"targetPort":8080},
		{"name":"dns","port":53,"protocol":"UDP","targetPort":"dns"}],"sessionAffinity":"ClientIP"`, pods[0], pods[1], gone)
	ensureService(ctx, t, db, "pods", "", onePort, pods[0])
	ensureService(ctx, t, db, "empty", "10.1.0.201", onePort)
	for i, name := range []string{"moved", "edited", "gone"} {
		ensureService(ctx, t, db, name, netip.AddrFrom4([4]byte{10, 1, 0, byte(204 + i)}).String(), onePort, pods[0])
	}
	if _, err := networks.Gateways.Ensure(ctx, routers["shop/edge"], []gateway.Chassis{{Node: "node-0", Name: "c"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []*outside.Wanted{
		{User: outside.User{Namespace: "shop", Service: "web"}, Kind: outside.Forwarded,
			Ports: []outside.Port{{Protocol: "tcp", Number: 80}, {Protocol: "udp", Number: 53}}},
		{User: outside.User{Namespace: "shop", Service: "empty"}, Kind: outside.Balanced, Fixed: []netip.Addr{netip.MustParseAddr("192.0.2.17")}},
	} {
		want.Router, want.Inside = routers["shop/edge"], pods[0].Addresses
		want.Balancer = &outside.Balancer{Vips: func([]netip.Addr) map[string]map[string]string { return nil }}
		if _, err := outside.New(nbrows.NewStore(db)).Ensure(ctx, want); err != nil {
			t.Fatal(err)
		}
	}
}

// refusing is a source of Services that nobody may read.
type refusing struct{ err error }

func (s refusing) AllServices(context.Context) ([]*service.Object, error) { return nil, s.err }

// TestForbiddenServices: without the right to list Services, NB says what there is.
func TestForbiddenServices(t *testing.T) {
	var warn strings.Builder
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil)
	known, err := readServices(t.Context(), refusing{forbidden}, &warn)
	if err != nil || known.readable || !strings.Contains(warn.String(), "the states are not read") {
		t.Errorf("%+v, %v, %q", known, err, warn.String())
	}
}
