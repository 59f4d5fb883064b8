package images

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// The part that we use of a software bill of materials (SBOM) by CycloneDX 1.5
// (https://cyclonedx.org/docs/1.5/json/).
type bom struct {
	BOMFormat    string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber,omitempty"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp string    `json:"timestamp,omitempty"`
	Component component `json:"component"`
}

type component struct {
	Type    string    `json:"type"`
	BOMRef  string    `json:"bom-ref"`
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"`
	Hashes  []bomHash `json:"hashes,omitempty"`
	PURL    string    `json:"purl,omitempty"`
}

type bomHash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// SBOM returns the software bill of materials of an image in CycloneDX 1.5: the image, its programs for each platform,
// the modules that each program is linked from, as the Go linker wrote them into the program, and the Debian packages
// of the other files. The recipes are those of Write. The bytes depend only on the recipes and on their files.
func SBOM(img Image, others ...Image) ([]byte, error) {
	name, _, _ := strings.Cut(path.Base(img.Name), ":")
	whole := component{Type: "container", BOMRef: img.Name, Name: name, Version: img.tag()}
	b := bom{BOMFormat: "CycloneDX", SpecVersion: "1.5", Version: 1, Metadata: bomMetadata{Component: whole}}
	libraries := map[string]component{} // modules and packages
	programs := dependency{Ref: whole.BOMRef}
	for _, one := range append([]Image{img}, others...) {
		for _, file := range slices.Sorted(maps.Keys(one.Files)) {
			if p, debian := one.Packages[file]; debian {
				c := packageComponent(p)
				libraries[c.BOMRef] = c
				programs.DependsOn = append(programs.DependsOn, c.BOMRef)
				continue
			}
			if err := b.addProgram(one, file, libraries); err != nil {
				return nil, fmt.Errorf("image %s: %w", img.Name, err)
			}
			programs.DependsOn = append(programs.DependsOn, b.Components[len(b.Components)-1].BOMRef)
		}
	}
	slices.Sort(programs.DependsOn)
	programs.DependsOn = slices.Compact(programs.DependsOn)
	b.Dependencies = append([]dependency{programs}, b.Dependencies...)
	b.Components = append(b.Components, slices.SortedFunc(maps.Values(libraries), func(x, y component) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.BOMRef, y.BOMRef))
	})...)
	// The serial number says which contents these are. A random one would differ in each build.
	b.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, mustJSON(b)).String()
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

// packageComponent describes a Debian package (https://github.com/package-url/purl-spec, type deb).
func packageComponent(p Package) component {
	purl := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=trixie", p.Name, url.QueryEscape(p.Version), p.Arch)
	return component{Type: "library", BOMRef: purl, Name: p.Name, Version: p.Version, PURL: purl}
}

// addProgram adds a program of an image, and its modules to those of the other programs.
func (b *bom) addProgram(img Image, file string, modules map[string]component) error {
	content, err := os.ReadFile(img.Files[file])
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(img.Files[file])
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	program := component{
		Type: "application", BOMRef: "linux/" + img.arch() + file, Name: path.Base(file), Version: img.Version,
		Hashes: []bomHash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	uses := dependency{Ref: program.BOMRef}
	for _, m := range modulesOf(info) {
		c, err := moduleComponent(m)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		modules[c.BOMRef] = c
		uses.DependsOn = append(uses.DependsOn, c.BOMRef)
	}
	slices.Sort(uses.DependsOn)
	b.Components, b.Dependencies = append(b.Components, program), append(b.Dependencies, uses)
	for _, s := range info.Settings {
		if s.Key == "vcs.time" { // the commit's, not the build's
			b.Metadata.Timestamp = s.Value
		}
	}
	return nil
}

// modulesOf lists the modules of a program: its own, those that it depends on, and Go's standard library, which
// scanners for vulnerabilities know as the module stdlib.
func modulesOf(info *debug.BuildInfo) []debug.Module {
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ") // after a blank: experiments
	all := []debug.Module{info.Main, {Path: "stdlib", Version: version}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, *m)
	}
	return all
}

// moduleComponent describes a module. Its sum in go.sum is a SHA-256 in base64, CycloneDX has it in hex.
func moduleComponent(m debug.Module) (component, error) {
	c := component{Type: "library", BOMRef: m.Path + "@" + m.Version, Name: m.Path, Version: m.Version, PURL: purl(m)}
	if m.Sum == "" { // the main module, the standard library
		return c, nil
	}
	text, is := strings.CutPrefix(m.Sum, "h1:")
	sum, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !is || len(sum) != sha256.Size {
		return c, fmt.Errorf("module %s has the sum %q, which does not begin with h1: or has another length", m.Path, m.Sum)
	}
	c.Hashes = []bomHash{{"SHA-256", hex.EncodeToString(sum)}}
	return c, nil
}

// purl returns the package URL of a module. The type golang has names in lower case. A program that was built outside
// a clone does not know the version of its own module.
func purl(m debug.Module) string {
	text := "pkg:golang/" + strings.ToLower(m.Path)
	if m.Version == "" || m.Version == "(devel)" {
		return text
	}
	return text + "@" + url.QueryEscape(m.Version)
}
