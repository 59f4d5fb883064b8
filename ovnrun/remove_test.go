package ovnrun

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// Remove deletes the bridges and all files of a node, and gives the tunnels' interface its address again. A second
// Remove, after a restart of the container, finds nothing to do.
func TestRemove(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for name, tunnels := range map[string]string{"by its name": "nic", "by its subnet": "192.0.2.0/24"} {
		t.Run(name, func(t *testing.T) { removes(t, tunnels) })
	}
}

// removes makes a bridge of an interface, which TunnelInterface names, and removes it.
func removes(t *testing.T, tunnels string) {
	w := newWorld(t)
	ovndbtest.Need(t, "ovs-vswitchd")
	dir := ovndbtest.TempDir(t)
	disk := filepath.Join(dir, "disk")
	h := &Host{Node: "one", Bridge: "br-int", Datapath: DatapathUserspace, TunnelInterface: tunnels,
		DBDir: filepath.Join(disk, "openvswitch"), RunDir: filepath.Join(dir, "run"), OVNRunDir: filepath.Join(dir, "run"),
		Schema: "/usr/share/openvswitch/vswitch.ovsschema", Log: slog.New(slog.DiscardHandler)}
	for _, folder := range []string{h.DBDir, h.RunDir, filepath.Join(disk, "pki")} {
		w.must(os.MkdirAll(folder, 0o700))
	}
	w.must(os.WriteFile(filepath.Join(disk, "pki", "tls.key"), nil, 0o600))
	address := netip.MustParsePrefix("192.0.2.7/24")
	w.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nic"}, PeerName: "cable"}))
	nic, err := netlink.LinkByName("nic")
	w.must(err)
	t.Cleanup(func() { _ = netlink.LinkDel(nic) })
	addr, err := netlink.ParseAddr(address.String())
	w.must(err)
	w.must(netlink.AddrAdd(nic, addr))
	w.must(netlink.LinkSetUp(nic))

	w.must(h.setRunDirs())
	w.must(h.create(t.Context(), h.file()))
	database, err := start(h.serverArgs()...)
	w.must(err)
	switching, err := start(h.switchdArgs()...)
	w.must(err)
	w.eventually("the settings", func() error { return h.tryConfigure(t.Context()) })
	w.eventually("the address on the bridge", func() error { return h.moveAddress(t.Context()) })
	if has, err := prefixOf(tunnelBridge); err != nil || has != address {
		t.Fatalf("the bridge has %v, %v", has, err)
	}
	w.must(switching.end())
	w.must(database.end())
	if has, err := prefixOf("nic"); err == nil {
		t.Fatalf("without Open vSwitch the interface has %v", has)
	}

	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.Remove(ctx, disk) }()
		w.eventually("an empty folder", func() error {
			files, err := os.ReadDir(disk)
			if err == nil && len(files) > 0 {
				err = fmt.Errorf("files %v", files)
			}
			return err
		})
		stop()
		w.must(<-ended)
		if has, err := prefixOf("nic"); err != nil || has != address {
			t.Errorf("the interface has %v, %v", has, err)
		}
		links, err := netlink.LinkList()
		w.must(err)
		for _, l := range links {
			if l.Attrs().Name == "nic" && l.Attrs().RawFlags&unix.IFF_NOARP != 0 {
				t.Error("the interface answers no ARP requests")
			}
			if name := l.Attrs().Name; name != "nic" && name != "cable" && name != "lo" {
				t.Errorf("the link %s stays", name)
			}
		}
	}
}
