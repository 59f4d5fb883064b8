package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// light are the programs that must stay small: the plugin, because the kernel reads its file on each CNI call, and the
// installer, which only copies a file and writes another one.
var light = map[string]struct {
	needs  string   // a package that the program does link: the listing is of this program
	banned []string // packages that the program does not link, not even through another package
}{
	"ovn-multinet": {module + "/delegate", []string{
		"k8s.io", "sigs.k8s.io", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http",
		"github.com/k8snetworkplumbingwg", "google.golang.org", module + "/netmodel", module + "/ovndb", module + "/nad", module + "/agent", module + "/source",
	}},
	"ovn-multinet-install": {module + "/node/install", []string{
		"k8s.io", "sigs.k8s.io", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http",
		"github.com/k8snetworkplumbingwg", "github.com/vishvananda",
		module + "/ovndb", module + "/nad", module + "/agent", module + "/source", module + "/delegate",
	}},
}

// maxLight is the limit for the size of such a program, in bytes.
const maxLight = 6_000_000

func TestPluginLinksLittle(t *testing.T) { linksLittle(t, "ovn-multinet") }

// TestInstallerLinksLittle: the installer links no k8s.io, among others.
func TestInstallerLinksLittle(t *testing.T) { linksLittle(t, "ovn-multinet-install") }

func linksLittle(t *testing.T, program string) {
	t.Helper()
	p := light[program]
	deps := strings.Fields(toolGo(t, nil, "list", "-deps", "./cmd/"+program))
	if !slices.Contains(deps, p.needs) {
		t.Fatalf("this is not a listing of %s: %v", program, deps)
	}
	for _, dep := range deps {
		if slices.ContainsFunc(p.banned, func(b string) bool { return within(dep, b) }) {
			t.Errorf("%s links %s", program, dep)
		}
	}
}

func TestPluginIsSmall(t *testing.T) { isSmall(t, "ovn-multinet") }

func TestInstallerIsSmall(t *testing.T) { isSmall(t, "ovn-multinet-install") }

// build builds a program as the Makefile does.
func build(t *testing.T, program string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), program)
	toolGo(t, []string{"CGO_ENABLED=0"}, "build", "-buildvcs=false", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w",
		"-o", binary, "./cmd/"+program)
	return binary
}

// TestPluginStartsLight: every pod of a node starts the plugin, also a pod without further networks. So no package of ours
// compiles or parses anything before main, and the libraries allocate little.
func TestPluginStartsLight(t *testing.T) {
	const maxOurs, maxAll = 20, 400 // allocations
	cmd := exec.Command(build(t, "ovn-multinet"))
	cmd.Env = []string{"CNI_COMMAND=VERSION", "GODEBUG=inittrace=1"}
	cmd.Stdin = strings.NewReader("{}")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, trace.String())
	}
	all, ours := 0, 0
	for _, m := range initLine.FindAllStringSubmatch(trace.String(), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		all += n
		if within(m[1], module) {
			ours++
			if n > maxOurs {
				t.Errorf("%s allocates %d times before main, want at most %d", m[1], n, maxOurs)
			}
		}
	}
	if ours == 0 || all > maxAll {
		t.Errorf("%d packages of ours are initialized; all packages allocate %d times before main, want at most %d",
			ours, all, maxAll)
	}
	t.Attr("plugin.allocations-before-main", strconv.Itoa(all))
}

// initLine is a line of GODEBUG=inittrace=1.
var initLine = regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) allocs$`)

// isSmall checks the size of a program. The program must also say its version.
func isSmall(t *testing.T, program string) {
	t.Helper()
	binary := build(t, program)
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxLight {
		t.Errorf("%s has %d bytes, want at most %d", program, info.Size(), maxLight)
	}
	out, err := exec.Command(binary, "--version").Output()
	if want := program + " version " + version.Number + " ("; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("--version prints %q, %v; want %s…", out, err, want)
	}
}

// TestEveryProgramHasAVersion: Main of internal/program adds --version; the plugin has its own.
func TestEveryProgramHasAVersion(t *testing.T) {
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.path, "cmd/") {
			continue
		}
		if !slices.ContainsFunc(p.files, func(f *file) bool {
			return !f.test && slices.ContainsFunc(f.imports(), func(i string) bool {
				return i == module+"/internal/program" || i == module+"/internal/version"
			})
		}) {
			t.Errorf("%s has no --version: it imports neither internal/program nor internal/version", p.path)
		}
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
