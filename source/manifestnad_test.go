package source

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// half is a file as an editor that writes in place leaves it for a moment.
const half = "kind: NetworkAttachmentDefinition\nmetadata: {na"

// scanned reads the folder again.
func scanned(t *testing.T, m *Manifests) {
	t.Helper()
	if err := m.scan(); err != nil {
		t.Fatal(err)
	}
}

// answers is what a folder says of a pod and three NADs, and of all of them together.
func answers(m *Manifests) string {
	census := func() string {
		c, err := m.Inventory(background)
		if err != nil {
			return err.Error()
		}
		return "census " + c.Gone("shop", "web-0", "u1", "node-1")
	}
	return strings.Join([]string{
		show(m.Pod(background, "shop", "web-0", "u1")), showNAD(m.NAD(background, "shop", "blue")), showNAD(m.NAD(background, "shop", "red")),
		showNAD(m.NAD(background, "shop", "none")), showNADs(m.NADs(background)), census(),
	}, "\n")
}

// A file that stops parsing is no word that what it held is gone, nor that what is not found is nowhere.
func TestABrokenFileKeepsWhatItHeld(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", "blue")+"---\n"+nadYAML("blue", "1"))
	f.write("b.yaml", nadYAML("red", "1"))
	var told names
	m := f.manifests(told.changed)
	told.take()
	may := func(name string) string { return f.absent("a.yaml is broken", name, "") }
	notUnderstood := "manifest " + filepath.Join(f.dir, "a.yaml") + " is not understood"
	const pod, red = "shop/web-0 u1 on node-1: blue", `shop/red: 2, created 0, state ""`
	steps := []struct {
		name string
		do   func()
		want []string
		told string
	}{
		{"all is well", func() {},
			[]string{pod, "shop/blue: 1", "shop/red: 1", f.absent("not found", "shop/none", "not found"),
				`shop/blue: 1, created 0, state ""; shop/red: 1, created 0, state ""`, "census "}, ""},
		{"it breaks", func() { f.overwrite("a.yaml", half) },
			[]string{pod, "shop/blue: 1", "shop/red: 1", may("shop/none"), notUnderstood, notUnderstood}, ""},
		{"its neighbour changes", func() { f.write("b.yaml", nadYAML("red", "2")) },
			[]string{pod, "shop/blue: 1", "shop/red: 2", may("shop/none"), notUnderstood, notUnderstood}, "shop/red"},
		{"it breaks in another way", func() { f.overwrite("a.yaml", half+"}\nspek: {}") },
			[]string{pod, "shop/blue: 1", "shop/red: 2", may("shop/none"), notUnderstood, notUnderstood}, ""},
		{"it is whole again, and the pod is gone", func() { f.overwrite("a.yaml", nadYAML("blue", "2")) },
			[]string{f.absent("not found", "shop/web-0", "pod not found"), "shop/blue: 2", "shop/red: 2", f.absent("not found", "shop/none", "not found"),
				`shop/blue: 2, created 0, state ""; ` + red, "census pod shop/web-0 is gone"}, "shop/blue"},
		{"it breaks and is removed", func() {
			f.overwrite("a.yaml", half)
			scanned(t, m)
			f.remove("a.yaml")
		},
			[]string{f.absent("not found", "shop/web-0", "pod not found"), f.absent("not found", "shop/blue", "not found"), "shop/red: 2",
				f.absent("not found", "shop/none", "not found"), red, "census pod shop/web-0 is gone"}, "shop/blue"},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			s.do()
			scanned(t, m)
			if got, want := answers(m), strings.Join(s.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if got := told.take(); got != s.told {
				t.Errorf("told %q, want %q", got, s.told)
			}
		})
	}
}

// Who acts on absence must not take a broken file for it, also when it was never whole.
func TestAbsentWhileAFileIsBroken(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", half)
	m := f.manifests(nil)
	is := func() string {
		var words []string
		for _, e := range []struct {
			name     string
			err      error
			notFound error
		}{
			{"Pod", second(m.Pod(background, "shop", "web-0", "u1")), ErrNotFound},
			{"LivePod", second(m.LivePod(background, "shop", "web-0")), ErrNotFound},
			{"NAD", second(m.NAD(background, "shop", "blue")), netmodel.ErrNotFound},
			{"NADs", second(m.NADs(background)), nil},
			{"Inventory", second(m.Inventory(background)), nil},
		} {
			switch {
			case e.err == nil:
				words = append(words, e.name+" known")
			case e.notFound != nil && errors.Is(e.err, e.notFound):
				words = append(words, e.name+" gone")
			default:
				words = append(words, e.name+" unknown")
			}
		}
		return strings.Join(words, ", ")
	}
	if got, want := is(), "Pod unknown, LivePod unknown, NAD unknown, NADs unknown, Inventory unknown"; got != want {
		t.Errorf("broken from the first: %s, want %s", got, want)
	}
	f.write("a.yaml", podYAML("web-1", "u2", ""))
	if got, want := is(), "Pod gone, LivePod gone, NAD gone, NADs known, Inventory known"; got != want {
		t.Errorf("whole: %s, want %s", got, want)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if got, want := is(), "Pod unknown, LivePod unknown, NAD unknown, NADs unknown, Inventory unknown"; got != want {
		t.Errorf("without a folder: %s, want %s", got, want)
	}
}

func second[T any](_ T, err error) error { return err }

// Controller and agents share the folder: what one writes of a network, all read, and it goes when it is taken away.
func TestManifestsNetworkState(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1")+"---\n"+nadYAML("red.one", "1"))
	var told names
	controller, agent := f.manifests(told.changed), f.manifests(nil)
	told.take()
	blue := &netmodel.NAD{Namespace: "shop", Name: "blue"}
	steps := []struct {
		name  string
		of    *netmodel.NAD
		state string
		want  string
		files string
	}{
		{"the first", blue, `{"ready":false,"reason":"why"}`,
			`shop/blue: 1, created 0, state "{\"ready\":false,\"reason\":\"why\"}", held; shop/red.one: 1, created 0, state ""`, "a.yaml shop.blue.network.json"},
		{"another", blue, `{"ready":true}`,
			`shop/blue: 1, created 0, state "{\"ready\":true}", held; shop/red.one: 1, created 0, state ""`, "a.yaml shop.blue.network.json"},
		{"of a name with a dot", &netmodel.NAD{Namespace: "shop", Name: "red.one"}, `{}`,
			`shop/blue: 1, created 0, state "{\"ready\":true}", held; shop/red.one: 1, created 0, state "{}", held`,
			"a.yaml shop.blue.network.json shop.red.one.network.json"},
		{"taken away", blue, "", `shop/blue: 1, created 0, state ""; shop/red.one: 1, created 0, state "{}", held`, "a.yaml shop.red.one.network.json"},
		{"taken away twice", blue, "", `shop/blue: 1, created 0, state ""; shop/red.one: 1, created 0, state "{}", held`, "a.yaml shop.red.one.network.json"},
	}
	for _, s := range steps {
		if err := controller.SetNetworkState(background, s.of, s.state, s.state != ""); err != nil {
			t.Fatal(err)
		}
		for who, m := range map[string]*Manifests{"controller": controller, "agent": agent} {
			if got := showNADs(m.NADs(background)); got != s.want {
				t.Errorf("%s, %s lists %s\nwant %s", s.name, who, got, s.want)
			}
			one, err := m.NAD(background, s.of.Namespace, s.of.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(s.want, showNADs([]*netmodel.NAD{one}, nil)) {
				t.Errorf("%s, %s has %s\nwant %s", s.name, who, showNADs([]*netmodel.NAD{one}, nil), s.want)
			}
		}
		if got := f.list(); got != s.files {
			t.Errorf("%s: files %s, want %s", s.name, got, s.files)
		}
	}
	if got := told.take(); got != "" {
		t.Errorf("its own word makes the controller look at %s", got)
	}
}

// People and tools read the file too.
func TestManifestsNetworkStateFile(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	m := f.manifests(nil)
	if err := m.SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: "blue"}, `{"ready":true}`, true); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(f.read("shop.blue.network.json")), &got); err != nil {
		t.Fatal(err)
	}
	flat, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"blue","namespace":"shop","network":{"ready":true}}`; string(flat) != want {
		t.Errorf("got  %s\nwant %s", flat, want)
	}
	info, err := os.Stat(filepath.Join(f.dir, "shop.blue.network.json"))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// The documentation shows the file as it is written.
func TestManifestsNetworkStateIsDocumented(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	state, err := json.Marshal(netmodel.NetworkState{Ready: true, Since: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.manifests(nil).SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: "blue"}, string(state), true); err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "```json\n" + f.read("shop.blue.network.json") + "```\n"; !strings.Contains(string(docs), want) {
		t.Errorf("docs/networks.md does not show\n%s", want)
	}
}

// A file that is no state, someone's or of a crash, holds its NAD and says nothing: the controller writes it anew.
func TestManifestsNetworkStateOfSomeoneElse(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "half": `{"namespace":"shop","na`, "without a state": `{"namespace":"shop"}`} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			f.write("a.yaml", nadYAML("blue", "1"))
			f.overwrite("shop.blue.network.json", text)
			if got, want := showNADs(f.manifests(nil).NADs(background)), `shop/blue: 1, created 0, state "", held`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestManifestsNetworkStateFails(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	m := f.manifests(nil)
	blue := &netmodel.NAD{Namespace: "shop", Name: "blue"}
	if err := m.SetNetworkState(background, blue, "no JSON", true); err == nil || !strings.HasPrefix(err.Error(), "state of the network: ") {
		t.Errorf("what is no JSON is a state: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "shop.blue.network.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"{}", ""} {
		if err := m.SetNetworkState(background, blue, state, true); err == nil || !strings.HasPrefix(err.Error(), "state of the network: ") {
			t.Errorf("state %q where a folder is: %v", state, err)
		}
	}
	// A state that is there and cannot be read is not none.
	if d, err := m.NAD(background, "shop", "blue"); d != nil || err == nil || errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("NAD: %v, %v", d, err)
	}
	if all, err := m.NADs(background); all != nil || err == nil {
		t.Errorf("NADs: %v, %v", all, err)
	}
	if got := f.list(); got != "a.yaml shop.blue.network.json" {
		t.Errorf("left behind: %s", got)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := m.SetNetworkState(background, blue, "{}", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	if err := m.SetNetworkState(background, blue, "", false); err != nil {
		t.Errorf("taken away without a folder: %v", err)
	}
}

// The state goes with its NAD, and not while a file is broken, which may have it.
func TestNetworkStateGoesWithItsNAD(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	f.write("b.yaml", nadYAML("red", "1"))
	f.overwrite("shop.left.network.json", "{}")
	m := f.manifests(nil)
	for _, name := range []string{"blue", "red"} {
		if err := m.SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: name}, "{}", true); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"of one that was never there", func() {}, "a.yaml b.yaml shop.blue.network.json shop.red.network.json"},
		{"its file is broken", func() { f.overwrite("a.yaml", half) }, "a.yaml b.yaml shop.blue.network.json shop.red.network.json"},
		{"another is gone meanwhile", func() { f.remove("b.yaml") }, "a.yaml shop.blue.network.json shop.red.network.json"},
		{"it is whole again", func() { f.overwrite("a.yaml", nadYAML("blue", "1")) }, "a.yaml shop.blue.network.json"},
		{"it is gone", func() { f.overwrite("a.yaml", nadYAML("green", "1")) }, "a.yaml"},
	}
	for _, s := range steps {
		s.do()
		scanned(t, m)
		if got := f.list(); got != s.want {
			t.Errorf("%s: files %s, want %s", s.name, got, s.want)
		}
	}
}

// The owner's word for a delete that takes all ports with it is in the manifest.
func TestManifestsForceDelete(t *testing.T) {
	f := newFolder(t)
	annotated := func(value string) string {
		return strings.Replace(nadYAML("blue", "1"), "namespace: shop}", `namespace: shop, annotations: {ovn-multinet/force-delete: "`+value+`"}}`, 1)
	}
	f.write("a.yaml", annotated("no"))
	var told names
	m := f.manifests(told.changed)
	told.take()
	if got, want := showNADs(m.NADs(background)), `shop/blue: 1, created 0, state ""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f.write("a.yaml", annotated("true"))
	if got, want := showNADs(m.NADs(background)), `shop/blue: 1, created 0, state "", force`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := told.take(); got != "shop/blue" {
		t.Errorf("told %q", got)
	}
}

// The resource that a network's attachments take their devices of is in the manifest, for who asks next.
func TestManifestsResource(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	m := f.manifests(func(string, string) {})
	for _, resource := range []string{"a.example/vf", "a.example/vg"} {
		f.write("a.yaml", strings.Replace(nadYAML("blue", "1"), "namespace: shop}", `namespace: shop, annotations: {k8s.v1.cni.cncf.io/resourceName: `+resource+`}}`, 1))
		want := `shop/blue: 1, created 0, state "", devices of ` + resource
		if got := showNADs(m.NADs(background)); got != want {
			t.Errorf("listed %s, want %s", got, want)
		}
		d, err := m.NAD(background, "shop", "blue")
		if got := showNADs([]*netmodel.NAD{d}, err); got != want {
			t.Errorf("by name %s, want %s", got, want)
		}
	}
}

// A census of a folder reads it first: a pod that was added a moment ago is not gone. Nodes it does not know.
func TestManifestsInventory(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podYAML("web-0", "u1", ""))
	m := f.manifests(nil)
	f.write("b.yaml", podYAML("web-1", "u2", ""))
	c, err := m.Inventory(background)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ pod, uid, node, want string }{
		{"web-0", "u1", "node-1", ""},
		{"web-1", "u2", "node-9", ""},
		{"web-0", "u9", "node-1", "pod shop/web-0 with UID u9 is gone"},
		{"web-2", "u1", "node-1", "pod shop/web-2 is gone"},
	} {
		if got := c.Gone("shop", tt.pod, tt.uid, tt.node); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

func TestManifestsNetworkEventIsALogLine(t *testing.T) {
	f := newFolder(t)
	log, text := logged()
	m, err := NewManifests(f.dir, Changes{}, log)
	if err != nil {
		t.Fatal(err)
	}
	m.NetworkEvent(&netmodel.NAD{Namespace: "shop", Name: "blue"}, true, "Reason", "some words")
	m.NetworkEvent(&netmodel.NAD{Namespace: "shop", Name: "blue"}, false, "Other", "more words")
	for _, want := range []string{`network=shop/blue kind=Warning reason=Reason message="some words"`, `network=shop/blue kind=Normal reason=Other message="more words"`} {
		if !strings.Contains(text(), want) {
			t.Errorf("log %s, want %s", text(), want)
		}
	}
}

// A file that is broken for long is not read again as long as it does not change.
func TestABrokenFileIsReadOnce(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", half)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(f.dir, "a.yaml"), old, old); err != nil {
		t.Fatal(err)
	}
	log, text := logged()
	m, err := NewManifests(f.dir, Changes{}, log)
	if err != nil {
		t.Fatal(err)
	}
	scanned(t, m)
	scanned(t, m)
	if got := strings.Count(text(), "not understood"); got != 1 {
		t.Errorf("said %d times", got)
	}
}

// A configuration is parsed once for each of its texts, also if the folder's files change otherwise.
func TestManifestsParseAConfigurationOnce(t *testing.T) {
	const config = `{"type":"ovn-multinet","subnets":"10.1.0.0/24"}`
	f := newFolder(t)
	f.write("nads.yaml", nadYAML("blue", config))
	m := f.manifests(nil)
	first := networkOf(t, m)
	for _, more := range []string{nadYAML("green", config), nadYAML("red", config)} {
		f.overwrite("nads.yaml", nadYAML("blue", config)+"---\n"+more)
		if _, err := m.NADs(background); err != nil {
			t.Fatal(err)
		}
		if networkOf(t, m) != first {
			t.Error("the configuration is parsed again")
		}
	}
	f.overwrite("nads.yaml", nadYAML("blue", config+" "))
	if _, err := m.NADs(background); err != nil {
		t.Fatal(err)
	}
	if networkOf(t, m) == first {
		t.Error("another text is not parsed")
	}
}
