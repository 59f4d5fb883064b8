package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// programs of the guest, by where they are in it and where Debian has them; with the libraries that they need.
var programs = map[string]string{
	"usr/bin/ip":                              "usr/bin/ip",
	"usr/bin/ping":                            "usr/bin/ping",
	"usr/bin/busybox":                         "usr/bin/busybox",
	"usr/sbin/ethtool":                        "usr/sbin/ethtool",
	"usr/sbin/iptables":                       "usr/sbin/xtables-nft-multi",
	"usr/sbin/ip6tables":                      "usr/sbin/xtables-nft-multi",
	"usr/sbin/ovs-vswitchd":                   "usr/lib/openvswitch-switch/ovs-vswitchd",
	"usr/sbin/ovsdb-server":                   "usr/sbin/ovsdb-server",
	"usr/bin/ovsdb-client":                    "usr/bin/ovsdb-client",
	"usr/bin/ovsdb-tool":                      "usr/bin/ovsdb-tool",
	"usr/bin/ovs-vsctl":                       "usr/bin/ovs-vsctl",
	"usr/bin/ovs-appctl":                      "usr/bin/ovs-appctl",
	"usr/bin/ovs-ofctl":                       "usr/bin/ovs-ofctl",
	"usr/bin/ovs-dpctl":                       "usr/bin/ovs-dpctl",
	"usr/bin/ovn-appctl":                      "usr/bin/ovn-appctl",
	"usr/bin/ovn-nbctl":                       "usr/bin/ovn-nbctl",
	"usr/bin/ovn-sbctl":                       "usr/bin/ovn-sbctl",
	"usr/bin/ovn-northd":                      "usr/bin/ovn-northd",
	"usr/bin/ovn-controller":                  "usr/bin/ovn-controller",
	"usr/share/openvswitch/vswitch.ovsschema": "usr/share/openvswitch/vswitch.ovsschema",
	"usr/share/ovn/ovn-nb.ovsschema":          "usr/share/ovn/ovn-nb.ovsschema",
	"usr/share/ovn/ovn-sb.ovsschema":          "usr/share/ovn/ovn-sb.ovsschema",
}

// modules of the kernel that the guest loads at its start, in this order, each after what it needs; nothing is loaded later
// by itself. The driver of virtual functions is not among them, for it is loaded when they have a link.
var modules = []string{
	"crc32c_generic", "igb", "openvswitch", "vport-geneve", "veth", "bridge", "tun", "8021q", "bonding", "dummy", "vfio_pci", "vfio_iommu_type1", "nf_tables", "nft_compat",
	"nft_chain_nat", "xt_MASQUERADE", "xt_comment", "xt_conntrack", "xt_mark", "xt_addrtype", "sctp", "vrf",
}

// lateModules are in the guest to be loaded by name.
var lateModules = []string{"igbvf"}

// tree is the unpacked packages.
type tree struct{ trixie.Tree }

// kernel returns the kernel's image and the folder of its modules.
func (t tree) kernel() (image, folder string, err error) {
	images, _ := filepath.Glob(t.Path("boot/vmlinuz-*"))
	folders, _ := filepath.Glob(t.Path("usr/lib/modules/*"))
	if len(images) != 1 || len(folders) != 1 {
		return "", "", fmt.Errorf("not one kernel, but %v with modules in %v", images, folders)
	}
	return images[0], folders[0], nil
}

// writeImage writes the part of the guest's first file system that does not change from run to run.
func (t tree) writeImage(ctx context.Context, to string) (err error) {
	defer try.Handle(&err)
	f := try.E1(os.Create(to))
	defer f.Close()
	a := newArchive(f)
	for _, dir := range []string{"dev", "proc", "sys", "run", "tmp", "root", "etc", "var/lib/cni", "var/run"} {
		a.folder(dir)
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		a.folder("usr/" + dir)
		a.link(dir, "usr/"+dir)
	}
	for _, name := range []string{"sh", "sleep"} {
		a.link("usr/bin/"+name, "busybox")
	}
	a.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	a.file("etc/group", 0o644, []byte("root:x:0:\n"))
	try.E(t.addPrograms(a))
	try.E(t.addModules(ctx, a))
	return errors.Join(a.close(), f.Close())
}

func (t tree) addPrograms(a *archive) (err error) {
	defer try.Handle(&err)
	// Found by name, not by need: iptables' extensions.
	plugins := try.E1(filepath.Glob(t.Path(trixie.Libraries + "/xtables/*.so")))
	for _, p := range plugins {
		name := path.Join(trixie.Libraries, "xtables", filepath.Base(p))
		try.E(t.addFile(a, name, name))
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		try.E(t.addFile(a, name, programs[name]))
	}
	return t.addFile(a, "usr/lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2")
}

// addFile adds a file, and if it is a program or a library, what it is linked with.
func (t tree) addFile(a *archive, name, from string) (err error) {
	defer try.Handle(&err)
	if a.have[name] {
		return nil
	}
	content := try.E1(os.ReadFile(t.Path(from)))
	info := try.E1(os.Stat(t.Path(from)))
	a.file(name, info.Mode(), content)
	if !bytes.HasPrefix(content, []byte(elf.ELFMAG)) {
		return nil
	}
	e, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	needs, err := e.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, lib := range needs {
		if strings.HasPrefix(lib, "ld-linux") {
			continue
		}
		if err := t.addFile(a, path.Join(trixie.Libraries, lib), path.Join(trixie.Libraries, lib)); err != nil {
			return fmt.Errorf("%s needs %s: %w", from, lib, err)
		}
	}
	return nil
}

// addModules adds the modules, not compressed, as modules/<name>.ko, and the order to load them in.
func (t tree) addModules(ctx context.Context, a *archive) (err error) {
	defer try.Handle(&err)
	m := &moduleSet{tree: t, archive: a, files: map[string]string{}}
	try.E(m.find())
	for _, name := range modules {
		try.E(m.add(ctx, name))
	}
	order := strings.Join(m.order, "\n") + "\n"
	for _, name := range lateModules {
		try.E(m.add(ctx, name))
	}
	a.file("modules/order", 0o644, []byte(order))
	return nil
}

type moduleSet struct {
	tree    tree
	archive *archive
	files   map[string]string // by the module's name
	builtin []string
	order   []string
}

// moduleName is a file's module as the kernel calls it.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

func (m *moduleSet) find() (err error) {
	defer try.Handle(&err)
	_, folder := try.E2(m.tree.kernel())
	list := try.E1(os.ReadFile(filepath.Join(folder, "modules.builtin")))
	for _, file := range strings.Fields(string(list)) {
		m.builtin = append(m.builtin, moduleName(file))
	}
	return filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(file, ".ko.xz") {
			m.files[moduleName(file)] = file
		}
		return err
	})
}

// add adds a module after those that it depends on.
func (m *moduleSet) add(ctx context.Context, name string) error {
	name = moduleName(name)
	if slices.Contains(m.order, name) || slices.Contains(m.builtin, name) {
		return nil
	}
	file, ok := m.files[name]
	if !ok {
		return fmt.Errorf("the kernel has no module %s", name)
	}
	xz := m.tree.Start("usr/bin/xz", "--decompress", "--stdout", file)
	content, err := trixie.Output(ctx, xz[0], xz[1:]...)
	if err != nil {
		return err
	}
	needs, err := moduleNeeds([]byte(content))
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	for _, n := range needs {
		if err := m.add(ctx, n); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	m.order = append(m.order, name)
	m.archive.file("modules/"+name+".ko", 0o644, []byte(content))
	return nil
}

// moduleNeeds reads what a module says of itself.
func moduleNeeds(content []byte) (_ []string, err error) {
	defer try.Handle(&err)
	e := try.E1(elf.NewFile(bytes.NewReader(content)))
	section := e.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it has no information")
	}
	info := try.E1(section.Data())
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
