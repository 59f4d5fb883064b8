//go:build release

package images_test

import (
	"debug/elf"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// TestOVNImage: each program of OVN's image is for the platform and has its loader, its libraries and the license of
// its package in the image, and the SBOM names these packages. What is for arm64 is not run.
func TestOVNImage(t *testing.T) {
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, images.OVNProgram)); err != nil { // the test needs a Go program
		t.Fatal(err)
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			packages, err := trixie.OVNPackages(arch)
			if err != nil {
				t.Fatal(err)
			}
			img, err := images.OVN(packages, bin)
			if err != nil {
				t.Fatal(err)
			}
			sbom, err := images.SBOM(img)
			if err != nil {
				t.Fatal(err)
			}
			for _, program := range []string{"ovsdb-server", "ovs-vswitchd", "ovn-northd", "ovn-controller",
				"ovn-nbctl", "ovn-sbctl", "ovn-trace", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"} {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(img.Files)), func(f string) bool { return path.Base(f) == program }) {
					t.Errorf("the image has no %s", program)
				}
			}
			for file, p := range img.Packages {
				if license := "/usr/share/doc/" + p.Name + "/copyright"; img.Files[license] == "" {
					t.Errorf("the image has no license of package %s", p.Name)
				}
				if purl := "pkg:deb/debian/" + p.Name + "@"; !strings.Contains(string(sbom), purl) {
					t.Errorf("the SBOM does not have %s", purl)
				}
				checkProgram(t, img, file, machine)
			}
		})
	}
	one, err := trixie.OVNPackages("amd64")
	if err != nil {
		t.Fatal(err)
	}
	one.Arch = "arm64"
	if _, err := images.OVN(one, bin); err == nil || !strings.Contains(err.Error(), "no package for arm64 in "+one.Tree+" has ") {
		t.Errorf("packages of another platform: %v", err)
	}
}

// checkProgram checks a program or a library of an image.
func checkProgram(t *testing.T, img images.Image, file string, machine elf.Machine) {
	t.Helper()
	if strings.HasSuffix(file, "/copyright") || strings.HasSuffix(file, ".ovsschema") {
		return
	}
	f, err := elf.Open(img.Files[file])
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	defer f.Close()
	if f.Machine != machine {
		t.Errorf("%s is for %s, not for %s", file, f.Machine, machine)
	}
	loader := ""
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			if loader = strings.Trim(string(text), "\x00"); err != nil || img.Files[loader] == "" {
				t.Errorf("%s needs the loader %q, which the image does not have: %v", file, loader, err)
			}
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, name := range libraries {
		found := func(f string) bool { return path.Base(f) == name }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(img.Files)), found) {
			t.Errorf("%s needs %s, which the image does not have", file, name)
		}
	}
}
