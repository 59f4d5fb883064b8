package trixie

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dsnet/try"
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
	dir, err := Cached("ovn-"+OVNVersion, ovnRecipe, prepareOVN)
	if err != nil {
		return "", "", fmt.Errorf("fetch OVN %s: %w", OVNVersion, err)
	}
	return Tree(filepath.Join(dir, "tree")), filepath.Join(dir, "bin"), nil
}

// prepareOVN fetches the packages and writes a script for each of their programs.
func prepareOVN(dir string) (err error) {
	defer try.Handle(&err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tree := Tree(filepath.Join(dir, "tree"))
	fmt.Fprintf(os.Stderr, "fetching OVN %s, once\n", OVNVersion)
	versions := try.E1(tree.Fetch(ctx, ovnPackages...))
	if all := strings.Join(versions, ", "); !strings.Contains(all, "ovn-host "+OVNVersion+".") {
		return fmt.Errorf("another version is in Debian's trixie: %s", all)
	}
	bin := filepath.Join(dir, "bin")
	try.E(os.Mkdir(bin, 0o755))
	for _, pattern := range []string{"usr/bin/ov[ns]*", "usr/sbin/ov[ns]*", "usr/lib/openvswitch-switch/ovs-vswitchd"} {
		programs := try.E1(filepath.Glob(tree.Path(pattern)))
		for _, path := range programs {
			program := try.E1(filepath.Rel(string(tree), path))
			try.E(tree.WriteScript(filepath.Join(bin, filepath.Base(path)), program))
		}
	}
	try.E(tree.onlyCopyrights())
	return tree.Without("usr/share/man", "usr/share/locale")
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
