package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listedPackage is what go list tells about a package.
type listedPackage struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
}

// compile checks the types of each mutated package and returns the mutations that do not compile. A run of the tests
// takes seconds for each mutation, so it can only try a sample; this check takes milliseconds and tries all.
func compile(mutations []mutation) error {
	packages, err := goList()
	if err != nil {
		return err
	}
	exports, byFolder := map[string]string{}, map[string]listedPackage{}
	for _, p := range packages {
		exports[p.ImportPath], byFolder[p.Dir] = p.Export, p
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var misfits []error
	for i := range mutations {
		m := &mutations[i]
		folder, err := filepath.Abs(filepath.Dir(m.File))
		if err != nil {
			return err
		}
		if err := m.check(set, imports, byFolder[folder]); err != nil {
			misfits = append(misfits, fmt.Errorf("%s does not compile: %w", m, err))
		}
	}
	return errors.Join(misfits...)
}

// check checks the types of the package with the mutation.
func (m *mutation) check(set *token.FileSet, imports types.Importer, p listedPackage) error {
	if !slices.Contains(p.GoFiles, filepath.Base(m.File)) {
		return fmt.Errorf("%s is not built here", m.File)
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name == filepath.Base(m.File) {
			source = m.mutated(source)
		}
		file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	config := types.Config{Importer: imports}
	_, err := config.Check(p.ImportPath, set, files, nil)
	return err
}

// mutated returns the file's text with the mutation.
func (m *mutation) mutated(source []byte) []byte {
	return slices.Concat(source[:m.Begin], []byte(m.New), source[m.End:])
}

// goList returns the packages of the module and all that they import, with the files of their compiled types.
func goList() (all []listedPackage, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}
