package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// balancedAPI stands in for Services, and for pods with outside addresses.
type balancedAPI struct {
	*serviceAPI
	*outsideAPI
}

const poolOfTwo = `,"addressPools":{"public":{"addresses":"192.0.2.16/29","namespaces":{"shop":2}}}`

// balancedWorld is a controller with Services and outside addresses, with the gateway of router shop/r1 and network
// shop/blue there.
type balancedWorld struct {
	*outsideWorld
	services *serviceWorld
}

func newBalancedWorld(t *testing.T) *balancedWorld {
	t.Helper()
	s := &serviceAPI{
		services: map[string]*service.Object{}, states: map[string]string{}, slices: map[string][]discoveryv1.EndpointSlice{},
	}
	w := newOutsideWorld(t, func(c *controller.Config, o *outsideAPI) {
		s.policyAPI = &policyAPI{api: o.api, pods: map[string]*netmodel.Pod{}}
		c.Services, c.MaxServices = &balancedAPI{s, o}, 3
	})
	return &balancedWorld{w, &serviceWorld{w.running, s, w.queue}}
}

// configure replaces the pools.
func (w *balancedWorld) configure(t *testing.T, pools string) {
	t.Helper()
	w.queue.Configure(configfile.Config{Routers: map[string]*netmodel.Router{
		"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull+pools),
	}})
}

// put makes Service shop/web with an outside address, for pods with app=web. more are further annotations.
func (w *balancedWorld) put(address string, more ...string) {
	annotations := map[string]string{
		service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=web", service.OutsideAnnotation: address,
	}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	w.services.putWith("shop/web", annotations, `{"type":"LoadBalancer","loadBalancerClass":"ovn-multinet/gateway","allocateLoadBalancerNodePorts":false,
		"clusterIP":"10.96.0.9","ports":[{"port":80,"targetPort":8080}]}`)
}

// wantVIPs waits until NB has these vips for outside hosts.
func (w *balancedWorld) wantVIPs(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() string {
		row := w.Rows(t)["Load_Balancer"][ovndb.OutsideBalancerKey("shop/r1", "service shop/web", "tcp")]
		return row["vips"]
	})
}

// wantIngress waits until the status of the Service has these addresses.
func (w *balancedWorld) wantIngress(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() (got string) {
		w.kube.with(func() { got = fmt.Sprint(w.services.kube.services["shop/web"].Ingress) })
		return got
	})
}

// attachWeb gives pod a, with app=web, a port and a floating address, which its own node translates.
func (w *balancedWorld) attachWeb(t *testing.T) {
	t.Helper()
	w.attach(t, "a", "n1", 7, floating17)
	w.wantNATs(t, distributed17)
	w.kube.with(func() { w.kube.pods["shop/a"].Labels = map[string]string{"app": "web"} })
}

const (
	distributed17 = "dnat_and_snat 192.0.2.17 10.1.0.7 shop/a/net1"
	plain17       = "dnat_and_snat 192.0.2.17 10.1.0.7"
)

// TestServiceOutside: a Service gets an outside address, and its backends follow the pods. A pod that it selects has its
// floating address translated by the gateway's node meanwhile.
func TestServiceOutside(t *testing.T) {
	w := newBalancedWorld(t)
	w.attachWeb(t)
	w.put("192.0.2.18")
	w.services.wantServiceState(t, "shop/web", "namespace shop has 1 IPv4 addresses of pool public")
	w.configure(t, poolOfTwo)
	w.services.wantServiceState(t, "shop/web", `{"ready":true,"network":"shop/blue","outsideAddresses":["192.0.2.18"]`)
	w.wantVIPs(t, "192.0.2.18:80=10.1.0.7:8080")
	w.wantNATs(t, plain17)
	w.wantIngress(t, "[192.0.2.18]")

	for _, ready := range []bool{false, true} {
		w.kube.with(func() { w.kube.pods["shop/a"].Ready = ready })
		w.queue.BackendChanged("shop", "a")
		w.wantVIPs(t, map[bool]string{false: "192.0.2.18:80=", true: "192.0.2.18:80=10.1.0.7:8080"}[ready])
	}
	w.put("192.0.2.17")
	w.services.wantServiceState(t, "shop/web", "in use by pod shop/a interface net1")
	w.put("192.0.2.19")
	w.wantVIPs(t, "192.0.2.19:80=10.1.0.7:8080")

	w.services.remove("shop/web")
	w.wantVIPs(t, "")
	w.wantNATs(t, distributed17)
	for _, row := range w.Rows(t)["Copp"] {
		if strings.Contains(row["external_ids"], "service shop/web") {
			t.Errorf("row %v", row)
		}
	}
}

// TestServiceOutsideSources: a pod whose Service limits the outside hosts has its own address guarded, ready or not, until
// the Service is gone.
func TestServiceOutsideSources(t *testing.T) {
	w := newBalancedWorld(t)
	w.configure(t, poolOfTwo)
	w.attachWeb(t)
	w.put("192.0.2.18", service.SourcesAnnotation, "198.51.100.0/24")
	wantGuard := func(want string) {
		t.Helper()
		eventually(t, want, func() (got string) {
			for _, row := range w.Dump(t, "ACL") {
				if row["_uuid"] == ovndb.OutsideACLKey("shop/r1", "service shop/web", "deny4") {
					got = row["match"].(string)
				}
			}
			return got
		})
	}
	const guard = `inport == "shop/r1:provider" && ((tcp.dst == {8080} && ip4.dst == {10.1.0.7}) || ` +
		`(ip4.dst == 192.0.2.18 && (tcp || udp || sctp)))`
	wantGuard(guard)
	w.settle(t) // no pass is left that would compare everything
	w.kube.with(func() { w.kube.pods["shop/a"].Ready = false })
	w.queue.BackendChanged("shop", "a")
	w.wantVIPs(t, "192.0.2.18:80=")
	wantGuard(guard)
	w.attach(t, "b", "n1", 8, "")
	w.kube.with(func() { w.kube.pods["shop/b"].Labels = map[string]string{"app": "web"} })
	w.queue.BackendChanged("shop", "b")
	wantGuard(strings.Replace(guard, "10.1.0.7", "10.1.0.7, 10.1.0.8", 1))
	w.services.remove("shop/web")
	wantGuard("")
}

// TestServiceOutsideEnds: when the operator takes the pool back, and when the network is detached from the router. It
// returns with them.
func TestServiceOutsideEnds(t *testing.T) {
	w := newBalancedWorld(t)
	w.configure(t, poolOfTwo)
	w.attachWeb(t)
	w.put("192.0.2.19")
	const vips = "192.0.2.19:80=10.1.0.7:8080"
	w.wantVIPs(t, vips)
	w.wantIngress(t, "[192.0.2.19]")
	w.configure(t, "")
	w.services.wantServiceState(t, "shop/web", "address 192.0.2.19 is in no pool of router shop/r1")
	w.wantVIPs(t, "")
	w.wantIngress(t, "[]")
	w.wantNATs(t, "")
	w.configure(t, poolOfTwo)
	w.wantVIPs(t, vips)
	w.wantNATs(t, plain17)
	w.apply("shop/blue", nbtest.Spec(nbtest.NetDual))
	w.services.wantServiceState(t, "shop/web", "is on no router with a gateway")
	w.wantVIPs(t, "")
	w.apply("shop/blue", nbtest.Spec(nbtest.NetDual+nbtest.OnR1))
	w.wantVIPs(t, vips)
}

// TestServiceForwards: Services have ports of the gateway's own address, if the operator grants them. One that wants a
// port of another one gets it when that one is gone.
func TestServiceForwards(t *testing.T) {
	w := newBalancedWorld(t)
	w.attachWeb(t)
	w.put("gateway")
	w.services.wantServiceState(t, "shop/web", "ports of the gateway of router shop/r1 are not granted to namespace shop")
	const forwards = `,"portForwards":{"shop":1}`
	w.configure(t, forwards)
	w.wantVIPs(t, "192.0.2.10:80=10.1.0.7:8080 [2001:db8::10]:80=")
	w.wantIngress(t, "[192.0.2.10 2001:db8::10]")
	late := map[string]string{
		service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=late", service.OutsideAnnotation: "gateway",
	}
	w.services.putWith("shop/late", late, ownSpec)
	w.services.wantServiceState(t, "shop/late", "tcp/80 of address 192.0.2.10 on physical network provider, VLAN 42 is in use by service shop/web ")
	other := strings.Replace(nbtest.GwFull, `"192.0.2.10,`, `"192.0.2.99,`, 1)
	w.queue.Configure(configfile.Config{Routers: map[string]*netmodel.Router{
		"shop/r1": nbtest.GatewayConf(t, "shop/r1", other+forwards),
	}})
	w.wantIngress(t, "[192.0.2.99 2001:db8::10]")
	w.services.remove("shop/late") // otherwise it may come first below
	w.configure(t, "")
	w.services.wantServiceState(t, "shop/web", "are not granted to namespace shop")
	w.wantVIPs(t, "")
	w.configure(t, forwards)
	w.wantVIPs(t, "192.0.2.10:80=10.1.0.7:8080 [2001:db8::10]:80=")
	w.services.putWith("shop/late", late, ownSpec)
	w.services.wantServiceState(t, "shop/late", "is in use by service shop/web ")
	w.services.remove("shop/web")
	w.services.wantServiceState(t, "shop/late", `{"ready":true,"network":"shop/blue","outsideAddresses":["192.0.2.10","2001:db8::10"]`)
}

// TestServiceOutsideLimited: the state says how many backends are left out.
func TestServiceOutsideLimited(t *testing.T) {
	w := newBalancedWorld(t)
	w.configure(t, poolOfTwo)
	w.kube.with(func() {
		for i := range service.MaxBackends + 1 {
			name := fmt.Sprint("many-", i)
			w.kube.pods["shop/"+name] = &netmodel.Pod{
				Namespace: "shop", Name: name, Node: "n1", Ready: true, Labels: map[string]string{"app": "many"},
			}
			w.kube.ports = append(w.kube.ports, pods.Port{
				Network: "shop/blue", Namespace: "shop", Pod: name, Interface: "net1",
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(1 + i/200), byte(1 + i%200)})},
			})
		}
	})
	w.services.putWith("shop/many", map[string]string{
		service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=many", service.OutsideAnnotation: "auto",
	}, ownSpec)
	w.services.wantServiceState(t, "shop/many", "1 pods are left out")
}
