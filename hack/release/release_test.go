package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// TestRelease makes a small release from two clones of this tree, which are in different folders and have different
// tags and histories. The files are the same, and they are what they are said to be. TestWholeRelease makes all images.
func TestRelease(t *testing.T) {
	const prefix = "registry.example.com:5000/nets"
	one, two := cloneTo(t, "one"), cloneTo(t, "another folder")
	tool(t, two, "git", "tag", "v99.0.0")
	var made []map[string]string
	out := filepath.Join(t.TempDir(), "new", "release")
	for _, tree := range []string{one, two} {
		r := &release{
			root: tree, version: version.Number, prefix: prefix, tags: "grpcnotrace", out: out,
			scope: scope{images: []string{images.PluginName}, archs: everything().archs},
		}
		if err := r.write(t.Context()); err != nil { // the second one replaces the first one
			t.Fatal(err)
		}
		made = append(made, files(t, out))
	}
	checkSame(t, made[0], made[1])
	checkSums(t, out)
	if parent := names(t, filepath.Dir(out)); !slices.Equal(parent, []string{"release"}) {
		t.Errorf("beside the release there are %q", parent)
	}

	v := version.Number
	revision := strings.TrimSpace(tool(t, one, "git", "rev-parse", "HEAD"))
	tree := text(t, filepath.Join(one, "images", "install.yaml"))
	checkImage(t, made[0], "ovn-multinet-plugin-"+v, prefix+"/ovn-multinet-plugin:"+v, revision)
	checkChart(t, filepath.Join(out, "ovn-multinet-"+v+".tgz"), made[0]["install.yaml"], tree, prefix)
}

// TestCLI: an archive has the program of its platform and the license.
func TestCLI(t *testing.T) {
	work := t.TempDir()
	r := &release{version: "1.2.3", work: work, scope: scope{cli: everything().cli}}
	for _, dir := range []string{r.source(), r.file("")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(r.source(), "LICENSE"), "license")
	for _, p := range r.cli {
		write(filepath.Join(r.bin(p), "kubectl-multinet"), p.os+p.arch)
	}
	if err := r.writeCLI(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		name := r.file("kubectl-multinet-1.2.3-" + p + ".tar.gz")
		got := unpack(t, unzip(t, text(t, name)))
		if len(got) != 2 || got["LICENSE"] != "license" || got["kubectl-multinet"] != strings.ReplaceAll(p, "-", "") {
			t.Errorf("%s has %q", name, got)
		}
		listed := tool(t, "", "tar", "--list", "--verbose", "--file="+name)
		if !regexp.MustCompile(`(?m)^-rwxr-xr-x .* kubectl-multinet$`).MatchString(listed) {
			t.Errorf("tar lists\n%s", listed)
		}
	}
	if got := names(t, r.file("")); len(got) != 4 {
		t.Errorf("archives: %q", got)
	}
}

// TestRefused: a release that cannot be made is refused in one line, and nothing is written.
func TestRefused(t *testing.T) {
	tree, parent := cloneTo(t, "tree"), t.TempDir()
	t.Chdir(tree)
	v := strings.TrimSpace(text(t, "internal/version/VERSION"))
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "letter"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, version, prefix, out, change, want string }{
		{name: "no version", want: `VERSION is "", which is not a semantic version such as 0.1.0`},
		{name: "two numbers", version: "1.0", want: `VERSION is "1.0", which is not`},
		{name: "the tag", version: "v1.0.0", want: `VERSION is "v1.0.0", which is not`},
		{name: "a leading zero", version: "1.0.0-01", want: `VERSION is "1.0.0-01", which is not`},
		{name: "build metadata", version: "1.0.0+a", want: `VERSION is "1.0.0+a", which is not`},
		{name: "two lines", version: v + "\n", want: `VERSION is "` + v + `\n", which is not`},
		{name: "another version", version: "99.0.0", want: "VERSION is 99.0.0, but internal/version/VERSION has " + v +
			": write and commit the same version there"},
		{name: "no registry", version: v, prefix: "GHCR.io/x", want: `IMAGES is "GHCR.io/x", which is not a registry`},
		{name: "two values", version: v, prefix: "a\nb: c", want: `IMAGES is "a\nb: c", which is not a registry`},
		{name: "another's folder", version: v, out: foreign, want: foreign + " has letter, which is not of a release"},
		{name: "changed", version: v, change: "README.md", want: "commit your changes first (M README.md)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, prefix := filepath.Join(parent, "release", "out"), "localhost"
			if tt.out != "" {
				out = tt.out
			}
			if tt.prefix != "" {
				prefix = tt.prefix
			}
			if tt.change != "" {
				if err := os.WriteFile(tt.change, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var stdout bytes.Buffer
			err := run(t.Context(), []string{"-version", tt.version, "-images", prefix, "-out", out}, &stdout)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if got := names(t, parent); len(got) != 0 || len(names(t, foreign)) != 1 || stdout.Len() != 0 {
				t.Errorf("written: %q, %q, %q", got, names(t, foreign), stdout.String())
			}
		})
	}
}

// TestReplaceable: a folder may have the files that its SHA256SUMS lists.
func TestReplaceable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want bool) {
		t.Helper()
		if err := replaceable(dir); (err == nil) != want {
			t.Errorf("%q: %v", names(t, dir), err)
		}
	}
	check(true)
	write("a", "")
	check(false)
	write(sums, "00  aa\n00  a\n")
	check(true)
	write("b", "")
	check(false)
}
