package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// recipe is what the cached part of the guest is made by: another recipe makes another one.
//
//go:embed image.go cpio.go base.go
var recipe embed.FS

// packages are what is fetched, with all that they depend on: first what runs here, then what runs in the guest. trixie's
// QEMU gives igb's virtual functions a link, and its kernel has a driver for them.
var packages = []string{
	"qemu-system-x86", "xz-utils",
	"linux-image-amd64", "openvswitch-switch", "ovn-central", "ovn-host", "iproute2", "ethtool", "iptables", "iputils-ping",
	"busybox-static",
}

// base is the cached part of the guest, in a folder of the cache: QEMU, the kernel, its modules and Debian's programs.
type base struct {
	tree
	kernel   string
	image    string
	versions string // of QEMU, the kernel, OVS and OVN
}

// prepare returns the base, and makes it if it is not there in this version.
func prepare(ctx context.Context) (*base, error) {
	dir, err := trixie.Cached("sriov-guest", recipe, func(work string) error {
		began := time.Now()
		fmt.Println("fetching QEMU and the guest's kernel and programs: some 190 MB, once")
		if err := makeBase(ctx, work); err != nil {
			return fmt.Errorf("make the guest's base: %w", err)
		}
		fmt.Printf("fetched and unpacked in %.0f s\n", time.Since(began).Seconds())
		return nil
	})
	if err != nil {
		return nil, err
	}
	versions, err := os.ReadFile(filepath.Join(dir, "versions"))
	return &base{
		tree: treeIn(dir), kernel: filepath.Join(dir, "vmlinuz"), image: filepath.Join(dir, "image.cpio"),
		versions: named(string(versions)),
	}, err
}

func treeIn(dir string) tree { return tree{trixie.Tree(filepath.Join(dir, "tree"))} }

func makeBase(ctx context.Context, work string) (err error) {
	defer try.Handle(&err)
	t := treeIn(work)
	var versions []string
	for _, p := range try.E1(t.Fetch(ctx, "amd64", packages...)) {
		versions = append(versions, p.Name+" "+p.Version)
	}
	try.E(os.WriteFile(filepath.Join(work, "versions"), []byte(strings.Join(versions, "\n")+"\n"), 0o644))
	try.E(t.writeImage(ctx, filepath.Join(work, "image.cpio")))
	kernel, _ := try.E2(t.kernel())
	try.E(os.Rename(kernel, filepath.Join(work, "vmlinuz")))
	// What QEMU does not need of the tree.
	return t.Without("boot", "usr/lib/modules", "usr/share/doc", "usr/share/locale", "usr/share/man", "usr/lib/python3", "usr/lib/python3.13")
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
