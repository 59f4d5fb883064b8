package images

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// OVNName is the image with OVN and Open vSwitch.
const OVNName = "localhost/ovn-multinet-ovn:dev"

// OVNProgram is our program in this image.
const OVNProgram = "ovn-multinet-ovn"

// ovnPrograms are programs of Debian's packages, by their paths in the image. Package ovnrun runs the first ones. The
// others are for operators (`kubectl multinet nbctl` and so on); no program of ours runs them.
var ovnPrograms = map[string]string{
	"/usr/bin/ovsdb-client":   "usr/bin/ovsdb-client",
	"/usr/bin/ovsdb-tool":     "usr/bin/ovsdb-tool",
	"/usr/sbin/ovsdb-server":  "usr/sbin/ovsdb-server",
	"/usr/sbin/ovs-vswitchd":  "usr/lib/openvswitch-switch/ovs-vswitchd",
	"/usr/bin/ovn-northd":     "usr/bin/ovn-northd",
	"/usr/bin/ovn-controller": "usr/bin/ovn-controller",

	"/usr/bin/ovn-nbctl":  "usr/bin/ovn-nbctl",
	"/usr/bin/ovn-sbctl":  "usr/bin/ovn-sbctl",
	"/usr/bin/ovn-trace":  "usr/bin/ovn-trace",
	"/usr/bin/ovs-vsctl":  "usr/bin/ovs-vsctl",
	"/usr/bin/ovs-ofctl":  "usr/bin/ovs-ofctl",
	"/usr/bin/ovs-appctl": "usr/bin/ovs-appctl",
}

// ovnSchemas are the schemas of the databases.
var ovnSchemas = []string{
	"usr/share/ovn/ovn-nb.ovsschema", "usr/share/ovn/ovn-sb.ovsschema", "usr/share/openvswitch/vswitch.ovsschema",
}

// runtimes has the folder of libraries in a tree of Debian's packages, and the loader that programs name, by GOARCH.
var runtimes = map[string]struct{ libraries, loader string }{
	"amd64": {"usr/lib/x86_64-linux-gnu", "/lib64/ld-linux-x86-64.so.2"},
	"arm64": {"usr/lib/aarch64-linux-gnu", "/lib/ld-linux-aarch64.so.1"},
}

// Package is a Debian package.
type Package struct{ Name, Version, Arch string }

// Debian is a tree of unpacked Debian packages for one platform.
type Debian struct {
	Arch     string             // as in GOARCH, which has Debian's words
	Tree     string             // a folder
	Packages map[string]Package // by the path of a file in the tree, without a leading slash
}

// OVN returns the recipe of the image with OVN and Open vSwitch: their programs from Debian's packages, with the
// libraries that these need, the licenses, and our program that runs them.
func OVN(from Debian, binDir string) (Image, error) {
	const entrypoint = "/" + OVNProgram
	img := Image{
		Name: OVNName, Arch: from.Arch, Version: version.Number, Entrypoint: []string{entrypoint},
		Files: map[string]string{entrypoint: filepath.Join(binDir, entrypoint)}, Packages: map[string]Package{},
	}
	loader := runtimes[from.Arch].loader
	if err := img.add(from, loader, "usr"+loader); err != nil {
		return Image{}, err
	}
	for to, path := range ovnPrograms {
		if err := img.addProgram(from, to, path); err != nil {
			return Image{}, err
		}
	}
	for _, schema := range ovnSchemas {
		if err := img.add(from, "/"+schema, schema); err != nil {
			return Image{}, err
		}
	}
	for _, p := range slices.Collect(maps.Values(img.Packages)) {
		license := "usr/share/doc/" + p.Name + "/copyright"
		if err := img.add(from, "/"+license, license); err != nil {
			return Image{}, err
		}
	}
	return img, nil
}

// add adds a file of a package.
func (img *Image) add(from Debian, to, path string) error {
	p, is := from.Packages[path]
	if !is {
		return fmt.Errorf("no package for %s in %s has %s: %w", from.Arch, from.Tree, path, fs.ErrNotExist)
	}
	img.Files[to], img.Packages[to] = filepath.Join(from.Tree, path), p
	return nil
}

// addProgram adds a program or a library, and the libraries that it names (ELF, DT_NEEDED).
func (img *Image) addProgram(from Debian, to, path string) error {
	if err := img.add(from, to, path); err != nil {
		return err
	}
	f, err := elf.Open(img.Files[to])
	if err != nil {
		return fmt.Errorf("%s: %w", img.Files[to], err)
	}
	defer f.Close()
	if !isFor(f, from.Arch) {
		return fmt.Errorf("%s is for %s, not for %s", img.Files[to], f.Machine, from.Arch)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", img.Files[to], err)
	}
	for _, name := range needed {
		path := filepath.Join(runtimes[from.Arch].libraries, name)
		if _, has := img.Files["/"+path]; has || name == filepath.Base(runtimes[from.Arch].loader) {
			continue
		}
		if err := img.addProgram(from, "/"+path, path); err != nil {
			return fmt.Errorf("library of %s: %w", to, err)
		}
	}
	return nil
}
