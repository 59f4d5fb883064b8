package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// cache remembers which mutations were found. An entry is valid until the mutation, the tests or any code of the module
// that they are built of changes.
type cache struct {
	dir string

	mu     sync.Mutex
	inputs map[string]string // a hash, by folder
}

// keptFor is how long the cache keeps an unused entry.
const keptFor = 30 * 24 * time.Hour

func openCache() (*cache, error) {
	root, err := buildcache.Dir()
	if err != nil {
		return nil, err
	}
	c := &cache{dir: filepath.Join(root, "mutate"), inputs: map[string]string{}}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keptFor {
			_ = os.Remove(filepath.Join(c.dir, e.Name())) // another run may have deleted the file
		}
	}
	return c, err
}

// file returns the file of a mutation's entry.
func (c *cache) file(m *mutation) (string, error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%+v\x00%s", *m, source)
	for _, r := range m.Runs {
		inputs, err := c.inputsOf(r.Folder)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "\x00%s", inputs)
	}
	return filepath.Join(c.dir, hex.EncodeToString(h.Sum(nil))), nil
}

// verdict returns an entry, "" when there is none.
func (c *cache) verdict(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	now := time.Now()
	_ = os.Chtimes(file, now, now) // still in use
	return string(text)
}

// keep writes an entry. An error costs time at the next run and nothing else.
func (c *cache) keep(file, verdict string) { _ = os.WriteFile(file, []byte(verdict), 0o644) }

// wholeTree are the folders whose tests build programs or read the whole tree.
var wholeTree = []string{scenarios, "internal/arch", "cmd/"}

// inputsOf hashes the files that the tests of a folder are made of.
func (c *cache) inputsOf(folder string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sum := c.inputs[folder]; sum != "" {
		return sum, nil
	}
	dirs, deep := []string{"."}, true
	if !slices.ContainsFunc(wholeTree, func(p string) bool { return strings.HasPrefix(folder, p) }) {
		const ours = `{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}`
		out, err := exec.Command("go", "list", "-deps", "-test", "-f", ours, "./"+folder).Output()
		if err != nil {
			return "", fmt.Errorf("go list %s: %w", folder, err)
		}
		dirs, deep = slices.Compact(slices.Sorted(strings.FieldsSeq(string(out)))), false
	}
	version, err := exec.Command("go", "env", "GOVERSION").Output()
	if err != nil {
		return "", err
	}
	files := []string{"go.mod", "go.sum"}
	for _, dir := range dirs {
		more, err := filesIn(dir, deep)
		if err != nil {
			return "", err
		}
		files = append(files, more...)
	}
	h := sha256.New()
	h.Write(version)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\x00%d\x00%s", file, len(text), text)
	}
	c.inputs[folder] = hex.EncodeToString(h.Sum(nil))
	return c.inputs[folder], nil
}

// filesIn lists the files of a folder and of its testdata, or with deep those of all folders below.
func filesIn(dir string, deep bool) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
