package source

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nodeYAML is a manifest of a node; labels are in YAML's short form.
func nodeYAML(name, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {%s}}\n", name, labels)
}

func TestManifestsNodes(t *testing.T) {
	const dumped = `apiVersion: v1
kind: Node
metadata: {name: node-1, uid: u1, resourceVersion: "7", creationTimestamp: "2025-01-01T00:00:00Z", labels: {zone: a}, annotations: {a: b}}
spec: {podCIDR: 10.244.1.0/24, taints: [{key: k, effect: NoSchedule}]}
status:
  conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2025-01-01T00:00:00Z"}]
  images: [{names: [i], sizeBytes: 1}]
`
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"an empty folder", nil, "unknown"},
		{"pods and NADs alone", map[string]string{"a.yaml": podYAML("web-0", "u1", "blue") + "---\n" + nadYAML("blue", "1")}, "unknown"},
		{"one", map[string]string{"a.yaml": nodeYAML("node-1", "")}, "node-1"},
		{"in the order of names, with their labels", map[string]string{
			"a.yaml": nodeYAML("node-2", "zone: b, gateway: ''") + "---\n" + podYAML("web-0", "u1", ""), "b.yml": nodeYAML("node-10", "") + "---\n" + nodeYAML("node-1", "zone: a")},
			"node-1 zone=a; node-10; node-2 gateway= zone=b"},
		{"as an API writes it", map[string]string{"a.yaml": dumped}, "node-1 zone=a"},
		{"one name twice: the first file counts", map[string]string{"b.yaml": nodeYAML("node-1", "zone: b"), "a.yaml": nodeYAML("node-1", "zone: a")}, "node-1 zone=a"},
		{"one name twice: the first without labels", map[string]string{"b.yaml": nodeYAML("node-1", "zone: b"), "a.yaml": nodeYAML("node-1", "")}, "node-1"},
		{"one of two does not parse", map[string]string{"a.yaml": nodeYAML("node-1", ""), "b.yaml": "kind: Node\nmetadata: {na"}, "b.yaml is broken"},
		{"an unknown field", map[string]string{"a.yaml": nodeYAML("node-1", "") + "---\n" + nodeYAML("node-2", "") + "lables: {}\n"}, "a.yaml is broken"},
		{"no name", map[string]string{"a.yaml": nodeYAML("node-1", "") + "---\nkind: Node\nmetadata: {labels: {zone: a}}\n"}, "a.yaml is broken"},
		{"a label that is no text", map[string]string{"a.yaml": nodeYAML("node-1", "zone: [a]")}, "a.yaml is broken"},
		{"something else is broken, and may have been one", map[string]string{"a.yaml": nodeYAML("node-1", ""), "b.yaml": half}, "b.yaml is broken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFolder(t)
			m := f.manifests(nil)
			for name, text := range tt.files { // with no watch: the folder is read when it is asked
				f.overwrite(name, text)
			}
			all, err := m.Nodes(background)
			if got, want := showNodes(all, err), f.notUnderstood(tt.want); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if err != nil && all != nil {
				t.Errorf("some of them: %v", all)
			}
		})
	}
}

// watchNodes opens the folder, and counts what is told of nodes.
func (f folder) watchNodes(told *calls) *Manifests {
	f.t.Helper()
	m, err := NewManifests(f.dir, Changes{Nodes: told.changed}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// notUnderstood is want, with the words for a broken file made whole.
func (f folder) notUnderstood(want string) string {
	if name, ok := strings.CutSuffix(want, " is broken"); ok {
		return "manifest " + filepath.Join(f.dir, name) + " is not understood"
	}
	return want
}

func TestManifestsNodesWithoutAFolder(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nodeYAML("node-1", ""))
	m := f.manifests(nil)
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if all, err := m.Nodes(background); all != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, %v", all, err)
	}
}

// Each node that is new or gone or has other labels is told of, as the API does, and nothing else.
func TestManifestsTellOfNodes(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nodeYAML("node-1", "zone: a"))
	var told calls
	m := f.watchNodes(&told)
	const taint = "spec: {taints: [{key: k, effect: NoSchedule}]}\n"
	steps := []struct {
		name string
		do   func()
		want string
		told int64
	}{
		{"there at the start", func() {}, "node-1 zone=a", 1},
		{"nothing", func() {}, "node-1 zone=a", 0},
		{"a taint", func() { f.write("a.yaml", nodeYAML("node-1", "zone: a")+taint) }, "node-1 zone=a", 0},
		{"a pod and a NAD", func() { f.write("b.yaml", podYAML("web-0", "u1", "")+"---\n"+nadYAML("blue", "1")) }, "node-1 zone=a", 0},
		{"another value", func() { f.write("a.yaml", nodeYAML("node-1", "zone: b")) }, "node-1 zone=b", 1},
		{"one more label", func() { f.write("a.yaml", nodeYAML("node-1", "zone: b, gateway: ''")) }, "node-1 gateway= zone=b", 1},
		{"two are new", func() { f.write("c.yaml", nodeYAML("node-2", "")+"---\n"+nodeYAML("node-3", "")) }, "node-1 gateway= zone=b; node-2; node-3", 2},
		{"one takes the place of another", func() { f.write("c.yaml", nodeYAML("node-2", "")+"---\n"+nodeYAML("node-4", "")) },
			"node-1 gateway= zone=b; node-2; node-4", 2},
		{"moved to another file", func() {
			f.write("d.yaml", nodeYAML("node-1", "zone: b, gateway: ''"))
			f.remove("a.yaml")
		}, "node-1 gateway= zone=b; node-2; node-4", 0},
		{"a file breaks", func() { f.overwrite("c.yaml", half) }, "c.yaml is broken", 0},
		{"it is as before", func() { f.write("c.yaml", nodeYAML("node-2", "")+"---\n"+nodeYAML("node-4", "")) }, "node-1 gateway= zone=b; node-2; node-4", 0},
		{"a file goes", func() { f.remove("c.yaml") }, "node-1 gateway= zone=b", 2},
		{"the last goes: nothing is said of nodes any more", func() { f.remove("d.yaml") }, "unknown", 1},
	}
	for _, s := range steps {
		s.do()
		if got, want := showNodes(m.Nodes(background)), f.notUnderstood(s.want); got != want {
			t.Errorf("%s: nodes %q, want %q", s.name, got, want)
		}
		if got := told.take(); got != s.told {
			t.Errorf("%s: told %d times, want %d", s.name, got, s.told)
		}
	}
}

// With Run nobody has to ask.
func TestManifestsWatchNodes(t *testing.T) {
	f := newFolder(t)
	var told calls
	m := f.watchNodes(&told)
	start(t, m.Run)
	all := int64(0)
	steps := []struct {
		name string
		do   func()
	}{
		{"new", func() { f.write("a.yaml", nodeYAML("node-1", "")) }},
		{"labelled", func() { f.write("a.yaml", nodeYAML("node-1", "gateway: ''")) }},
		{"gone", func() { f.remove("a.yaml") }},
	}
	for i, s := range steps {
		s.do()
		eventually(t, fmt.Sprint(s.name, " ", i+1), func() string {
			all += told.take()
			return fmt.Sprint(s.name, " ", all)
		})
	}
}

// A folder that names nodes names all of them: a pod's node that is not among them is gone. Without any it does not know.
func TestManifestsInventoryOfNodes(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", ""))
	m := f.manifests(nil)
	steps := []struct {
		name string
		do   func()
		want string // of node-1
	}{
		{"no nodes", func() {}, ""},
		{"it and another", func() { f.write("n.yaml", nodeYAML("node-2", "")+"---\n"+nodeYAML("node-1", "")) }, ""},
		{"another", func() { f.write("n.yaml", nodeYAML("node-2", "")) }, "node node-1 is gone"},
		{"the other's file breaks", func() { f.overwrite("n.yaml", half) }, "n.yaml is broken"},
		{"no nodes any more", func() { f.remove("n.yaml") }, ""},
	}
	for _, s := range steps {
		s.do()
		c, err := m.Inventory(background)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		default:
			got = c.Gone("shop", "web-0", "u1", "node-1")
		}
		if want := f.notUnderstood(s.want); got != want {
			t.Errorf("%s: %q, want %q", s.name, got, want)
		}
		if err != nil && c != nil {
			t.Errorf("%s: some of them: %v", s.name, c)
		}
	}
}
