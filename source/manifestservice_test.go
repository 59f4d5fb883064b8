package source

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// serviceYAML is a Service of ours; more are further fields of its spec.
func serviceYAML(name, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  namespace: shop
  name: %s
  labels: {service.kubernetes.io/service-proxy-name: ovn-multinet}
  annotations: {ovn-multinet/service-network: blue, ovn-multinet/service-selector: app=web}
spec: {clusterIP: None, ports: [{port: 80}]%s}
`, name, more)
}

// services opens the folder as a controller does. The second result is what it is told.
func (f folder) services() (*Manifests, *names, *names) {
	f.t.Helper()
	told, backends := &names{}, &names{}
	m, err := NewManifests(f.dir, Changes{
		Policy: func(string) {}, Pod: func(string, string, bool) {}, PodGone: func(string, string) {},
		Namespace: func(string) {}, Ports: func(string) {}, Service: told.changed, Backend: backends.changed,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	return m, told, backends
}

// TestManifestServices: ours alone are read, one that cannot be served is refused, and each change is told once.
func TestManifestServices(t *testing.T) {
	f := newFolder(t)
	f.write("others.yaml", strings.Replace(serviceYAML("x", ""), "name: ovn-multinet}", "name: other, other: 1}", 1)+
		"---\n"+strings.Replace(serviceYAML("y", ""), "apiVersion: v1", "apiVersion: serving.knative.dev/v1", 1)+
		"---\nkind: Service\napiVersion: v1\nspec: {a: 1, a: 2}\n")
	f.write("web.yaml", serviceYAML("web", ""))
	f.write("bad.yaml", serviceYAML("bad", ", portz: 1"))
	m, told, _ := f.services()
	scan := func(want string) {
		t.Helper()
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
		if got := told.take(); got != want {
			t.Errorf("told of %q, want %q", got, want)
		}
	}
	scan("shop/bad shop/web")
	scan("")
	if broken := m.broken(); broken != "" {
		t.Errorf("%s is broken", broken)
	}
	all, err := m.AllServices(background)
	slices.SortFunc(all, func(a, b *service.Object) int { return strings.Compare(a.Name, b.Name) })
	if err != nil || len(all) != 2 || !strings.Contains(all[0].Refusal, "portz") || all[1].Service == nil {
		t.Fatalf("Services %+v, %v", all, err)
	}
	if of, err := m.Services(background, "shop"); err != nil || len(of) != 2 {
		t.Errorf("Services of shop: %+v, %v", of, err)
	}
	if of, err := m.Services(background, "other"); err != nil || len(of) != 0 {
		t.Errorf("Services of other: %+v, %v", of, err)
	}
	if namespaces, err := m.ServiceNamespaces(background); err != nil || !slices.Equal(namespaces, []string{"shop"}) {
		t.Errorf("namespaces %q, %v", namespaces, err)
	}
	if o, err := m.Service(background, "shop", "x"); o != nil || err != nil {
		t.Errorf("another program's: %+v, %v", o, err)
	}

	web := all[1]
	if err := m.SetServiceState(background, web, `{"ready":true}`); err != nil {
		t.Fatal(err)
	}
	const file = "shop.web.service.json"
	if text := f.read(file); text != "{\n  \"namespace\": \"shop\",\n  \"name\": \"web\",\n  \"service\": {\n    \"ready\": true\n  }\n}\n" {
		t.Errorf("%s: %s", file, text)
	}
	scan("")
	if o, err := m.Service(background, "shop", "web"); err != nil || strings.Join(strings.Fields(o.State), "") != `{"ready":true}` {
		t.Errorf("Service %+v, %v", o, err)
	}
	if err := m.SetEndpoints(background, web, nil); err != nil {
		t.Error(err)
	}
	f.write("web.yaml", serviceYAML("web", ", publishNotReadyAddresses: true"))
	scan("shop/web")
	f.write("web.yaml", "{")
	scan("")
	if o, err := m.Service(background, "shop", "web"); err != nil || o == nil {
		t.Errorf("the last valid content is not kept: %v", err)
	}
	f.remove("web.yaml")
	scan("shop/web")
	if text := f.read(file); text != "" {
		t.Errorf("without the Service, %s has %s", file, text)
	}
	if err := m.SetServiceState(background, web, "{}"); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("state of a Service that is gone: %v", err)
	}
}

// TestManifestBackends: a pod is ready unless its manifest says otherwise. It is told of when something has changed that
// Services need.
func TestManifestBackends(t *testing.T) {
	f := newFolder(t)
	web := podYAML("web-0", "u1", "blue")
	f.write("pod.yaml", web)
	f.write("plain.yaml", "kind: Pod\napiVersion: v1\nmetadata: {namespace: shop, name: plain, uid: u2}\n")
	m, _, backends := f.services()
	scan := func(what, want string) {
		t.Helper()
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
		if got := backends.take(); got != want {
			t.Errorf("%s: told of %q, want %q", what, got, want)
		}
	}
	state := func(want string) {
		t.Helper()
		pods, err := m.PolicyPods(background, "shop")
		if err != nil || len(pods) != 1 {
			t.Fatalf("pods %+v, %v", pods, err)
		}
		p := pods[0]
		if got := fmt.Sprintf("%t %t %s %s", p.Ready, p.Ending, p.Hostname, p.Subdomain); got != want {
			t.Errorf("pod %s, want %s", got, want)
		}
	}
	scan("a new pod without networks yet", "")
	state("true false  ")
	p, err := m.Pod(background, "shop", "web-0", "u1")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is that of another sandbox
		if err := m.SetStatus(background, p, []byte("[]")); err != nil {
			t.Fatal(err)
		}
		scan("a status", "shop/web-0")
		scan("nothing", "")
	}
	if _, _, others := f.services(); others.take() != "shop/web-0" {
		t.Error("a controller that starts is not told of a pod with networks")
	}
	f.write("pod.yaml", web+"status: {conditions: [{type: Ready, status: \"False\"}]}\n")
	scan("no readiness", "shop/web-0")
	state("false false  ")
	web += "  hostname: web-0\n  subdomain: web\nstatus: {conditions: [{type: Ready, status: \"True\"}, {type: x, status: \"False\"}]}\n"
	f.write("pod.yaml", web)
	scan("readiness and names", "shop/web-0")
	state("true false web-0 web")
	f.write("pod.yaml", strings.Replace(web, "metadata:", "metadata:\n  labels: {app: web}", 1))
	scan("labels", "shop/web-0")
	f.write("pod.yaml", strings.Replace(web, "u1", "u3", 1))
	scan("another pod", "shop/web-0")
	f.remove("pod.yaml")
	scan("its end", "shop/web-0")
}
