package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/policy"
	"github.com/ovn-multinet/ovn-multinet/service"
)

// balancedAPI stands in for Services, and for pods with outside addresses.
type balancedAPI struct {
	*serviceAPI
	*outsideAPI
}

const poolOfTwo = `,"addressPools":{"public":{"addresses":"192.0.2.16/29","namespaces":{"shop":2}}}`

// TestServiceOutside: a Service gets an outside address, which follows the Service and the operator's configuration. A
// pod that it selects has its floating address translated by the gateway's node meanwhile.
func TestServiceOutside(t *testing.T) {
	s := &serviceAPI{
		services: map[string]*service.Object{}, states: map[string]string{}, slices: map[string][]discoveryv1.EndpointSlice{},
	}
	w := newOutsideWorld(t, func(c *controller.Config, o *outsideAPI) {
		s.policyAPI = &policyAPI{api: o.api, pods: map[string]*policy.Pod{}}
		c.Services, c.MaxServices = &balancedAPI{s, o}, 3
	})
	services := &serviceWorld{w.running, s, w.queue}
	configure := func(pools string) {
		w.queue.Configure(map[string]*netmodel.Router{
			"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull+pools),
		}, nil, nil)
	}
	wantVIPs := func(want string) {
		t.Helper()
		eventually(t, want, func() string {
			row := w.Rows(t)["Load_Balancer"][ovndb.OutsideBalancerKey("shop/r1", "service shop/web", "tcp")]
			return row["vips"]
		})
	}
	put := func(address string) {
		services.putWith("shop/web", map[string]string{
			service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=web", service.OutsideAnnotation: address,
		}, `{"type":"LoadBalancer","loadBalancerClass":"ovn-multinet/gateway","allocateLoadBalancerNodePorts":false,
			"clusterIP":"10.96.0.9","ports":[{"port":80,"targetPort":8080}]}`)
	}
	const distributed = "dnat_and_snat 192.0.2.17 10.1.0.7 shop/a/net1"
	w.attach(t, "a", "n1", 7, floating17)
	w.kube.with(func() { w.kube.pods["shop/a"].Labels = map[string]string{"app": "web"} })
	w.wantNATs(t, distributed)

	put("192.0.2.18")
	services.wantServiceState(t, "shop/web", "namespace shop has 1 IPv4 addresses of pool public")
	configure(poolOfTwo)
	services.wantServiceState(t, "shop/web", `{"ready":true,"network":"shop/blue","outsideAddresses":["192.0.2.18"]`)
	wantVIPs("192.0.2.18:80=10.1.0.7:8080")
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.7")
	ingress := func() (got string) {
		w.kube.with(func() { got = fmt.Sprint(s.services["shop/web"].Ingress) })
		return got
	}
	eventually(t, "[192.0.2.18]", ingress)

	w.kube.with(func() { w.kube.pods["shop/a"].Ready = false })
	w.queue.BackendChanged("shop", "a")
	wantVIPs("192.0.2.18:80=")
	w.kube.with(func() { w.kube.pods["shop/a"].Ready = true })
	w.queue.BackendChanged("shop", "a")
	wantVIPs("192.0.2.18:80=10.1.0.7:8080")
	put("192.0.2.17")
	services.wantServiceState(t, "shop/web", "in use by pod shop/a interface net1")
	put("192.0.2.19")
	wantVIPs("192.0.2.19:80=10.1.0.7:8080")

	configure("")
	services.wantServiceState(t, "shop/web", "address 192.0.2.19 is in no pool of router shop/r1")
	wantVIPs("")
	eventually(t, "[]", ingress)
	w.wantNATs(t, "")
	configure(poolOfTwo)
	wantVIPs("192.0.2.19:80=10.1.0.7:8080")
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.7")
	// The network is detached from the router, and returns.
	w.apply("shop/blue", nbtest.Spec(nbtest.NetDual))
	services.wantServiceState(t, "shop/web", "is on no router with a gateway")
	wantVIPs("")
	w.apply("shop/blue", nbtest.Spec(nbtest.NetDual+nbtest.OnR1))
	wantVIPs("192.0.2.19:80=10.1.0.7:8080")

	services.remove("shop/web")
	wantVIPs("")
	w.wantNATs(t, distributed)
	for _, row := range w.Rows(t)["Copp"] {
		if strings.Contains(row["external_ids"], "service shop/web") {
			t.Errorf("row %v", row)
		}
	}

	// The state says how many backends are left out.
	w.kube.with(func() {
		for i := range service.MaxBackends + 1 {
			name := fmt.Sprint("many-", i)
			w.kube.pods["shop/"+name] = &policy.Pod{
				Namespace: "shop", Name: name, Node: "n1", Ready: true, Labels: map[string]string{"app": "many"},
			}
			w.kube.ports = append(w.kube.ports, controller.PolicyPort{
				Network: "shop/blue", Namespace: "shop", Pod: name, Interface: "net1",
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(1 + i/200), byte(1 + i%200)})},
			})
		}
	})
	services.putWith("shop/many", map[string]string{
		service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=many", service.OutsideAnnotation: "auto",
	}, ownSpec)
	services.wantServiceState(t, "shop/many", "1 pods are left out")
}
