package images

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// anything is what a test has of JSON.
type anything = map[string]any

// shapes says what CycloneDX 1.5 demands of the objects that we write: the keys that an object must have, the keys that
// it may have of those that we know, and the form of the values.
// Source: https://cyclonedx.org/schema/bom-1.5.schema.json
var shapes = map[string]struct {
	required, optional string
	forms              map[string]string
}{
	"": {"bomFormat specVersion version", "serialNumber metadata components dependencies", map[string]string{
		"bomFormat": `CycloneDX`, "specVersion": `1\.5`, "version": `1`,
		"serialNumber": `urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	}},
	"metadata": {"", "timestamp component", map[string]string{
		"timestamp": `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`,
	}},
	"component": {"type name", "bom-ref version hashes purl", map[string]string{
		"type": "application|framework|library|container|platform|operating-system|device|device-driver|firmware|file|" +
			"machine-learning-model|data",
		"bom-ref": `.+`,
		"purl":    `pkg:golang/[a-z0-9./_~-]+(@[A-Za-z0-9.%_-]+)?`,
	}},
	"hashes":       {"alg content", "", map[string]string{"alg": "SHA-256", "content": "[0-9a-f]{64}"}},
	"dependencies": {"ref", "dependsOn", map[string]string{"ref": ".+"}},
}

// checkShape checks an object and all objects in it. The key is that of the object, or of the list that it is in.
func checkShape(t *testing.T, key string, object anything) {
	t.Helper()
	if key == "components" {
		key = "component"
	}
	shape, known := shapes[key]
	if !known {
		t.Fatalf("CycloneDX object %q is not known here", key)
	}
	for name := range strings.FieldsSeq(shape.required) {
		if object[name] == nil {
			t.Errorf("%s %v has no %s", key, object, name)
		}
	}
	for name, value := range object {
		if !slices.Contains(strings.Fields(shape.required+" "+shape.optional), name) {
			t.Errorf("%s %v has the unknown key %s", key, object, name)
		}
		if form := shape.forms[name]; form != "" && !regexp.MustCompile(`^(`+form+`)$`).MatchString(fmt.Sprint(value)) {
			t.Errorf("%s: %s is %v, which is not of the form %s", key, name, value, form)
		}
		switch value := value.(type) {
		case anything:
			checkShape(t, name, value)
		case []any:
			checkList(t, name, value)
		}
	}
}

// checkList checks a list, which has no value twice.
func checkList(t *testing.T, key string, list []any) {
	t.Helper()
	seen := map[string]bool{}
	for _, value := range list {
		if text := fmt.Sprint(value); seen[text] {
			t.Errorf("%s has %s twice", key, text)
		} else {
			seen[text] = true
		}
		if object, is := value.(anything); is {
			checkShape(t, key, object)
		}
	}
}

// TestSBOM: the SBOM of an image has the form of CycloneDX 1.5, its references lead to components, and the same recipes
// make the same bytes. The test of hack/release compares the modules with `go version -m`.
func TestSBOM(t *testing.T) {
	img := Image{
		Name: "registry.example.com:5000/a:1.0.0", Arch: "amd64", Version: "1.0.0",
		Files: map[string]string{"/one": os.Args[0], "/two": os.Args[0]}, Entrypoint: []string{"/one"},
	}
	other := img
	other.Arch = "arm64"
	text, err := SBOM(img, other)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := SBOM(img, other); err != nil || !bytes.Equal(text, again) {
		t.Errorf("a second SBOM differs: %v", err)
	}
	var raw anything
	var b bom
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	checkShape(t, "", raw)
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if c := b.Metadata.Component; c.Type != "container" || c.Name != "a" || c.Version != "1.0.0" {
		t.Errorf("the SBOM is of %+v", c)
	}
	refs := map[string]bool{b.Metadata.Component.BOMRef: true}
	for _, c := range b.Components {
		if refs[c.BOMRef] {
			t.Errorf("two components have the reference %s", c.BOMRef)
		}
		refs[c.BOMRef] = true
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("%s is in the dependencies only", ref)
			}
		}
	}
	programs := []string{"linux/amd64/one", "linux/amd64/two", "linux/arm64/one", "linux/arm64/two"}
	if got := b.Dependencies[0]; got.Ref != img.Name || !slices.Equal(got.DependsOn, programs) {
		t.Errorf("the image has %q, want %q", got, programs)
	}
	if len(b.Dependencies) != 5 || len(b.Dependencies[4].DependsOn) < 2 { // a test has its module and the library
		t.Errorf("the dependencies are %v", b.Dependencies)
	}
	img.Files = map[string]string{"/sh": "/bin/sh"}
	if _, err := SBOM(img); err == nil || !strings.HasPrefix(err.Error(), "image "+img.Name+": ") {
		t.Errorf("of a program that is not Go's: %v", err)
	}
}

func TestModules(t *testing.T) {
	const sum = "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8 X:boringcrypto", Main: debug.Module{Path: "example.com/m", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "github.com/BurntSushi/toml", Version: "v2.0.0+incompatible", Sum: sum},
			{Path: "a.example", Version: "v1.0.0", Replace: &debug.Module{Path: "b.example", Version: "v1.1.0", Sum: sum}},
		},
	}
	var got []string
	for _, m := range modulesOf(info) {
		c, err := moduleComponent(m)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(c.Name, " ", c.Version, " ", c.PURL, " ", c.Hashes))
	}
	const hash = "[{SHA-256 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f}]"
	want := []string{
		"example.com/m (devel) pkg:golang/example.com/m []",
		"stdlib 1.26.8 pkg:golang/stdlib@1.26.8 []",
		"github.com/BurntSushi/toml v2.0.0+incompatible pkg:golang/github.com/burntsushi/toml@v2.0.0%2Bincompatible " + hash,
		"b.example v1.1.0 pkg:golang/b.example@v1.1.0 " + hash,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, bad := range []string{"h2:AAAA", "h1:AAAA", "h1:no base64"} {
		if _, err := moduleComponent(debug.Module{Path: "a.example", Sum: bad}); err == nil {
			t.Errorf("the sum %q is accepted", bad)
		}
	}
}
