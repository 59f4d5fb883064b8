package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

var background = context.Background()

// Conformance: N-1
func TestManifestsRead(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		pod   string // shop/web-0
		nad   string // shop/blue
	}{
		{"a pod", map[string]string{"a.yaml": podYAML("web-0", "u1", "blue")}, "shop/web-0 u1 on node-1: blue", "not found"},
		{"a NAD", map[string]string{"a.yml": nadYAML("blue", "{}")}, "not found", "shop/blue: {}"},
		{"several documents", map[string]string{"a.yaml": "---\n" + podYAML("web-1", "u2", "") + "---\n" + podYAML("web-0", "u1", "blue") + "---\n" + nadYAML("blue", "{}") + "---\n"},
			"shop/web-0 u1 on node-1: blue", "shop/blue: {}"},
		{"JSON is YAML", map[string]string{"a.yaml": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":"u1"}}`}, "shop/web-0 u1 on : ", "not found"},
		{"comments only", map[string]string{"a.yaml": "# nothing\n\n---\n  # here\n", "b.yaml": nadYAML("blue", "{}"), "c.yaml": ""}, "not found", "shop/blue: {}"},
		{"unknown kinds are passed over", map[string]string{"a.yaml": "kind: Deployment\nspec: {anything: 1}\n---\n" + nadYAML("blue", "{}")}, "not found", "shop/blue: {}"},
		{"no YAML leaves its neighbours", map[string]string{"a.yaml": "{", "b.yaml": nadYAML("blue", "{}"), "c.yaml": podYAML("web-0", "u1", "")}, "shop/web-0 u1 on node-1: ", "shop/blue: {}"},
		{"no kind leaves its neighbours", map[string]string{"a.yaml": "metadata: {name: x}\n", "b.yaml": nadYAML("blue", "{}")}, "a.yaml is broken", "shop/blue: {}"},
		{"no name leaves its neighbours", map[string]string{"a.yaml": "kind: Pod\n", "b.yaml": "kind: NetworkAttachmentDefinition\n", "c.yaml": nadYAML("blue", "{}")}, "a.yaml is broken", "shop/blue: {}"},
		{"a broken document spoils its file", map[string]string{"a.yaml": nadYAML("blue", "{}") + "---\nkind: Pod\nmetadata: {name: web-0, namespace: shop}\nspek: {}\n"}, "a.yaml is broken", "a.yaml is broken"},
		{"other files are passed over", map[string]string{"a.yaml~": nadYAML("blue", "{}"), "b.txt": nadYAML("blue", "{}"), ".c.yaml": nadYAML("blue", "{}"), "d.json": nadYAML("blue", "{}")},
			"not found", "not found"},
		{"one name twice: the first file counts", map[string]string{"b.yaml": nadYAML("blue", "second"), "a.yaml": nadYAML("blue", "first")}, "not found", "shop/blue: first"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFolder(t)
			for name, text := range tt.files {
				f.overwrite(name, text)
			}
			m := f.manifests(nil)
			got := show(m.Pod(background, "shop", "web-0", ""))
			if want := f.absent(tt.pod, "shop/web-0", "pod not found"); got != want {
				t.Errorf("pod %q, want %q", got, want)
			}
			got = showNAD(m.NAD(background, "shop", "blue"))
			if want := f.absent(tt.nad, "shop/blue", "not found"); got != want {
				t.Errorf("NAD %q, want %q", got, want)
			}
		})
	}
}

func TestManifestsWithoutNamespace(t *testing.T) {
	f := newFolder(t)
	f.overwrite("a.yaml", "kind: Pod\nmetadata: {name: p}\n---\nkind: NetworkAttachmentDefinition\nmetadata: {name: net}\nspec: {config: x}\n")
	m := f.manifests(nil)
	if got := show(m.Pod(background, "default", "p", "")); got != "default/p  on : " {
		t.Errorf("pod %q", got)
	}
	if got := showNAD(m.NAD(background, "default", "net")); got != "default/net: x" {
		t.Errorf("NAD %q", got)
	}
}

func TestManifestsNameTheBrokenFile(t *testing.T) {
	f := newFolder(t)
	f.overwrite("a.yaml", nadYAML("blue", "{}")+"---\nkind: Pod\n")
	log, text := logged()
	if _, err := NewManifests(f.dir, Changes{}, log); err != nil {
		t.Fatal(err)
	}
	if got := text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "file="+f.dir+"/a.yaml") || !strings.Contains(got, `document 1: Pod without metadata.name`) {
		t.Errorf("log %s", got)
	}
}

func TestManifestsWithoutAFolder(t *testing.T) {
	_, err := NewManifests(filepath.Join(t.TempDir(), "none"), Changes{}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "manifests: ") {
		t.Errorf("%v", err)
	}
}

func TestNotFoundIsAnError(t *testing.T) {
	m := newFolder(t).manifests(nil)
	if _, err := m.Pod(background, "shop", "web-0", "u1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Pod: %v", err)
	}
	if _, err := m.LivePod(background, "shop", "web-0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("LivePod: %v", err)
	}
	if _, err := m.NAD(background, "shop", "blue"); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("NAD: %v", err)
	}
}

// A pod of another UID, a pod and a NAD that are not known yet are looked for in the folder, with no watch running.
func TestManifestsLookAgain(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", "old"))
	m := f.manifests(nil)
	f.write("a.yaml", podYAML("web-0", "u2", "new"))
	f.write("b.yaml", podYAML("web-1", "u3", "x")+"---\n"+nadYAML("blue", "{}"))
	steps := []struct{ name, got, want string }{
		{"the old one's UID", show(m.Pod(background, "shop", "web-0", "u1")), "shop/web-0 u1 on node-1: old"},
		{"the new one's", show(m.Pod(background, "shop", "web-0", "u2")), "shop/web-0 u2 on node-1: new"},
		{"no UID", show(m.Pod(background, "shop", "web-0", "")), "shop/web-0 u2 on node-1: new"},
		{"the old one's, by now", show(m.Pod(background, "shop", "web-0", "u1")), "shop/web-0 u2 on node-1: new"},
		{"another pod", show(m.Pod(background, "shop", "web-1", "u3")), "shop/web-1 u3 on node-1: x"},
		{"a NAD", showNAD(m.NAD(background, "shop", "blue")), "shop/blue: {}"},
	}
	for _, s := range steps {
		if s.got != s.want {
			t.Errorf("%s: %q, want %q", s.name, s.got, s.want)
		}
	}
	f.write("a.yaml", podYAML("web-0", "u9", "newest"))
	if got := show(m.LivePod(background, "shop", "web-0")); got != "shop/web-0 u9 on node-1: newest" {
		t.Errorf("LivePod: %q", got)
	}
}

// A change that neither size nor time of the file shows is seen too: the kernel's clock ticks every 4 ms.
func TestManifestsSeeAQuickChange(t *testing.T) {
	f := newFolder(t)
	f.overwrite("a.yaml", podYAML("web-0", "u1", "old"))
	info, err := os.Stat(filepath.Join(f.dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := f.manifests(nil)
	f.overwrite("a.yaml", podYAML("web-0", "u2", "new"))
	if err := os.Chtimes(filepath.Join(f.dir, "a.yaml"), time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if got := show(m.Pod(background, "shop", "web-0", "u2")); got != "shop/web-0 u2 on node-1: new" {
		t.Errorf("pod %q", got)
	}
}

// Run keeps up with every way in which files change, and tells of NADs that did, once each.
func TestManifestsAreWatched(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("there", "1"))
	var told names
	m := f.manifests(told.changed)
	if got := told.take(); got != "shop/there" {
		t.Errorf("told at the start: %q", got)
	}
	start(t, m.Run)
	cached := func(name string) func() string {
		return func() string {
			if d := m.nad("shop", name); d != nil {
				return d.Config.Text()
			}
			return "none"
		}
	}
	steps := []struct {
		name   string
		do     func()
		nad    string
		config string
		told   string
	}{
		{"renamed in", func() { f.write("b.yaml", nadYAML("blue", "1")) }, "blue", "1", "shop/blue"},
		{"renamed over", func() { f.write("b.yaml", nadYAML("blue", "2")) }, "blue", "2", "shop/blue"},
		{"written in place", func() { f.overwrite("c.yaml", nadYAML("red", "1")) }, "red", "1", "shop/red"},
		{"one of two changed", func() { f.write("b.yaml", nadYAML("blue", "2")+"---\n"+nadYAML("green", "1")) }, "green", "1", "shop/green"},
		{"moved to another file", func() { f.write("d.yaml", nadYAML("red", "1")+"---\n"+nadYAML("mark", "1")) }, "mark", "1", "shop/mark"},
		{"one of two files that have it removed", func() { f.remove("c.yaml"); f.write("e.yaml", nadYAML("end", "1")) }, "end", "1", "shop/end"},
		{"removed", func() { f.remove("b.yaml") }, "blue", "none", "shop/blue shop/green"},
		{"renamed away", func() {
			if err := os.Rename(filepath.Join(f.dir, "d.yaml"), filepath.Join(f.dir, "d.off")); err != nil {
				t.Fatal(err)
			}
		}, "red", "none", "shop/mark shop/red"},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			s.do()
			eventually(t, s.config, cached(s.nad))
			var all []string
			eventually(t, s.told, func() string {
				if now := told.take(); now != "" {
					all = append(all, now)
				}
				return strings.Join(all, " ")
			})
		})
	}
	f.write("f.yaml", podYAML("web-0", "u1", "blue")) // a pod is no NAD
	eventually(t, "shop/web-0 u1 on node-1: blue", func() string {
		if p := m.pod("shop", "web-0"); p != nil {
			return show(p, nil)
		}
		return ""
	})
	if got := told.take(); got != "" {
		t.Errorf("told in the end: %q", got)
	}
}

// A file that changed between NewManifests and Run is not missed.
func TestManifestsChangedBeforeTheWatch(t *testing.T) {
	f := newFolder(t)
	m := f.manifests(nil)
	f.write("a.yaml", nadYAML("blue", "1"))
	start(t, m.Run)
	eventually(t, "shop/blue: 1", func() string {
		if d := m.nad("shop", "blue"); d != nil {
			return showNAD(d, nil)
		}
		return ""
	})
}

// A watch ends with its folder. One that is moved away and back, or another in its place, is followed too; meanwhile, what was
// read before counts on.
func TestManifestsFolderMoves(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	m := f.manifests(nil)
	start(t, m.Run)
	blue := func() string {
		if d := m.nad("shop", "blue"); d != nil {
			return showNAD(d, nil)
		}
		return ""
	}
	f.write("a.yaml", nadYAML("blue", "2"))
	eventually(t, "shop/blue: 2", blue)
	away := f.dir + ".away"
	t.Cleanup(func() { _ = os.RemoveAll(away) })
	if err := os.Rename(f.dir, away); err != nil {
		t.Fatal(err)
	}
	if got := blue(); got != "shop/blue: 2" {
		t.Errorf("without its folder: %s", got)
	}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f.write("b.yaml", nadYAML("blue", "3"))
	eventually(t, "shop/blue: 3", blue)
	f.write("b.yaml", nadYAML("blue", "4"))
	eventually(t, "shop/blue: 4", blue)
	if err := errors.Join(os.RemoveAll(f.dir), os.Rename(away, f.dir)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shop/blue: 2", blue)
	f.write("a.yaml", nadYAML("blue", "5"))
	eventually(t, "shop/blue: 5", blue)
}

// Conformance: N-93
func TestSetStatus(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", "blue"))
	m := f.manifests(nil)
	for _, status := range []string{`[{"name":"cbr0","default":true}]`, `[]`} {
		if err := m.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, []byte(status)); err != nil {
			t.Fatal(err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal([]byte(f.read("u1.status.json")), &got); err != nil {
			t.Fatal(err)
		}
		var flat strings.Builder
		if err := json.NewEncoder(&flat).Encode(got); err != nil {
			t.Fatal(err)
		}
		if want := `{"name":"web-0","namespace":"shop","network-status":` + status + `,"uid":"u1"}` + "\n"; flat.String() != want {
			t.Errorf("got  %s\nwant %s", flat.String(), want)
		}
		if got := f.list(); got != "a.yaml u1.status.json" {
			t.Errorf("files %s", got)
		}
	}
	info, err := os.Stat(filepath.Join(f.dir, "u1.status.json"))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Conformance: F-10
func TestSetStatusFails(t *testing.T) {
	f := newFolder(t)
	m := f.manifests(nil)
	if err := m.SetStatus(background, &netmodel.Pod{UID: "u1"}, []byte("no JSON")); err == nil {
		t.Error("what is no JSON is a status")
	}
	if err := os.Mkdir(filepath.Join(f.dir, "u1.status.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.SetStatus(background, &netmodel.Pod{UID: "u1"}, []byte("[]")); err == nil || !strings.HasPrefix(err.Error(), "network-status: ") {
		t.Errorf("%v", err)
	}
	if got := f.list(); got != "u1.status.json" {
		t.Errorf("left behind: %s", got)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := m.SetStatus(background, &netmodel.Pod{UID: "u1"}, []byte("[]")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Who reads a status sees the old one or the new one, and never a part.
func TestStatusIsNeverHalf(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", "blue"))
	m := f.manifests(nil)
	pod := &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}
	status := func(n int) []byte { return []byte(fmt.Sprintf(`["%s"]`, strings.Repeat("x", 100*n))) }
	if err := m.SetStatus(background, pod, status(0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < 300 && err == nil; n++ {
			err = m.SetStatus(background, pod, status(n%50))
		}
		done <- err
	}()
	for reads := 0; ; reads++ {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			if reads == 0 {
				t.Error("nothing was read meanwhile")
			}
			return
		default:
		}
		if text := f.read("u1.status.json"); !json.Valid([]byte(text)) || !strings.HasSuffix(text, "}\n") {
			t.Fatalf("read %q", text)
		}
	}
}

// The status goes with its pod, and no sooner; so do those that were left before.
func TestStatusGoesWithItsPod(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", "")+"---\n"+podYAML("web-1", "u2", ""))
	f.write("left.status.json", "{}")
	m := f.manifests(nil)
	for _, uid := range []string{"u1", "u2"} {
		if err := m.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "x", UID: uid}, []byte("[]")); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.list(); got != "a.yaml u1.status.json u2.status.json" {
		t.Errorf("files %s", got)
	}
	start(t, m.Run)
	f.write("a.yaml", podYAML("web-1", "u2", "changed"))
	eventually(t, "a.yaml u2.status.json", f.list)
	f.write("a.yaml", podYAML("web-1", "u3", "another pod of the name"))
	eventually(t, "a.yaml", f.list)
}

// A file that cannot be read for a moment, as when it is being written in place, costs no live pod its status.
func TestStatusOfAPodInABrokenFile(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", ""))
	m := f.manifests(nil)
	if err := m.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, []byte("[]")); err != nil {
		t.Fatal(err)
	}
	f.overwrite("a.yaml", podYAML("web-0", "u1", "")[:40]+"\n{")
	if got := show(m.LivePod(background, "shop", "web-0")); got != "shop/web-0 u1 on node-1: " {
		t.Errorf("the pod of a broken file: %s", got)
	}
	f.manifests(nil) // one that begins now, and never saw the file whole
	if got := f.list(); got != "a.yaml u1.status.json" {
		t.Errorf("files %s", got)
	}
	f.overwrite("a.yaml", "# no pod any more\n")
	if _, err := m.LivePod(background, "shop", "web-0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if got := f.list(); got != "a.yaml" {
		t.Errorf("files %s", got)
	}
}

// All agents of a host and the controller share one folder.
func TestTwoOnOneFolder(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", ""))
	f.write("b.yaml", podYAML("web-1", "u2", ""))
	one, other := f.manifests(nil), f.manifests(nil)
	start(t, one.Run)
	start(t, other.Run)
	for uid, m := range map[string]*Manifests{"u1": one, "u2": other} {
		if err := m.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "x", UID: uid}, []byte("[]")); err != nil {
			t.Fatal(err)
		}
	}
	f.write("c.yaml", nadYAML("blue", "{}"))
	for _, m := range []*Manifests{one, other} {
		eventually(t, "shop/blue: {}", func() string {
			if d := m.nad("shop", "blue"); d != nil {
				return showNAD(d, nil)
			}
			return ""
		})
	}
	if got := f.list(); got != "a.yaml b.yaml c.yaml u1.status.json u2.status.json" {
		t.Errorf("files %s", got)
	}
	f.remove("a.yaml")
	eventually(t, "b.yaml c.yaml u2.status.json", f.list)
}

func TestManifestsEventIsALogLine(t *testing.T) {
	f := newFolder(t)
	log, text := logged()
	m, err := NewManifests(f.dir, Changes{}, log)
	if err != nil {
		t.Fatal(err)
	}
	m.Event(&netmodel.Pod{Namespace: "shop", Name: "web-0"}, Warning, "Reason", "some words")
	if got := text(); !strings.Contains(got, `pod=shop/web-0 kind=Warning reason=Reason message="some words"`) {
		t.Errorf("log %s", got)
	}
}
