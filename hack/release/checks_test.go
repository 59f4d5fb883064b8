package main

import (
	"archive/tar"
	"compress/gzip"
	"debug/elf"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/images/helm"
	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

const root = "../.."

// tool runs a program in a folder and returns its standard output.
func tool(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := output(dir, nil, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// cloneTo clones a tree with its history into a new folder.
func cloneTo(t *testing.T, folder string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), folder)
	from, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "", "git", "clone", "--quiet", "file://"+from, dir)
	return dir
}

// files returns the contents of a folder by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// unpack returns the files of a tar.
func unpack(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		var text []byte
		if err == nil {
			text, err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(text)
	}
}

func unzip(t *testing.T, text string) io.Reader {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func text(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// checkSame compares two releases file by file.
func checkSame(t *testing.T, one, two map[string]string) {
	t.Helper()
	for name := range one {
		if one[name] != two[name] {
			t.Errorf("%s differs between two builds", name)
		}
	}
	if len(one) != len(two) {
		t.Errorf("%d and %d files", len(one), len(two))
	}
}

// checkSums: sha256sum accepts the sums, which are of all other files.
func checkSums(t *testing.T, out string) {
	t.Helper()
	checked := tool(t, out, "sha256sum", "--check", "--strict", sums)
	var want strings.Builder
	for _, name := range names(t, out) {
		if name != sums {
			want.WriteString(name + ": OK\n")
		}
	}
	if checked != want.String() {
		t.Errorf("sha256sum says\n%swant\n%s", checked, want.String())
	}
}

type descriptor struct {
	Digest      string
	Platform    struct{ Architecture, OS string }
	Annotations map[string]string
}

type index struct{ Manifests []descriptor }

// decode decodes a blob of an image.
func decode[T any](t *testing.T, tarred map[string]string, name string) (v T) {
	t.Helper()
	if digest, is := strings.CutPrefix(name, "sha256:"); is {
		name = "blobs/sha256/" + digest
	}
	if err := json.Unmarshal([]byte(tarred[name]), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// checkImage checks an image of a release: it is for both platforms, our programs in it are static programs for them,
// and its SBOM has these programs, the modules that `go version -m` reads in them, and the Debian packages of which the
// image has the license.
func checkImage(t *testing.T, release map[string]string, base, name, revision string) {
	t.Helper()
	tarred := unpack(t, strings.NewReader(release[base+".tar"]))
	top := decode[index](t, tarred, "index.json").Manifests[0]
	if top.Annotations["io.containerd.image.name"] != name {
		t.Errorf("the image is %q, want %s", top.Annotations, name)
	}
	b := decode[sbom](t, release, base+".cdx.json")
	modules, programs, packages := map[string]bool{}, 0, 0
	var archs []string
	for _, m := range decode[index](t, tarred, top.Digest).Manifests {
		archs = append(archs, m.Platform.OS+"/"+m.Platform.Architecture)
		manifest := decode[struct {
			Config descriptor
			Layers []descriptor
		}](t, tarred, m.Digest)
		labels := decode[struct {
			Config struct{ Labels map[string]string }
		}](t, tarred, manifest.Config.Digest).Config.Labels
		if labels["org.opencontainers.image.version"] != version.Number ||
			labels["org.opencontainers.image.revision"] != revision {
			t.Errorf("%s: the labels are %q, want version %s and revision %s", base, labels, version.Number, revision)
		}
		layer := tarred["blobs/sha256/"+strings.TrimPrefix(manifest.Layers[0].Digest, "sha256:")]
		for file, content := range unpack(t, strings.NewReader(layer)) {
			if strings.Contains(file, "/") { // ours are in the top folder
				if name, license := strings.CutPrefix(file, "usr/share/doc/"); license && path.Base(name) == "copyright" {
					b.checkPackage(t, path.Dir(name), m.Platform.Architecture)
					packages++
				}
				continue
			}
			programs++
			checkELF(t, file, content, m.Platform.Architecture)
			b.checkProgram(t, "linux/"+m.Platform.Architecture+"/"+file, content, modules)
		}
	}
	if !slices.Equal(archs, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("%s is for %q", base, archs)
	}
	if got, want := len(b.Components), programs+len(modules)+packages+1; got != want || len(modules) < 2 {
		t.Errorf("%s: the SBOM has %d components, want %d programs, %d modules, %d packages and stdlib",
			base, got, programs, len(modules), packages)
	}
	if ovn := strings.HasPrefix(base, images.OVNProgram); ovn != (packages > 10) {
		t.Errorf("%s: files of %d Debian packages", base, packages)
	}
}

func checkELF(t *testing.T, name, content, arch string) {
	t.Helper()
	f, err := elf.NewFile(strings.NewReader(content))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if f.Machine != want || f.Type != elf.ET_EXEC {
		t.Errorf("%s for %s is a %s for %s", name, arch, f.Type, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s for %s has a %s: it is not static", name, arch, p.Type)
		}
	}
}

// sbom is what a reader of an SBOM needs.
type sbom struct {
	Components []struct {
		Ref                 string `json:"bom-ref"`
		Name, Version, PURL string
		Hashes              []struct{ Alg, Content string }
	}
	Dependencies []struct {
		Ref       string
		DependsOn []string
	}
}

// checkPackage: the SBOM has a Debian package for a platform.
func (b sbom) checkPackage(t *testing.T, name, arch string) {
	t.Helper()
	purl := regexp.MustCompile(`^pkg:deb/debian/` + regexp.QuoteMeta(name) + `@[^?]+\?arch=(all|` + arch + `)&`)
	for _, c := range b.Components {
		if purl.MatchString(c.PURL) {
			return
		}
	}
	t.Errorf("the SBOM has no package %s for %s", name, arch)
}

// checkProgram compares a program's part of an SBOM with the program, and notes the modules.
func (b sbom) checkProgram(t *testing.T, ref, content string, modules map[string]bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, _, _ := strings.Cut(tool(t, "", "sha256sum", file), " ")
	has := map[string]string{}
	for _, c := range b.Components {
		key := c.Ref
		if c.PURL != "" {
			key = c.Name + " " + c.Version
		}
		has[key] = "no hash"
		if len(c.Hashes) == 1 && c.Hashes[0].Alg == "SHA-256" {
			has[key] = c.Hashes[0].Content
		}
	}
	if has[ref] != sum {
		t.Errorf("the SBOM has the hash %q of %s, want %s", has[ref], ref, sum)
	}
	var uses []string
	for _, d := range b.Dependencies {
		if d.Ref == ref {
			uses = d.DependsOn
		}
	}
	for line := range strings.Lines(tool(t, "", "go", "version", "-m", file)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "mod" && fields[0] != "dep" {
			continue
		}
		module, want := fields[1]+" "+fields[2], "no hash"
		if len(fields) > 3 {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(fields[3], "h1:"))
			if err != nil {
				t.Fatal(err)
			}
			want = hex.EncodeToString(raw)
		}
		modules[module] = true
		if has[module] != want || !slices.Contains(uses, strings.ReplaceAll(module, " ", "@")) {
			t.Errorf("%s: the SBOM has the hash %q of module %s, want %s", ref, has[module], module, want)
		}
		if fields[0] == "mod" && fields[2] != "v"+version.Number {
			t.Errorf("%s: the main module has the version %s", ref, fields[2])
		}
	}
}

// checkChart: the chart has the version and the images of the release, and the manifests differ from those of the tree
// in the names of the images only.
func checkChart(t *testing.T, chart, manifests, tree, prefix string) {
	t.Helper()
	program, err := helm.Path(root)
	if err != nil {
		t.Fatal(err)
	}
	about := tool(t, "", program, "show", "chart", chart)
	for _, line := range []string{"version: ", "appVersion: "} {
		if !strings.Contains("\n"+about, "\n"+line+version.Number+"\n") {
			t.Errorf("the chart does not have %s%s:\n%s", line, version.Number, about)
		}
	}
	tool(t, "", program, "lint", "--strict", chart)
	image := regexp.MustCompile(`image: (\S+)`)
	var got, want []string
	for _, m := range image.FindAllStringSubmatch(manifests, -1) {
		got = append(got, m[1])
	}
	for _, m := range image.FindAllStringSubmatch(tree, -1) {
		want = append(want, images.ReleaseName(m[1], prefix, version.Number))
	}
	if !slices.Equal(got, want) || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(everything().images) {
		t.Errorf("install.yaml has the images %q, want %q", got, want)
	}
	_, a, _ := strings.Cut(image.ReplaceAllString(manifests, "image"), "\n")
	_, b, _ := strings.Cut(image.ReplaceAllString(tree, "image"), "\n")
	if a != b {
		t.Errorf("install.yaml differs from images/install.yaml in more than the images:\n%s", a)
	}
}
