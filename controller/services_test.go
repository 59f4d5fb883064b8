package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// serviceAPI stands in for the Kubernetes API of Services and EndpointSlices.
type serviceAPI struct {
	*policyAPI
	services map[string]*service.Object // by ID
	states   map[string]string
	slices   map[string][]discoveryv1.EndpointSlice
	events   []string
}

func (a *serviceAPI) Services(_ context.Context, namespace string) (all []*service.Object, err error) {
	a.with(func() {
		for id, o := range a.services {
			if o.Namespace == namespace {
				with := *o
				with.State = a.states[id]
				all = append(all, &with)
			}
		}
	})
	return all, nil
}

func (a *serviceAPI) Service(ctx context.Context, namespace, name string) (*service.Object, error) {
	all, err := a.Services(ctx, namespace)
	if i := slices.IndexFunc(all, func(o *service.Object) bool { return o.Name == name }); i >= 0 {
		return all[i], err
	}
	return nil, err
}

func (a *serviceAPI) ServiceNamespaces(context.Context) (all []string, err error) {
	a.with(func() {
		for _, o := range a.services {
			if !slices.Contains(all, o.Namespace) {
				all = append(all, o.Namespace)
			}
		}
	})
	return all, nil
}

func (a *serviceAPI) SetServiceState(_ context.Context, o *service.Object, state string) error {
	a.with(func() { a.states[o.ID()] = state })
	return nil
}

func (a *serviceAPI) SetServiceIngress(_ context.Context, o *service.Object, addresses []netip.Addr) error {
	a.with(func() { a.services[o.ID()].Ingress = addresses })
	return nil
}

func (a *serviceAPI) SetEndpoints(_ context.Context, o *service.Object, all []discoveryv1.EndpointSlice) error {
	a.with(func() { a.slices[o.ID()] = all })
	return nil
}

func (a *serviceAPI) ServiceEvent(o *service.Object, _ bool, reason, message string) {
	a.with(func() { a.events = append(a.events, o.ID()+" "+reason+" "+message) })
}

// serviceWorld is a controller with Services, and pods a (app=db) and b (app=web) of namespace shop, and c (app=web) of
// namespace other, on network shop/blue. Their addresses there are 10.1.0.10 and up.
type serviceWorld struct {
	*running
	kube  *serviceAPI
	queue *controller.Queue
}

func newServiceWorld(t *testing.T) *serviceWorld {
	t.Helper()
	w := nbtest.NewWorld(t)
	a := &serviceAPI{
		policyAPI: &policyAPI{api: newAPI(), pods: map[string]*netmodel.Pod{}}, services: map[string]*service.Object{},
		states: map[string]string{}, slices: map[string][]discoveryv1.EndpointSlice{},
	}
	queue := controller.NewQueue(quiet)
	c := controller.New(controller.Config{
		NB: w.Networks.DB, Source: a.api, Queue: queue, Metrics: controller.NewMetrics(queue, w.Networks.DB),
		WidestIPAM: w.Networks.Widest, Leading: leads, Log: quiet, Services: a, Ports: a, MaxServices: 3,
	})
	a.pods["shop/a"] = &netmodel.Pod{Namespace: "shop", Name: "a", UID: podKey(0), Node: "n1", Labels: app("db"), Ready: true}
	a.pods["shop/b"] = &netmodel.Pod{Namespace: "shop", Name: "b", UID: podKey(1), Node: "n2", Labels: app("web"), Ready: true}
	a.pods["other/c"] = &netmodel.Pod{Namespace: "other", Name: "c", UID: podKey(2), Node: "n2", Labels: app("web"), Ready: true}
	a.all = []*netmodel.Pod{a.pods["shop/a"], a.pods["shop/b"], a.pods["other/c"]}
	return &serviceWorld{runController(t, w, &tested{c, queue, nil, a.api}), a, queue}
}

var onBlue = nbtest.Spec(`"subnets":"10.1.0.0/24"`)

const ownSpec = `{"clusterIP":"None","ports":[{"port":80,"targetPort":8080}]}`

// put makes a Service; without an address, a headless one.
func (w *serviceWorld) put(id, network, selector, address string) {
	annotations := map[string]string{service.NetworkAnnotation: network, service.SelectorAnnotation: selector}
	if address != "" {
		annotations[service.AddressAnnotation] = address
	}
	w.putWith(id, annotations, ownSpec)
}

func (w *serviceWorld) putWith(id string, annotations map[string]string, spec string) {
	namespace, name, _ := strings.Cut(id, "/")
	w.kube.with(func() {
		w.kube.services[id] = service.NewObject(namespace, name, 1,
			map[string]string{service.ProxyLabel: service.ProxyName}, annotations, []byte(spec))
	})
	w.queue.ServiceChanged(namespace, name)
}

func (w *serviceWorld) remove(id string) {
	namespace, name, _ := strings.Cut(id, "/")
	w.kube.with(func() { delete(w.kube.services, id) })
	w.queue.ServiceChanged(namespace, name)
}

// pod changes a pod.
func (w *serviceWorld) pod(id string, change func(*netmodel.Pod)) {
	w.kube.with(func() { change(w.kube.pods[id]) })
	namespace, name, _ := strings.Cut(id, "/")
	w.queue.BackendChanged(namespace, name)
}

// wantState waits for the state of a Service that has these words.
func (w *serviceWorld) wantServiceState(t *testing.T, id, words string) {
	t.Helper()
	eventually(t, "true", func() (got string) {
		w.kube.with(func() { got = w.kube.states[id] })
		if strings.Contains(got, words) {
			return "true"
		}
		return got
	})
}

// vips waits until NB has these vips of a Service on a network.
func (w *serviceWorld) wantVIPs(t *testing.T, network, id, want string) {
	t.Helper()
	eventually(t, want, func() string {
		row := w.Rows(t)["Load_Balancer"][ovndb.LoadBalancerKey(network, id, "tcp")]
		if row == nil {
			return "gone"
		}
		return row["vips"]
	})
}

// wantEndpoints waits until the EndpointSlices of a Service have these addresses and conditions.
func (w *serviceWorld) wantEndpoints(t *testing.T, id, want string) {
	t.Helper()
	eventually(t, want, func() string {
		var words []string
		w.kube.with(func() {
			for _, slice := range w.kube.slices[id] {
				for _, e := range slice.Endpoints {
					words = append(words, fmt.Sprintf("%s:%d %t", e.Addresses[0], *slice.Ports[0].Port, *e.Conditions.Ready))
				}
			}
		})
		return strings.Join(words, ", ")
	})
}

// TestService: a Service follows its network and its pods, and goes without residue.
func TestService(t *testing.T) {
	w := newServiceWorld(t)
	w.put("shop/web", "blue", "app=web", "10.1.0.5")
	w.wantServiceState(t, "shop/web", "NetworkAttachmentDefinition shop/blue does not exist")
	before := w.Rows(t)
	w.apply("shop/blue", onBlue)
	w.wantServiceState(t, "shop/web", `{"ready":true,"network":"shop/blue","addresses":["10.1.0.5"]`)
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.11:8080")
	w.wantEndpoints(t, "shop/web", "10.1.0.5:80 true")
	w.pod("shop/a", func(p *netmodel.Pod) { p.Labels = app("web") })
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.10:8080,10.1.0.11:8080")
	w.pod("shop/b", func(p *netmodel.Pod) { p.Ready = false })
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.10:8080")
	w.kube.with(func() { delete(w.kube.pods, "shop/a") })
	w.queue.BackendChanged("shop", "a")
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=")
	w.pod("shop/b", func(p *netmodel.Pod) { p.Ready = true })
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.11:8080")
	w.remove("shop/web")
	w.wantVIPs(t, "shop/blue", "shop/web", "gone")
	w.wantEndpoints(t, "shop/web", "")
	w.deleteNAD(t, "shop/blue")
	eventually(t, fmt.Sprint(len(before["Copp"])), func() string { return fmt.Sprint(len(w.Rows(t)["Copp"])) })
}

// TestBackendIsOneTransaction: on one row. Pods that a Service does not select, and other Services, cost no transaction.
func TestBackendIsOneTransaction(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	for _, name := range []string{"web", "other"} {
		w.put("shop/"+name, "blue", "app="+name, "auto")
		w.wantServiceState(t, "shop/"+name, `"ready":true`)
	}
	w.settle(t)
	w.Proxy.Reset()
	rows := map[string]bool{}
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["op"] == "update" || op["op"] == "insert" || op["op"] == "mutate" || op["op"] == "delete" {
				rows[fmt.Sprint(op["table"], op["where"])] = true
			}
		}
	})
	w.pod("shop/b", func(p *netmodel.Pod) { p.Ready = false })
	w.pod("shop/a", func(p *netmodel.Pod) { p.Ready = false })
	eventually(t, "true", func() string {
		for _, row := range w.Rows(t)["Load_Balancer"] {
			if strings.Contains(row["vips"], "10.1.0.11:") {
				return row["vips"]
			}
		}
		return "true"
	})
	w.settle(t)
	w.Proxy.Before(nil)
	if got := w.Proxy.Counts(); got.Committed != 1 || got.Refused != 0 || len(rows) != 1 {
		t.Errorf("%d transactions committed, %d refused, rows written: %v; want 1, 0 and one row", got.Committed,
			got.Refused, rows)
	}
}

// TestHeadless: NB has no load balancer of a headless Service. Its EndpointSlices have the addresses of its pods.
func TestHeadless(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	w.put("shop/web", "blue", "app", "")
	w.wantEndpoints(t, "shop/web", "10.1.0.10:8080 true, 10.1.0.11:8080 true")
	w.pod("shop/b", func(p *netmodel.Pod) { p.Ready, p.Ending = false, true })
	w.wantEndpoints(t, "shop/web", "10.1.0.10:8080 true, 10.1.0.11:8080 false")
	w.wantVIPs(t, "shop/blue", "shop/web", "gone")
}

// TestServiceMoves: to another network. On the former one, nothing of it stays.
func TestServiceMoves(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	w.apply("shop/green", `{"type":"ovn-multinet","subnets":"10.2.0.0/24"}`)
	w.put("shop/web", "blue", "app=web", "auto")
	w.wantServiceState(t, "shop/web", `"network":"shop/blue"`)
	w.put("shop/web", "green", "app=web", "10.2.0.7")
	w.wantServiceState(t, "shop/web", `"network":"shop/green","addresses":["10.2.0.7"]`)
	w.wantVIPs(t, "shop/blue", "shop/web", "gone")
	w.wantVIPs(t, "shop/green", "shop/web", "10.2.0.7:80=")
}

// TestInvalidEditOfService: what NB has stays, and follows the pods.
func TestInvalidEditOfService(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	w.put("shop/web", "blue", "app=web", "10.1.0.5")
	w.wantServiceState(t, "shop/web", `"ready":true`)
	for _, edit := range []struct{ network, selector, address, why string }{
		{"blue", "app=web", "10.9.0.5", "10.9.0.5"},
		{"blue", "app==(", "10.1.0.5", "ovn-multinet/service-selector"},
		{"red", "app=web", "10.1.0.5", "NetworkAttachmentDefinition shop/red does not exist"},
	} {
		w.put("shop/web", edit.network, edit.selector, edit.address)
		w.wantServiceState(t, "shop/web", edit.why)
		w.wantServiceState(t, "shop/web", "; what was accepted before stays")
		w.wantServiceState(t, "shop/web", `"network":"shop/blue","addresses":["10.1.0.5"]`)
	}
	w.pod("shop/a", func(p *netmodel.Pod) { p.Labels = app("web") })
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.10:8080,10.1.0.11:8080")
}

// TestServiceAddressIsGivenUp: a Service gets its address after the pod that has it ends, which no Service hears of.
func TestServiceAddressIsGivenUp(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	w.wantState(t, "shop/blue", "ready, held")
	w.Pod(t, "blue", "10.1.0.77", "web-0", "net1")
	w.put("shop/db", "blue", "app=db", "10.1.0.77")
	w.wantServiceState(t, "shop/db", "web-0")
	w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"ports": ovndbtest.Set[any]()})
	w.wantServiceState(t, "shop/db", `"ready":true`)
}

// TestServiceOfAnotherNamespace: a Service on a network of another namespace needs a pod of its own there.
func TestServiceOfAnotherNamespace(t *testing.T) {
	w := newServiceWorld(t)
	w.kube.with(func() { // a manifest may have no UID
		w.kube.pods["third/c"] = &netmodel.Pod{Namespace: "third", Name: "c", Node: "n2", Labels: app("web"), Ready: true}
	})
	w.apply("shop/blue", onBlue)
	w.put("third/web", "shop/blue", "app=web", "auto")
	w.wantServiceState(t, "third/web", "a Service on a network of another namespace needs one")
	w.put("other/web", "shop/blue", "app=web", "10.1.0.6")
	w.wantServiceState(t, "other/web", `"ready":true`)
	w.wantVIPs(t, "shop/blue", "other/web", "10.1.0.6:80=10.1.0.12:8080") // and not pods of shop
	w.wantVIPs(t, "shop/blue", "third/web", "gone")
}

// TestServicesPerNamespace: a Service beyond the limit is served when another one is gone.
func TestServicesPerNamespace(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	for i := range 3 {
		w.put(fmt.Sprint("shop/s", i), "blue", "app=web", "auto")
		w.wantServiceState(t, fmt.Sprint("shop/s", i), `"ready":true`)
	}
	w.put("shop/s3", "blue", "app=web", "auto")
	w.wantServiceState(t, "shop/s3", "namespace shop has 3 Services on networks, the limit")
	w.put("other/s", "shop/blue", "app=web", "auto")
	w.wantServiceState(t, "other/s", `"ready":true`)
	w.remove("shop/s1")
	w.wantServiceState(t, "shop/s3", `"ready":true`)
}

// next starts the next controller, after the former one was stopped.
func (w *serviceWorld) next(t *testing.T, operator configfile.Config) *serviceWorld {
	t.Helper()
	queue := controller.NewQueue(quiet)
	c := controller.New(controller.Config{
		NB: w.Networks.DB, Source: w.kube.api, Queue: queue, Metrics: controller.NewMetrics(queue, w.Networks.DB),
		WidestIPAM: w.Networks.Widest, Leading: leads, Log: quiet, Services: w.kube, Ports: w.kube, MaxServices: 3,
		Operator: operator,
	})
	return &serviceWorld{runController(t, w.World, &tested{c, queue, nil, w.kube.api}), w.kube, queue}
}

// TestLimitOfNextController: a controller that begins counts the Services of which NB has rows, also those that it has
// not read yet.
func TestLimitOfNextController(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	for i := range 3 {
		w.put(fmt.Sprint("shop/s", i), "blue", "app=web", "auto")
		w.wantServiceState(t, fmt.Sprint("shop/s", i), `"ready":true`)
	}
	w.stop()
	w.kube.with(func() { delete(w.kube.states, "shop/s0") })
	w.put("shop/beyond", "blue", "app=web", "auto") // its pass may be the first one
	next := w.next(t, configfile.Config{})
	next.queue.ServiceChanged("shop", "beyond")
	next.wantServiceState(t, "shop/s0", `"ready":true`)
	next.wantServiceState(t, "shop/beyond", "namespace shop has 3 Services on networks, the limit")
}

// TestServiceGoneMeanwhile: a controller that begins to lead deletes the rows of a Service that is gone.
func TestServiceGoneMeanwhile(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	w.put("shop/web", "blue", "app=web", "auto")
	w.wantServiceState(t, "shop/web", `"ready":true`)
	w.stop()
	w.kube.with(func() { delete(w.kube.services, "shop/web") })
	next := w.next(t, configfile.Config{})
	next.wantVIPs(t, "shop/blue", "shop/web", "gone")
}

// TestLastServicesAtOnce: of two controllers that each delete one of the last two Services, the later one deletes the
// group of load balancers and the private router.
func TestLastServicesAtOnce(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	for _, id := range []string{"shop/web", "shop/db", "shop/former"} {
		w.put(id, "blue", "app=web", "auto")
		w.wantServiceState(t, id, `"ready":true`)
	}
	// The row of ended links is there already: two controllers that both insert it would not write at once.
	w.remove("shop/former")
	eventually(t, "2", func() string { return fmt.Sprint(len(w.Rows(t)["Load_Balancer"])) })
	w.settle(t)
	w.Meanwhile(t, "Load_Balancer", func() {
		if _, err := services.New(nbrows.NewStore(w.Other(t).DB)).Delete(nbtest.WithLimit(t), "shop/blue", "shop/db"); err != nil {
			t.Error(err)
		}
	})
	w.remove("shop/web")
	eventually(t, "0 groups, 0 routers", func() string {
		rows := w.Rows(t)
		return fmt.Sprintf("%d groups, %d routers", len(rows["Load_Balancer_Group"]), len(rows["Logical_Router"]))
	})
}

// TestDetachedWithServices: a network that may no longer be on its router loses the router's Services at once, and keeps
// its own.
func TestDetachedWithServices(t *testing.T) {
	w := newServiceWorld(t)
	const consent = `{"type":"ovn-multinet","subnets":"10.2.0.0/24","router":"core","routerGuests":[{"namespace":"shop","subnets":"10.1.0.0/16"}]}`
	w.apply("other/red", consent)
	w.apply("shop/blue", nbtest.Spec(`"subnets":"10.1.0.0/24","router":"other/core"`))
	w.put("shop/web", "blue", "app=web", "10.1.0.5")
	w.wantServiceState(t, "shop/web", `"ready":true`)
	w.put("other/api", "red", "app=web", "auto")
	w.wantServiceState(t, "other/api", `"ready":true`)
	groups := func(network string) string {
		return w.Rows(t)["Logical_Switch"][ovndb.SwitchKey(network)]["load_balancer_group"]
	}
	router := ovndb.ServiceGroupKey("router other/core")
	eventually(t, "true", func() string {
		return fmt.Sprint(strings.Contains(groups("shop/blue"), router) && strings.Contains(groups("other/red"), router))
	})
	w.apply("other/red", `{"type":"ovn-multinet","subnets":"10.2.0.0/24","router":"core"}`)
	own := ovndb.ServiceGroupKey("network shop/blue")
	eventually(t, own+" and "+router, func() string { return groups("shop/blue") + " and " + groups("other/red") })
	eventually(t, ovndb.LoadBalancerKey("other/red", "other/api", "tcp"), func() string {
		return w.Rows(t)["Load_Balancer_Group"][router]["load_balancer"]
	})
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.11:8080")
}

// TestNBWipedWithServices: Services return, with the pods whose ports come later.
func TestNBWipedWithServices(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", onBlue)
	w.put("shop/web", "blue", "app=web", "10.1.0.5")
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.11:8080")
	var ports []*netmodel.Pod
	w.kube.with(func() { ports, w.kube.all = w.kube.all, nil })
	w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Logical_Switch", "where": []any{}},
		ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{}},
		ovndbtest.Op{"op": "delete", "table": "Load_Balancer_Group", "where": []any{}},
		ovndbtest.Op{"op": "delete", "table": "Logical_Router", "where": []any{}},
		ovndbtest.Op{"op": "delete", "table": "Load_Balancer", "where": []any{}})
	w.queue.NBReplaced()
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=")
	w.kube.with(func() { w.kube.all = ports }) // no event tells that
	w.wantVIPs(t, "shop/blue", "shop/web", "10.1.0.5:80=10.1.0.11:8080")
}
