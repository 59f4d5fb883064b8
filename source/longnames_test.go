package source

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// TestStateFileNames: a name that fits stays as it is read by others; longer names fit too, and each has its own file.
func TestStateFileNames(t *testing.T) {
	if got := stateFile("shop", "blue", networkSuffix); got != "shop.blue.network.json" {
		t.Errorf("the file is %q", got)
	}
	namespace := strings.Repeat("n", 63)
	seen := map[string]string{}
	for _, suffix := range suffixes {
		for length := 1; length <= 253; length++ { // RFC 1123, as Kubernetes limits names
			for _, last := range []string{"a", "b"} {
				name := strings.Repeat("x", length-1) + last
				file := stateFile(namespace, name, suffix)
				if len(file) > 255 || !strings.HasSuffix(file, suffix) {
					t.Fatalf("a name of %d characters has the file %q of %d", length, file, len(file))
				}
				if whole := namespace + "." + name + suffix; len(whole) <= 255 && file != whole {
					t.Fatalf("%q has the file %q", whole, file)
				}
				if seen[file] != "" {
					t.Fatalf("%s and %s have the file %q", seen[file], name, file)
				}
				seen[file] = name
			}
		}
	}
}

// TestLongestNames: the states of objects with the longest names that Kubernetes allows are written and read, and go
// with their objects.
func TestLongestNames(t *testing.T) {
	f := newFolder(t)
	name, like := strings.Repeat("l", 253), strings.Repeat("l", 252)+"m"
	f.write("a.yaml", nadYAML(name, "1")+"---\n"+nadYAML(like, "2"))
	m := f.manifests(nil)
	for _, n := range []string{name, like} {
		if err := m.SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: n}, `{"ready":true,"reason":"`+n[252:]+`"}`, true); err != nil {
			t.Fatal(err)
		}
	}
	scanned(t, m)
	for _, n := range []string{name, like} {
		d, err := m.NAD(background, "shop", n)
		if err != nil || !d.HasFinalizer || d.State != `{"ready":true,"reason":"`+n[252:]+`"}` {
			t.Fatalf("the state of …%s is %+v, %v", n[250:], d, err)
		}
		text, err := os.ReadFile(filepath.Join(f.dir, networkFile("shop", n)))
		var state networkState
		if err != nil || json.Unmarshal(text, &state) != nil || state.Namespace != "shop" || state.Name != n {
			t.Errorf("the file names %s/%s, %v", state.Namespace, state.Name, err)
		}
	}
	f.write("a.yaml", nadYAML(like, "2"))
	scanned(t, m)
	if _, err := os.Stat(filepath.Join(f.dir, networkFile("shop", name))); !os.IsNotExist(err) {
		t.Errorf("the state of the NAD that is gone: %v", err)
	}
	if d, err := m.NAD(background, "shop", like); err != nil || d.State == "" {
		t.Errorf("the other NAD: %+v, %v", d, err)
	}
}
