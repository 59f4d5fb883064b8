package lab

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a clone with one commit, beside which its work tree and its index have other things.
type repository struct {
	t   *testing.T
	dir string
}

func (r repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir, "-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repository) write(name, text string, mode fs.FileMode) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
}

// The files of the commit: a program of its own in each folder that is built.
var committed = map[string]string{
	"go.mod":              "module example.com/old\n\ngo 1.24\n",
	"cmd/tool/main.go":    "package main\n\nfunc main() { print(\"old\") }\n",
	"e2e/recorder/run.go": "package main\n\nfunc main() {}\n",
	"run.sh":              "#!/bin/sh\n",
}

// newRepository returns it with its one commit.
func newRepository(t *testing.T) (repository, string) {
	t.Helper()
	r := repository{t, filepath.Join(t.TempDir(), "clone")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "--quiet")
	for name, text := range committed {
		mode := fs.FileMode(0o644)
		if name == "run.sh" {
			mode = 0o755
		}
		r.write(name, text, mode)
	}
	r.git("add", ".")
	r.git("commit", "--quiet", "-m", "one")
	return r, r.git("rev-parse", "HEAD")
}

// state is every file below a folder, by its bytes, its mode and its owner.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(dir, path)
		files[rel] = fmt.Sprintf("%x %v", sha256.Sum256(text), info.Mode().Perm()&0o700)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// exported wants a folder to have what was committed and nothing else.
func exported(t *testing.T, dir string) {
	t.Helper()
	want := map[string]string{}
	for name, text := range committed {
		mode := "-rw-------"
		if name == "run.sh" {
			mode = "-rwx------"
		}
		want[name] = fmt.Sprintf("%x %s", sha256.Sum256([]byte(text)), mode)
	}
	if got := state(t, dir); !maps.Equal(got, want) {
		t.Errorf("exported %v\nwant %v", got, want)
	}
}

// TestPreviousIsTheLastTag: the version before is the last tag v* before HEAD; without one, the commit of the file.
func TestPreviousIsTheLastTag(t *testing.T) {
	const recorded = "0123456789012345678901234567890123456789"
	r, first := newRepository(t)
	want := func(name, dir, commit string) {
		t.Helper()
		if got, err := (history{root: dir}).previous(t.Context()); err != nil || got != commit {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, commit)
		}
	}
	if got, err := (history{root: r.dir}).previous(t.Context()); err == nil {
		t.Errorf("neither tag nor file: got %s", got)
	}
	r.write(previousFile, "# A comment.\n\n"+recorded+"\n", 0o644)
	r.git("add", ".")
	r.git("commit", "--quiet", "-m", "two")
	want("no tag", r.dir, recorded)
	r.git("tag", "vault", first)
	want("a tag that is no version", r.dir, recorded)
	r.git("tag", "-a", "-m", "the first release", "v0.1.0", first)
	want("an annotated tag", r.dir, first)
	r.git("tag", "v0.2.0")
	want("HEAD is a release itself", r.dir, first)
	second := r.git("rev-parse", "HEAD")
	r.git("commit", "--quiet", "--allow-empty", "-m", "three")
	want("after a release", r.dir, second)
	shallow := r.dir + "-shallow"
	r.git("clone", "--quiet", "--depth=1", "file://"+r.dir, shallow)
	want("a shallow clone", shallow, recorded)
	r.write(previousFile, "# A comment alone.\n", 0o644)
	r.git("tag", "-d", "v0.1.0", "v0.2.0")
	if got, err := (history{root: r.dir}).previous(t.Context()); err == nil || !strings.Contains(err.Error(), previousFile) {
		t.Errorf("a file without a commit: got %s, %v", got, err)
	}
}

// TestExportOfACommit: what is exported is the commit, whatever was done since, of a clone of somebody else that is left as it is.
func TestExportOfACommit(t *testing.T) {
	r, commit := newRepository(t)
	r.write("run.sh", "changed", 0o755)
	r.write("cmd/tool/more.go", "package main\n", 0o644)
	r.git("add", "run.sh")
	if out, err := exec.Command("chown", "-R", "65534", r.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("git", "-C", r.dir, "status").CombinedOutput(); err == nil {
		t.Fatalf("git reads somebody else's clone without being told that it may: %s", out)
	}
	before := state(t, r.dir)
	into := t.TempDir()
	if err := (history{root: r.dir, cache: t.TempDir(), commit: commit}).export(t.Context(), into); err != nil {
		t.Fatal(err)
	}
	exported(t, into)
	if after := state(t, r.dir); !maps.Equal(after, before) {
		t.Errorf("the clone is %v\nwas %v", after, before)
	}
}

// shallow is a clone of a repository's last commit alone, and the hash of the commit before, which it does not have.
func shallow(t *testing.T, address func(origin string) string) (clone repository, origin, commit string) {
	t.Helper()
	r, commit := newRepository(t)
	r.write("run.sh", "changed", 0o755)
	r.git("commit", "--quiet", "-am", "two")
	clone = repository{t, r.dir + "-shallow"}
	r.git("clone", "--quiet", "--depth=1", "file://"+r.dir, clone.dir)
	clone.git("remote", "set-url", "origin", address(r.dir))
	return clone, r.dir, commit
}

// TestExportFromAShallowClone: a commit that the clone does not have is fetched from where the clone came from, into the cache.
func TestExportFromAShallowClone(t *testing.T) {
	for name, address := range map[string]func(string) string{
		"a URL":           func(origin string) string { return "file://" + origin },
		"a path":          func(origin string) string { return origin },
		"a relative path": func(origin string) string { return "../" + filepath.Base(origin) },
	} {
		t.Run(name, func(t *testing.T) {
			clone, origin, commit := shallow(t, address)
			before, cache, into := state(t, clone.dir), t.TempDir(), t.TempDir()
			if err := (history{root: clone.dir, cache: cache, commit: commit}).export(t.Context(), into); err != nil {
				t.Fatal(err)
			}
			exported(t, into)
			if after := state(t, clone.dir); !maps.Equal(after, before) {
				t.Errorf("the clone is %v\nwas %v", after, before)
			}
			// Without its origin: what was fetched is there, and what was not cannot be had.
			if err := os.RemoveAll(origin); err != nil {
				t.Fatal(err)
			}
			into = t.TempDir()
			if err := (history{root: clone.dir, cache: cache, commit: commit}).export(t.Context(), into); err != nil {
				t.Fatal(err)
			}
			exported(t, into)
			oneLineThatHelps(t, history{root: clone.dir, cache: t.TempDir(), commit: commit})
		})
	}
}

// TestExportOfWhatIsNowhere: who cannot be helped is told in one line what to do.
func TestExportOfWhatIsNowhere(t *testing.T) {
	r, commit := newRepository(t)
	const unknown = "0123456789012345678901234567890123456789"
	oneLineThatHelps(t, history{root: r.dir, cache: t.TempDir(), commit: unknown})      // without an origin
	oneLineThatHelps(t, history{root: t.TempDir(), cache: t.TempDir(), commit: commit}) // no clone at all
}

func oneLineThatHelps(t *testing.T, h history) {
	t.Helper()
	p, err := h.build(t.Context(), nil, nil)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "run: git fetch --unshallow") || !strings.Contains(err.Error(), h.commit[:12]) {
		t.Errorf("got %v, %v", p, err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(h.cache, "*-*")); len(dirs) > 1 || len(dirs) == 1 && !strings.HasSuffix(dirs[0], ".new") {
		t.Errorf("the cache has %v", dirs)
	}
}

// TestBuildOfACommit: both builds of a commit are there, once; a commit that does not compile leaves no folder that looks whole.
func TestBuildOfACommit(t *testing.T) {
	r, commit := newRepository(t)
	h := history{root: r.dir, cache: t.TempDir(), commit: commit}
	p, err := h.build(t.Context(), labFlags, shipFlags)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(p.Lab, "tool"): "old", filepath.Join(p.Lab, "recorder"): "", filepath.Join(p.Ship, "tool"): "old",
	} {
		if out, err := exec.Command(path).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v, want %q", path, out, err, want)
		}
	}
	exported(t, p.Source)
	// What is there is not made again: not even the clone is looked at.
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	if again, err := h.build(t.Context(), labFlags, shipFlags); err != nil || *again != *p {
		t.Errorf("built again: %v, %v", again, err)
	}

	r, _ = newRepository(t)
	r.write("cmd/tool/main.go", "package main\n", 0o644)
	r.git("commit", "--quiet", "-am", "broken")
	h = history{root: r.dir, cache: t.TempDir(), commit: r.git("rev-parse", "HEAD")}
	for range 2 {
		if p, err := h.build(t.Context(), labFlags, shipFlags); err == nil || !strings.Contains(err.Error(), "go build") {
			t.Errorf("a commit that does not compile: %v, %v", p, err)
		}
	}
}

// TestPreviousVersion: the version before this one is of this project, and its plugin runs.
func TestPreviousVersion(t *testing.T) {
	p, err := BuildPrevious(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(p.Source, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module github.com/ovn-multinet/ovn-multinet\n") {
		t.Errorf("go.mod: %s, %v", mod, err)
	}
	for _, dir := range []string{p.Lab, p.Ship} {
		cmd := exec.Command(filepath.Join(dir, PluginType))
		cmd.Env, cmd.Stdin = []string{"CNI_COMMAND=VERSION"}, strings.NewReader(`{"cniVersion":"1.0.0"}`)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `"supportedVersions"`) {
			t.Errorf("%s: %s, %v", cmd.Path, out, err)
		}
	}
}

// TestExchange: a program is exchanged in the lab's own folder alone, for one that is there.
func TestExchange(t *testing.T) {
	ours, other := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(ours, "one"): "ours", filepath.Join(ours, "two"): "ours", filepath.Join(other, "one"): "other"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l := &Lab{Dir: t.TempDir(), bins: Binaries{Ours: ours}}
	if err := l.Exchange("one", other); err == nil || !strings.Contains(err.Error(), "OwnPrograms") {
		t.Errorf("exchanged for all labs: %v", err)
	}
	if err := l.OwnPrograms(); err != nil {
		t.Fatal(err)
	}
	wants := func(one string) {
		t.Helper()
		for name, want := range map[string]string{"one": one, "two": "ours"} {
			if text, err := os.ReadFile(filepath.Join(l.Binaries().Ours, name)); err != nil || string(text) != want {
				t.Errorf("%s: %s, %v, want %s", name, text, err, want)
			}
		}
	}
	wants("ours")
	for _, from := range []struct{ dir, text string }{{other, "other"}, {ours, "ours"}, {other, "other"}} {
		if err := l.Exchange("one", from.dir); err != nil {
			t.Fatal(err)
		}
		wants(from.text)
	}
	if err := l.Exchange("two", other); err == nil {
		t.Error("exchanged for one that is not there")
	}
	wants("other")
	if files, err := os.ReadDir(ours); err != nil || len(files) != 2 {
		t.Errorf("the folder of all labs has %v, %v", files, err)
	}
}
