package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// OVNName is the image with OVN and Open vSwitch.
const OVNName = "localhost/ovn-multinet-ovn:dev"

// ovnPrograms are the programs of Debian's packages that package ovnrun runs, by their paths in the image.
var ovnPrograms = map[string]string{
	"/usr/bin/ovsdb-client":   "usr/bin/ovsdb-client",
	"/usr/bin/ovsdb-tool":     "usr/bin/ovsdb-tool",
	"/usr/sbin/ovsdb-server":  "usr/sbin/ovsdb-server",
	"/usr/sbin/ovs-vswitchd":  "usr/lib/openvswitch-switch/ovs-vswitchd",
	"/usr/bin/ovn-northd":     "usr/bin/ovn-northd",
	"/usr/bin/ovn-controller": "usr/bin/ovn-controller",
}

// ovnSchemas are the schemas of the databases.
var ovnSchemas = []string{
	"usr/share/ovn/ovn-nb.ovsschema", "usr/share/ovn/ovn-sb.ovsschema", "usr/share/openvswitch/vswitch.ovsschema",
}

// Folders of a tree of Debian's packages, and the loader that the programs name.
const (
	libraries = "usr/lib/x86_64-linux-gnu"
	loader    = "usr/lib64/ld-linux-x86-64.so.2"
	loadedBy  = "/lib64/ld-linux-x86-64.so.2"
)

// OVN returns the recipe of the image with OVN and Open vSwitch: their programs from a tree of unpacked packages, with
// the libraries that these need, the licenses, and our program that runs them.
func OVN(tree, binDir string) (Image, error) {
	const entrypoint = "/ovn-multinet-ovn"
	img := Image{Name: OVNName, Version: version.Number, Entrypoint: []string{entrypoint}, Files: map[string]string{
		entrypoint: filepath.Join(binDir, entrypoint), loadedBy: filepath.Join(tree, loader)}}
	for to, from := range ovnPrograms {
		if err := img.addProgram(tree, to, filepath.Join(tree, from)); err != nil {
			return Image{}, err
		}
	}
	for _, schema := range ovnSchemas {
		img.Files["/"+schema] = filepath.Join(tree, schema)
	}
	licenses, err := filepath.Glob(filepath.Join(tree, "usr/share/doc/*/copyright"))
	if err != nil || len(licenses) == 0 {
		return Image{}, fmt.Errorf("%s has no licenses: %w", tree, errors.Join(err, fs.ErrNotExist))
	}
	for _, path := range licenses {
		to, err := filepath.Rel(tree, path)
		if err != nil {
			return Image{}, err
		}
		img.Files["/"+to] = path
	}
	return img, nil
}

// addProgram adds a program or a library, and the libraries that it names (ELF, DT_NEEDED).
func (img *Image) addProgram(tree, to, from string) error {
	img.Files[to] = from
	f, err := elf.Open(from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, name := range needed {
		to := "/" + libraries + "/" + name
		if _, has := img.Files[to]; has || name == filepath.Base(loader) {
			continue
		}
		from := filepath.Join(tree, libraries, name)
		if _, err := os.Stat(from); err != nil {
			return fmt.Errorf("library of %s: %w", to, err)
		}
		if err := img.addProgram(tree, to, from); err != nil {
			return err
		}
	}
	return nil
}
