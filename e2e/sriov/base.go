package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// recipe is what the cached part of the guest is made by: another recipe makes another one.
//
//go:embed apt.go image.go cpio.go base.go
var recipe embed.FS

// base is the cached part of the guest, in a folder of the cache: QEMU, the kernel, its modules and Debian's programs.
type base struct {
	tree
	kernel   string
	image    string
	versions string // of QEMU, the kernel, OVS and OVN
}

// prepare returns the base, and makes it if it is not there in this version. Several processes take turns.
func prepare(ctx context.Context) (*base, error) {
	cache, err := lab.CacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "sriov-guest")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lab.LockFile(filepath.Join(cache, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	key, err := recipeKey()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, key)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		began := time.Now()
		fmt.Println("fetching QEMU and the guest's kernel and programs: some 190 MB, once")
		if err := makeBase(ctx, cache, dir); err != nil {
			return nil, fmt.Errorf("make the guest's base: %w", err)
		}
		fmt.Printf("fetched and unpacked in %.0f s\n", time.Since(began).Seconds())
	}
	versions, err := os.ReadFile(filepath.Join(dir, "versions"))
	return &base{
		tree: tree(filepath.Join(dir, "tree")), kernel: filepath.Join(dir, "vmlinuz"), image: filepath.Join(dir, "image.cpio"),
		versions: named(string(versions)),
	}, err
}

func recipeKey() (string, error) {
	files, err := recipe.ReadDir(".")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, f := range files {
		b, err := recipe.ReadFile(f.Name())
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// makeBase makes the folder, which appears by a rename: it is there whole or not at all. Those of other recipes go.
func makeBase(ctx context.Context, cache, dir string) error {
	old, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if filepath.Base(path) != "lock" {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	work := filepath.Join(cache, "new")
	a, err := newApt(ctx, filepath.Join(cache, "apt"))
	if err != nil {
		return err
	}
	t := tree(filepath.Join(work, "tree"))
	versions, err := a.unpack(ctx, string(t))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "versions"), []byte(strings.Join(versions, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	if err := t.writeImage(ctx, filepath.Join(work, "image.cpio")); err != nil {
		return err
	}
	kernel, _, err := t.kernel()
	if err != nil {
		return err
	}
	if err := os.Rename(kernel, filepath.Join(work, "vmlinuz")); err != nil {
		return err
	}
	// What QEMU does not need of the tree.
	for _, name := range []string{"boot", "usr/lib/modules", "usr/share/doc", "usr/share/locale", "usr/share/man", "usr/lib/python3", "usr/lib/python3.13"} {
		if err := os.RemoveAll(t.path(name)); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(a.dir), os.Rename(work, dir))
}

// named picks the versions that matter to a reader of a log.
func named(versions string) string {
	var out []string
	for line := range strings.Lines(versions) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "qemu-system-x86", "linux-image-amd64", "openvswitch-switch", "ovn-host":
			out = append(out, name+" "+version)
		}
	}
	return strings.Join(out, ", ")
}
