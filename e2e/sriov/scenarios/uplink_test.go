//go:build sriov

package scenarios

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport/uplink"
)

// TestUplinkKinds: interfaces of kinds that other machines of the suites do not have are refused or taken by name.
func TestUplinkKinds(t *testing.T) {
	w := labtest.New(t, patience)
	runtime.LockOSThread() // and never back: the thread keeps the namespace
	w.Must(unix.Unshare(unix.CLONE_NEWNET))
	add := func(link netlink.Link) {
		t.Helper()
		w.Must(netlink.LinkAdd(link))
	}
	attrs := func(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name} }
	for _, name := range []string{"eth1", "eth2"} {
		add(&netlink.Veth{LinkAttrs: attrs(name), PeerName: name + "-far"})
	}
	parent, err := netlink.LinkByName("eth1")
	w.Must(err)
	add(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth1.100", ParentIndex: parent.Attrs().Index}, VlanId: 100})
	add(&netlink.Dummy{LinkAttrs: attrs("dummy0")})
	bond := netlink.NewLinkBond(attrs("bond0"))
	add(bond)
	member, err := netlink.LinkByName("eth2")
	w.Must(err)
	w.Must(netlink.LinkSetMaster(member, bond))
	for _, tt := range []struct {
		name   string
		tagged bool
		want   string
	}{
		{"eth1", true, ""}, {"bond0", true, ""}, {"eth1.100", false, ""},
		{"eth1.100", true, "eth1.100 is a VLAN interface of eth1, and networks on VLANs are granted"},
		{"eth2", true, "eth2 is a port of the bond bond0: name bond0"},
		{"dummy0", true, "dummy0 is of the kind dummy, which leads to no physical network"},
	} {
		got := ""
		if err := (uplink.NICs{}).Usable(tt.name, tt.tagged); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s, with VLANs %t: %q, want %q", tt.name, tt.tagged, got, tt.want)
		}
	}
}

// TestUplink: with the kernel's datapath, a node's agent takes a NIC into a bridge and gives it back, and a VLAN interface of
// the NIC, which the node itself uses, carries its traffic all the while.
func TestUplink(t *testing.T) {
	w := newWorld(t)
	n := w.Nodes[1]
	object := func(nic string) {
		t.Helper()
		w.Must(w.WriteManifest("uplink.yaml", "apiVersion: ovn-multinet.io/v1alpha1\nkind: PhysicalNetwork\nmetadata: {name: provider}\n"+
			"spec: {uplinks: [{nodes: \"edge!=yes\", interface: "+nic+"}]}\n"))
	}
	mappings := func(want string) {
		t.Helper()
		w.Eventually(func() error {
			got, err := n.VSCtl(w.Ctx, "--no-wait", "--if-exists", "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings")
			if err == nil && strings.Trim(got, "\"\n") != want {
				err = fmt.Errorf("%s has the mappings %s, want %s", n.Name, got, want)
			}
			return err
		})
	}
	node, err := w.Outside(w.Ctx, "manager", 7, "198.51.100.9/24")
	w.Must(err)
	host, err := w.Outside(w.Ctx, "host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.Must(err)
	w.Exec(n, "ip", "link", "add", "link", "ext0", "name", "ext0.7", "type", "vlan", "id", "7")
	w.Exec(n, "ip", "address", "add", "198.51.100.2/24", "dev", "ext0.7")
	w.Exec(n, "ip", "link", "set", "ext0.7", "up")
	managed := func() {
		t.Helper()
		w.Eventually(func() error {
			_, err := node.Exec(w.Ctx, "ping", "-c1", "-W1", "198.51.100.2")
			return err
		})
	}
	w.VSCtl(n, "del-br", "br-ex", "--", "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	managed()
	object("ext0")
	mappings("provider:br-provider")
	managed()
	w.NAD("wire", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":42,`+
		`"subnets":"192.0.2.0/24,2001:db8::/64","excludeSubnets":"192.0.2.0/27,2001:db8::/124"}`)
	w.Eventually(func() error { return w.ready("wire") })
	p := w.Pod(1, "p", "wire")
	w.AddInTheEnd(p)
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	w.MustReach(host, w.Links(p)["net1"].IPs()...)
	w.End(p)
	w.Must(w.RemoveManifest(labtest.NADFile("wire")))

	w.Must(w.RemoveManifest("uplink.yaml"))
	mappings("")
	managed()
	w.Exec(n, "ip", "link", "delete", "ext0.7")
	if out := w.Exec(n, "ip", "-details", "link", "show", "ext0"); strings.Contains(out, "master") {
		t.Errorf("ext0 still belongs to a bridge: %s", out)
	}
	w.VSCtl(n, "add-br", "br-ex", "--", "add-port", "br-ex", "ext0", "--", "set", "Open_vSwitch", ".",
		"external_ids:ovn-bridge-mappings=provider:br-ex")
	w.Must(node.Close())
	w.Must(host.Close())
	w.AsBefore()
}
