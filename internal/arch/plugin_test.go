package arch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxPlugin bounds the plugin's binary: it is read from the disk once per CNI call.
const maxPlugin = 6_000_000

// heavy is what the plugin does not link: each costs it milliseconds of every start, and it has no use for any.
var heavy = []string{"k8s.io", "sigs.k8s.io", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http",
	"github.com/k8snetworkplumbingwg", module + "/ovndb", module + "/nad", module + "/agent", module + "/source"}

func TestPluginLinksLittle(t *testing.T) {
	deps := strings.Fields(toolGo(t, nil, "list", "-deps", "./cmd/ovn-multinet"))
	if !slices.Contains(deps, module+"/delegate") {
		t.Fatalf("what is listed is not the plugin: %v", deps)
	}
	for _, dep := range deps {
		if slices.ContainsFunc(heavy, func(h string) bool { return within(dep, h) }) {
			t.Errorf("it links %s", dep)
		}
	}
}

func TestPluginIsSmall(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "ovn-multinet")
	toolGo(t, []string{"CGO_ENABLED=0"}, "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/ovn-multinet")
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxPlugin {
		t.Errorf("it has %d bytes, want at most %d", info.Size(), maxPlugin)
	}
}

// The models are what their generator makes of the schemas beside them.
func TestGeneratedModels(t *testing.T) {
	for _, name := range []string{"nb", "vswitch"} {
		t.Run(name, func(t *testing.T) {
			made := t.TempDir()
			toolGo(t, nil, "tool", "modelgen", "-p", name, "-o", made, "ovndb/schema/"+name+".ovsschema")
			want, have := read(t, made), read(t, filepath.Join(root, "ovndb", name))
			for file, text := range want {
				if have[file] != text {
					t.Errorf("ovndb/%s/%s is not what the schema gives: run make generate", name, file)
				}
			}
			for file := range have {
				if _, generated := want[file]; !generated {
					t.Errorf("ovndb/%s/%s is not generated", name, file)
				}
			}
			if len(want) < 4 {
				t.Errorf("only %d files were made", len(want))
			}
		})
	}
}

// read returns the files of a folder.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}
