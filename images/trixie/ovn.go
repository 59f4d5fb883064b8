package trixie

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/images"
)

// OVNVersion is the version of OVN in Debian 13.
const OVNVersion = "25.03"

// ovnPackages are the packages with the programs of OVN and Open vSwitch.
var ovnPackages = []string{"openvswitch-common", "openvswitch-switch", "ovn-common", "ovn-central", "ovn-host"}

//go:embed ovn.go
var ovnRecipe embed.FS

// OVN fetches OVN and Open vSwitch, once per version of this recipe. The folder of scripts runs them with their own
// libraries.
func OVN() (tree Tree, scripts string, err error) {
	dir, err := fetchOVN(here)
	return Tree(filepath.Join(dir, "tree")), filepath.Join(dir, "bin"), err
}

// OVNPackages fetches the packages of OVN and Open vSwitch for amd64 or arm64, once per version of this recipe.
func OVNPackages(arch string) (images.Debian, error) {
	dir, err := fetchOVN(arch)
	if err != nil {
		return images.Debian{}, err
	}
	d := images.Debian{Arch: arch, Tree: filepath.Join(dir, "tree")}
	text, err := os.ReadFile(filepath.Join(dir, "packages.json"))
	if err == nil {
		err = json.Unmarshal(text, &d.Packages)
	}
	return d, err
}

// here is the architecture of the machines that run the packages' programs.
const here = "amd64"

func fetchOVN(arch string) (string, error) {
	name := "ovn-" + OVNVersion
	if arch != here {
		name += "-" + arch
	}
	dir, err := Cached(name, ovnRecipe, func(dir string) error { return prepareOVN(dir, arch) })
	if err != nil {
		return "", fmt.Errorf("fetch OVN %s for %s: %w", OVNVersion, arch, err)
	}
	return dir, nil
}

// prepareOVN fetches the packages, lists the package of each of their files, and writes a script for each program.
func prepareOVN(dir, arch string) (err error) {
	defer try.Handle(&err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tree := Tree(filepath.Join(dir, "tree"))
	fmt.Fprintf(os.Stderr, "fetching OVN %s for %s, once\n", OVNVersion, arch)
	fetched, packages, version := try.E1(tree.Fetch(ctx, arch, ovnPackages...)), map[string]images.Package{}, ""
	for _, p := range fetched {
		if p.Name == "ovn-host" {
			version = p.Version
		}
		for _, path := range p.Paths {
			packages[path] = p.Package
		}
	}
	if !strings.HasPrefix(version, OVNVersion+".") {
		return fmt.Errorf("the version in trixie is %q", version)
	}
	try.E(os.WriteFile(filepath.Join(dir, "packages.json"), try.E1(json.Marshal(packages)), 0o644))
	if arch == here {
		try.E(tree.writeScripts(filepath.Join(dir, "bin")))
	}
	try.E(tree.onlyCopyrights())
	return tree.Without("usr/share/man", "usr/share/locale")
}

// writeScripts writes a script for each program of OVN and Open vSwitch.
func (t Tree) writeScripts(bin string) (err error) {
	defer try.Handle(&err)
	try.E(os.Mkdir(bin, 0o755))
	for _, pattern := range []string{"usr/bin/ov[ns]*", "usr/sbin/ov[ns]*", "usr/lib/openvswitch-switch/ovs-vswitchd"} {
		programs := try.E1(filepath.Glob(t.Path(pattern)))
		for _, path := range programs {
			program := try.E1(filepath.Rel(string(t), path))
			try.E(t.WriteScript(filepath.Join(bin, filepath.Base(path)), program))
		}
	}
	return nil
}

// onlyCopyrights deletes the documents of the packages but their licenses.
func (t Tree) onlyCopyrights() error {
	return filepath.WalkDir(t.Path("usr/share/doc"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "copyright" {
			return err
		}
		return os.Remove(path)
	})
}
