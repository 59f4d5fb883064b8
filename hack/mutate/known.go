package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// known remembers which mutations were found, in the cache folder: as long as neither the mutation changes, nor the tests,
// nor anything of the module that they are built of, it need not be tried again.
type known struct {
	dir, root string

	mu     sync.Mutex
	inputs map[string]string // a hash, by package
}

// keptFor is how long a verdict is kept that nobody asks for.
const keptFor = 30 * 24 * time.Hour

func openKnown(root string) (*known, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	k := &known{dir: filepath.Join(cache, "ovn-multinet", "mutate"), root: root, inputs: map[string]string{}}
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(k.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keptFor {
			_ = os.Remove(filepath.Join(k.dir, e.Name())) // another run may have done it
		}
	}
	return k, err
}

// file is where the verdict on a mutation is kept.
func (k *known) file(m *mutation) (string, error) {
	inputs, err := k.inputsOf(m.Package)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(k.root, m.File))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s", inputs, text, source)
	return filepath.Join(k.dir, hex.EncodeToString(h.Sum(nil))), nil
}

// verdict is what was said of the mutation, "" when nothing is known.
func (k *known) verdict(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	now := time.Now()
	_ = os.Chtimes(file, now, now) // it is asked for still
	return string(text)
}

// keep remembers that it was found. What goes wrong here costs time the next time, and nothing else.
func (k *known) keep(file, verdict string) { _ = os.WriteFile(file, []byte(verdict), 0o644) }

// inputsOf hashes what the tests of a package are made of.
func (k *known) inputsOf(pkg string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if sum := k.inputs[pkg]; sum != "" {
		return sum, nil
	}
	// The folders of the packages of this module; those that build programs, or look at the whole tree, depend on all of it.
	dirs, deep := []string{k.root}, true
	if !slices.ContainsFunc([]string{labTests, "./internal/arch", "./cmd/"}, func(p string) bool { return strings.HasPrefix(pkg, p) }) {
		out, err := k.goList("-deps", "-test", "-f", `{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}`, pkg)
		if err != nil {
			return "", err
		}
		dirs, deep = slices.Compact(slices.Sorted(strings.FieldsSeq(out))), false
	}
	h := sha256.New()
	version, err := exec.Command("go", "env", "GOVERSION").Output()
	if err != nil {
		return "", err
	}
	h.Write(version)
	files := []string{filepath.Join(k.root, "go.mod"), filepath.Join(k.root, "go.sum")}
	for _, dir := range dirs {
		more, err := filesIn(dir, deep)
		if err != nil {
			return "", err
		}
		files = append(files, more...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(k.root, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\x00%d\x00", rel, len(text))
		h.Write(text)
	}
	k.inputs[pkg] = hex.EncodeToString(h.Sum(nil))
	return k.inputs[pkg], nil
}

func (k *known) goList(args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = k.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	return string(out), nil
}

// filesIn lists the files of a package's folder and of its testdata, or of all folders below it.
func filesIn(dir string, deep bool) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside := strings.HasPrefix(path, filepath.Join(dir, "testdata"))
		switch {
		case d.IsDir() && path != dir && (d.Name() == ".git" || !deep && !inside):
			return filepath.SkipDir
		case d.Type().IsRegular():
			files = append(files, path)
		}
		return nil
	})
	return files, err
}
