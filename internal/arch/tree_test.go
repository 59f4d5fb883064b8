package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the module's path, root its folder.
const (
	module = "github.com/ovn-multinet/ovn-multinet"
	root   = "../.."
)

// pkg is one folder with Go files; its path is relative to the module's, "." for the root.
type pkg struct {
	path  string
	name  string
	files []*file
}

// file is one parsed Go file.
type file struct {
	path string // relative to the module's folder
	test bool
	*ast.File
}

// imports lists the paths that a file imports.
func (f *file) imports() []string {
	out := make([]string, len(f.Imports))
	for i, spec := range f.Imports {
		out[i], _ = strconv.Unquote(spec.Path.Value)
	}
	return out
}

// strings lists the file's string literals, those of struct tags and imports aside.
func (f *file) strings() []string {
	var out []string
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}

// packages returns all Go files of the module, those for other build tags too.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	all, err := parsedTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 15 {
		t.Fatalf("only %d packages found", len(all))
	}
	return all
}

var parsedTree = sync.OnceValues(func() (map[string]*pkg, error) {
	all := map[string]*pkg{}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(p, d.Name())
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(rel))
		if all[dir] == nil {
			all[dir] = &pkg{path: dir}
		}
		all[dir].name = strings.TrimSuffix(parsed.Name.Name, "_test")
		all[dir].files = append(all[dir].files, &file{path: rel, test: strings.HasSuffix(p, "_test.go"), File: parsed})
		return nil
	})
	return all, err
})

// skip leaves out what is no part of the module.
func skip(dir, name string) error {
	if dir == root {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || strings.HasPrefix(name, ".") || name == "testdata" {
		return filepath.SkipDir
	}
	return nil
}

// own returns the path of a package of the module relative to the module's; false for any other package.
func own(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// within reports whether a package is the folder or below it.
func within(pkgPath, folder string) bool {
	return pkgPath == folder || strings.HasPrefix(pkgPath, folder+"/")
}

// toolGo runs the go command in the module's folder.
func toolGo(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}
