package source

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestNamespacesWithoutManifest: pods and policies name namespaces too. Each is told once, as a namespace of the API.
func TestNamespacesWithoutManifest(t *testing.T) {
	f := newFolder(t)
	told, ports := "", ""
	m, err := NewManifests(f.dir, Changes{
		Policy: func(string) {}, Pod: func(string, string, bool) {}, PodGone: func(string, string) {},
		Namespace: func(name string) { told += name + " " }, Ports: func(name string) { ports += name + " " },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.write("pod.yaml", podYAML("web-0", "u1", "x")+"---\napiVersion: v1\nkind: Pod\n"+
		"metadata: {namespace: shop, name: web-1, annotations: {k8s.v1.cni.cncf.io/networks: x}}\n"+
		"spec: {containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}\n")
	f.write("policy.yaml", "apiVersion: k8s.cni.cncf.io/v1beta1\nkind: MultiNetworkPolicy\n"+
		"metadata: {namespace: web, name: p}\nspec: {podSelector: {}}\n")
	for range 2 {
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := m.Namespaces(background)
	names := strings.Join(slices.Sorted(maps.Keys(all)), " ")
	words := strings.Join(slices.Sorted(slices.Values(strings.Fields(told))), " ")
	if err != nil || names != "shop web" || words != names {
		t.Errorf("namespaces %q, told %q, %v; want shop and web", names, words, err)
	}
	if ports != "shop " {
		t.Errorf("told of pods with named ports in %q, want shop once", ports)
	}
}

// TestManifestsAttachedBeforeKnown: a pod that has its ports when the source first sees the pod is told of, as one that
// gets them later is: its labels may have changed since its agent read them.
func TestManifestsAttachedBeforeKnown(t *testing.T) {
	f := newFolder(t)
	var attached []string
	m, err := NewManifests(f.dir, Changes{
		Policy: func(string) {}, Ports: func(string) {}, PodGone: func(string, string) {}, Namespace: func(string) {},
		Pod: func(namespace, uid string, _ bool) { attached = append(attached, namespace+" "+uid) },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.write("u1"+statusSuffix, "{}")
	f.write("a.yaml", podYAML("web-0", "u1", "blue")+"---\n"+podYAML("web-1", "u2", "blue"))
	if err := m.scan(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(attached, ", "); got != "shop u1" {
		t.Errorf("told of %q", got)
	}
}
