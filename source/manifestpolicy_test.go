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
	told := ""
	m, err := NewManifests(f.dir, Changes{
		Policy: func(string) {}, Pod: func(string, string, bool) {}, PodGone: func(string, string) {},
		Namespace: func(name string) { told += name + " " },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.write("pod.yaml", podYAML("web-0", "u1", "x"))
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
}
