package source

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

const headlessSpec = `{"clusterIP":"None","ports":[{"port":80}]}`

// addService stores a Service of ours, in namespace shop.
func (s *apiServer) addService(t *testing.T, name, spec string) {
	t.Helper()
	s.put("services", "shop", name, object(t, `{"kind":"Service","apiVersion":"v1","metadata":{`+
		`"labels":{"service.kubernetes.io/service-proxy-name":"ovn-multinet"},"annotations":{`+
		`"ovn-multinet/service-network":"blue","ovn-multinet/service-selector":"app=web"}},"spec":`+spec+`}`))
}

// told waits until the source tells of a Service, and returns how often it has told of others before.
func told(t *testing.T, from chan string, want string) (others []string) {
	t.Helper()
	for {
		got := <-from
		if got == want {
			return others
		}
		others = append(others, got)
	}
}

func labelled(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		all := map[string]string{}
		maps.Copy(all, o.GetLabels())
		if all[key] = value; value == "" {
			delete(all, key)
		}
		o.SetLabels(all)
	}
}

func annotated(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		all := map[string]string{}
		maps.Copy(all, o.GetAnnotations())
		all[key] = value
		o.SetAnnotations(all)
	}
}

// TestKubeServices: only what changes a Service is told. Services without our label are not read at all.
func TestKubeServices(t *testing.T) {
	s := newAPIServer()
	s.addService(t, "web", headlessSpec)
	s.put("services", "shop", "other", object(t, `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"x"}},"spec":{}}`))
	s.put("services", "shop", "plain", object(t, `{"spec":{}}`))
	k := s.start(t)
	one := func(want string) *service.Object {
		t.Helper()
		all, err := k.Services(background, "shop")
		if err != nil || len(all) != 1 || all[0].ID() != "shop/web" || !strings.Contains(all[0].Refusal, want) {
			t.Fatalf("Services %+v, %v; want shop/web with the refusal %q", all, err, want)
		}
		o, err := k.Service(background, "shop", "web")
		if err != nil || o != all[0] {
			t.Errorf("Service %+v, %v; want %+v", o, err, all[0])
		}
		return o
	}
	if o := one(""); o.Service == nil || o.UID != string(s.get("services", "shop", "web").GetUID()) {
		t.Errorf("Service %+v", o)
	}
	if o, err := k.Service(background, "shop", "plain"); o != nil || err != nil {
		t.Errorf("a Service without our label: %+v, %v", o, err)
	}
	if namespaces, err := k.ServiceNamespaces(background); err != nil || !slices.Equal(namespaces, []string{"shop"}) {
		t.Errorf("namespaces %q, %v", namespaces, err)
	}
	told(t, s.services, "shop/web")

	spec := func(text string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { o.Object["spec"] = object(t, text).Object }
	}
	for _, tt := range []struct {
		name    string
		edit    func(*unstructured.Unstructured)
		refusal string
	}{
		{"an unknown field", spec(`{"clusterIP":"None","portz":1}`), "portz"},
		{"the spec", spec(`{"clusterIP":"None","ports":[{"port":81}]}`), ""},
		{"an annotation", annotated(service.AddressAnnotation, "auto"), ""},
		{"a misspelt annotation", annotated("ovn-multinet/service-adress", "auto"), "service-adress"},
		{"its UID", func(o *unstructured.Unstructured) { o.SetUID("another") }, ""},
	} {
		// None of these is told. Which one comes last does not matter: the source hears of all before the next change.
		s.edit("services", "shop", "web", annotated(service.StateAnnotation, tt.name))
		s.edit("services", "shop", "web", annotated("example.com/x", tt.name))
		s.edit("services", "shop", "web", labelled("app", "x"))
		s.edit("services", "shop", "web", tt.edit)
		<-s.services
		if n := len(s.services); n != 0 {
			t.Errorf("%s: told %d times too often", tt.name, n)
		}
		if tt.refusal != "" {
			one(tt.refusal)
		}
	}
	if all, err := k.AllServices(background); err != nil || len(all) != 1 || all[0].UID != "another" || all[0].State != "its UID" {
		t.Errorf("all Services %+v, %v", all, err)
	}
	s.edit("services", "shop", "web", labelled(service.ProxyLabel, ""))
	<-s.services
	if o, err := k.Service(background, "shop", "web"); o != nil || err != nil {
		t.Errorf("after the label was removed: %+v, %v", o, err)
	}
	s.edit("services", "shop", "web", labelled(service.ProxyLabel, service.ProxyName))
	<-s.services
	s.put("services", "shop", "web", nil)
	<-s.services
	if all, err := k.Services(background, "shop"); err != nil || len(all) != 0 {
		t.Errorf("after the deletion: %+v, %v", all, err)
	}
}

// TestKubeServiceIngress: the outside addresses of a Service are in its status, and are read from there.
func TestKubeServiceIngress(t *testing.T) {
	s := newAPIServer()
	s.addService(t, "web", `{"type":"LoadBalancer","loadBalancerClass":"ovn-multinet/gateway","ports":[{"port":80}]}`)
	k := s.start(t)
	o := &service.Object{Namespace: "shop", Name: "web", UID: "u1"}
	for _, want := range [][]netip.Addr{
		{netip.MustParseAddr("192.0.2.17"), netip.MustParseAddr("2001:db8::11")}, {},
	} {
		if err := k.SetServiceIngress(background, o, want); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprint(want), func() string {
			now, err := k.Service(background, "shop", "web")
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(now.Ingress)
		})
		if got := s.wrote(); got != "PATCH shop/web" {
			t.Errorf("written: %s", got)
		}
	}
	o.Name = "none"
	if err := k.SetServiceIngress(background, o, nil); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("status of a Service that is gone: %v", err)
	}
}

// TestKubeServiceState: the state is the only thing that is written.
func TestKubeServiceState(t *testing.T) {
	s := newAPIServer()
	s.addService(t, "web", headlessSpec)
	k := s.start(t)
	o := &service.Object{Namespace: "shop", Name: "web", UID: "u1"}
	if err := k.SetServiceState(background, o, `{"ready":true}`); err != nil {
		t.Fatal(err)
	}
	after := s.get("services", "shop", "web")
	if got := after.GetAnnotations()[service.StateAnnotation]; got != `{"ready":true}` || len(after.GetAnnotations()) != 3 ||
		s.wrote() != "PATCH shop/web" {
		t.Errorf("annotations %v", after.GetAnnotations())
	}
	o.Name = "none"
	if err := k.SetServiceState(background, o, "{}"); !errors.Is(err, netmodel.ErrNotFound) || err.Error() != "shop/none: "+netmodel.ErrNotFound.Error() {
		t.Errorf("state of a Service that is gone: %v", err)
	}
	k.ServiceEvent(o, true, "Refused", "why\nnot")
	eventually(t, "Service shop/none u1 ovn-multinet Warning: why not", func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		for key, e := range s.objects {
			if strings.HasPrefix(key, "events/shop/") {
				ref := e.Object["involvedObject"].(map[string]any)
				source := e.Object["source"].(map[string]any)
				return fmt.Sprintf("%s %s/%s %s %s %s: %s", ref["kind"], ref["namespace"], ref["name"], ref["uid"],
					source["component"], e.Object["type"], e.Object["message"])
			}
		}
		return ""
	})
}

// TestKubeWithoutServices: pods are not read before there is a Service, and namespaces not for Services at all.
func TestKubeWithoutServices(t *testing.T) {
	s := newAPIServer()
	s.put("services", "shop", "plain", object(t, `{"spec":{}}`))
	k := s.start(t)
	if all, err := k.Services(background, "shop"); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := k.SetEndpoints(background, &service.Object{Namespace: "shop", Name: "web"}, nil); err != nil {
		t.Error(err) // without slices too
	}
	asked := func(what string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Contains(s.requests, "GET "+what)
	}
	if asked("pods") || k.policyPods.HasSynced() {
		t.Error("pods are read without a Service")
	}
	s.addService(t, "web", headlessSpec)
	told(t, s.services, "shop/web")
	eventually(t, "true", func() string { return fmt.Sprint(k.policyPods.HasSynced()) })
	if asked("namespaces") {
		t.Error("namespaces are read for Services")
	}
}

// TestPolicyPodsAreReadWhenAsked: a caller does not wait for a policy or a Service that nobody makes.
func TestPolicyPodsAreReadWhenAsked(t *testing.T) {
	k := newAPIServer().start(t)
	if pods, err := k.PolicyPods(background, "shop"); err != nil || len(pods) != 0 {
		t.Errorf("pods %+v, %v", pods, err)
	}
}

func podJSON(t *testing.T, uid, meta, status string) *unstructured.Unstructured {
	return object(t, fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"uid":%q,"labels":{"app":"web"},"annotations":{"k8s.v1.cni.cncf.io/networks":"blue"%s}},`+
		`"spec":{"nodeName":"n1","hostname":"web-0","subdomain":"web",%s},"status":%s}`, uid, meta, namedPort, status))
}

// statusOf is a network-status with an address on network blue.
func statusOf(address string) string {
	return fmt.Sprintf(`,"k8s.v1.cni.cncf.io/network-status":"[{\"name\":\"cbr0\"},{\"name\":\"shop/blue\",\"ips\":[\"%s\"]}]"`, address)
}

const isReadyJSON, isNotReadyJSON = `{"conditions":[{"type":"Ready","status":"True"}]}`, `{"conditions":[{"type":"Ready","status":"False"}]}`

// TestKubeBackends: a pod is told of when something has changed that Services need, and not otherwise.
func TestKubeBackends(t *testing.T) {
	s := newAPIServer()
	s.addService(t, "web", headlessSpec)
	s.put("pods", "shop", "before", podJSON(t, "u0", statusOf("10.1.0.2"), isReadyJSON))
	s.put("pods", "shop", "new", podJSON(t, "u1", "", isNotReadyJSON))
	s.put("pods", "shop", "plain", object(t, `{"kind":"Pod","apiVersion":"v1","metadata":{"uid":"u2"},"status":`+isReadyJSON+`}`))
	k := s.start(t)
	if others := told(t, s.backends, "shop/before"); len(others) != 0 {
		t.Errorf("told of %q, which have no networks yet", others)
	}
	pod := func() *netmodel.Pod {
		t.Helper()
		pods, err := k.PolicyPods(background, "shop")
		if err != nil || len(pods) != 2 {
			t.Fatalf("pods %+v, %v", pods, err)
		}
		return pods[slices.IndexFunc(pods, func(p *netmodel.Pod) bool { return p.Name == "new" })]
	}
	if p := pod(); p.Hostname != "web-0" || p.Subdomain != "web" || p.Ready || p.Ending {
		t.Errorf("pod %+v", p)
	}
	field := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
				t.Error(err)
			}
		}
	}
	condition := func(kind, status string) func(*unstructured.Unstructured) {
		return field([]any{map[string]any{"type": kind, "status": status}}, "status", "conditions")
	}
	const network, deleted = "k8s.v1.cni.cncf.io/network-status", "2026-01-02T03:04:05Z"
	for _, tt := range []struct {
		name          string
		edit          func(*unstructured.Unstructured)
		ready, ending bool
	}{
		{"networks", annotated(network, `[{"name":"cbr0"},{"name":"shop/blue","ips":["10.1.0.3"]}]`), false, false},
		{"readiness", condition("Ready", "True"), true, false},
		{"labels", labelled("app", "db"), true, false},
		{"other addresses", annotated(network, `[{"name":"cbr0"},{"name":"shop/blue","ips":["10.1.0.4"]}]`), true, false},
		{"no readiness", condition("Ready", "False"), false, false},
		{"a state of outside addresses", func(o *unstructured.Unstructured) {
			condition("Ready", "False")(o)
			all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			field(append(all, map[string]any{"type": conf.OutsideCondition, "status": "True", "reason": "Forged"}), "status", "conditions")(o)
		}, false, false},
		{"its end", field(deleted, "metadata", "deletionTimestamp"), false, true},
	} {
		s.edit("pods", "shop", "new", field(tt.name, "status", "message"))
		s.edit("pods", "shop", "new", annotated("example.com/x", tt.name))
		s.edit("pods", "shop", "plain", labelled("a", "b"))
		s.edit("pods", "shop", "new", tt.edit)
		if got := <-s.backends; got != "shop/new" || len(s.backends) != 0 {
			t.Errorf("%s: told of %s and %d more", tt.name, got, len(s.backends))
		}
		if p := pod(); p.Ready != tt.ready || p.Ending != tt.ending {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
	s.put("pods", "shop", "plain", nil)
	s.put("pods", "shop", "new", nil)
	if got := <-s.backends; got != "shop/new" || len(s.backends) != 0 {
		t.Errorf("after the deletion told of %s and %d more", got, len(s.backends))
	}
	// The source may miss a deletion.
	s.edit("pods", "shop", "before", func(o *unstructured.Unstructured) { o.SetUID("u9") })
	if got := <-s.backends; got != "shop/before" || len(s.backends) != 0 {
		t.Errorf("after a new pod of the same name told of %s and %d more", got, len(s.backends))
	}
}

// TestListedPodIsTrimmedTwice: an informer trims a listed pod twice, and one that it hears of once. Both are the same.
func TestListedPodIsTrimmedTwice(t *testing.T) {
	whole := apiPod("web-0", "u1", map[string]string{
		"k8s.v1.cni.cncf.io/networks": "blue", "k8s.v1.cni.cncf.io/network-status": `[{"name":"a"},{"name":"b"}]`,
	})
	whole.Spec.Hostname, whole.Status.Conditions = "web-0", readyCondition
	once := policyPod(whole)
	if twice := policyPod(once); fmt.Sprint(twice) != fmt.Sprint(once) || !ready(twice) || twice.Spec.Hostname != "web-0" {
		t.Errorf("%+v\nonce\n%+v", twice, once)
	}
	whole.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if p := policyPod(whole); ready(p) || !isEnding(p) {
		t.Errorf("a pod that is being deleted is ready: %+v", p)
	}
}

// TestBoundaryLargeServicesAreNotKept: what tenants write into Services, and others into slices, does not fill the
// memory.
func TestBoundaryLargeServicesAreNotKept(t *testing.T) {
	const number, room = 50, 50 * 20 << 10
	sizes, patience := map[int]uint64{}, time.Now().Add(time.Minute)
	for _, size := range []int{1, 200 << 10} {
		s := newAPIServer()
		for i := range number {
			name := fmt.Sprint("web", i)
			s.addService(t, name, headlessSpec)
			s.edit("services", "shop", name, annotated("example.com/x", strings.Repeat("x", size)))
			slice := slice(name, "10.1.0.2")
			slice.Annotations = map[string]string{"example.com/x": strings.Repeat("x", size)}
			s.putSlice(t, name, slice)
		}
		before := heap()
		k := s.start(t)
		eventually(t, fmt.Sprint(number, number), func() string {
			return fmt.Sprint(len(k.services.List()), len(k.slices.informer.GetStore().List()))
		})
		// A goroutine may have a whole list for a moment more.
		kept := func() uint64 { now := heap(); return now - min(before, now) }
		for sizes[size] = kept(); size > 1 && sizes[size] > sizes[1]+room && time.Now().Before(patience); {
			sizes[size] = kept()
		}
		if all, err := k.Services(background, "shop"); err != nil || len(all) != number {
			t.Errorf("%d Services, %v", len(all), err)
		}
	}
	if sizes[200<<10] > sizes[1]+room {
		t.Errorf("%d bytes are kept of large Services and slices, %d of small ones", sizes[200<<10], sizes[1])
	}
}
