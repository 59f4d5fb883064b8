package trixie

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// Libraries is the folder of the libraries in a tree.
const Libraries = "usr/lib/x86_64-linux-gnu"

const loader = "usr/lib64/ld-linux-x86-64.so.2"

// Tree is a folder of unpacked packages.
type Tree string

// Path is where a file of the tree is on this machine.
func (t Tree) Path(name string) string { return filepath.Join(string(t), name) }

// Start returns a command line that runs one of the tree's programs with the tree's own libraries, whatever this
// machine has.
func (t Tree) Start(program string, args ...string) []string {
	return append([]string{t.Path(loader), "--library-path", t.Path(Libraries), t.Path(program)}, args...)
}

// WriteScript writes a shell script that runs one of the tree's programs under the program's own name. A program that
// is a script itself is run as it is. Both may be moved together.
func (t Tree) WriteScript(to, program string) error {
	tree, err := filepath.Rel(filepath.Dir(to), string(t))
	if err != nil {
		return err
	}
	run := `"$tree/` + program + `"`
	if _, err := elf.Open(t.Path(program)); err == nil {
		run = fmt.Sprintf(`"$tree/%s" --library-path "$tree/%s" --argv0 '%s' %s`,
			loader, Libraries, filepath.Base(program), run)
	}
	text := "#!/bin/sh\ntree=${0%/*}/" + tree + "\nexec " + run + " \"$@\"\n"
	return os.WriteFile(to, []byte(text), 0o755)
}

// Package is an unpacked package.
type Package struct {
	images.Package
	Paths []string // of its files, folders and links, in the tree
}

// Fetch makes the tree of packages for an architecture and of all that they depend on. It returns them all.
func (t Tree) Fetch(ctx context.Context, arch string, packages ...string) ([]Package, error) {
	dir := string(t) + ".apt"
	a, err := newApt(ctx, dir, arch)
	if err != nil {
		return nil, err
	}
	unpacked, err := a.unpack(ctx, string(t), packages)
	return unpacked, errors.Join(err, os.RemoveAll(dir))
}

// Without deletes files and folders of the tree that nobody needs.
func (t Tree) Without(names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, os.RemoveAll(t.Path(name)))
	}
	return errors.Join(errs...)
}

// own is the part of every recipe that is this package's.
//
//go:embed apt.go tree.go
var own embed.FS

// Cached is [buildcache.Entry] with a key of the recipe: the source files of the caller.
func Cached(name string, recipe embed.FS, build func(dir string) error) (string, error) {
	key, err := keyOf(own, recipe)
	if err != nil {
		return "", err
	}
	return buildcache.Entry(name, key, build)
}

// keyOf names a recipe by what is in its files.
func keyOf(recipes ...embed.FS) (_ string, err error) {
	defer try.Handle(&err)
	sum := sha256.New()
	for _, recipe := range recipes {
		files := try.E1(fs.ReadDir(recipe, "."))
		for _, f := range files {
			text := try.E1(recipe.ReadFile(f.Name()))
			sum.Write(text)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}
