package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// slotFolder is where Linux lists PCI devices.
const slotFolder = "/sys/bus/pci/devices"

// slots has NICs of the first node look like PCI devices, to who looks where Linux lists them: this machine may have none to
// give away. It is a folder of our own, in the lab's own mounts.
func (w *world) slots(nicOf map[string]string) {
	w.t.Helper()
	w.must(unix.Mount("tmpfs", slotFolder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"))
	w.t.Cleanup(func() { w.must(unix.Unmount(slotFolder, unix.MNT_DETACH)) })
	driver := filepath.Join(w.Nodes[0].Dir, "igbvf")
	w.must(os.MkdirAll(driver, 0o755))
	for address, nic := range nicOf {
		w.must(os.MkdirAll(filepath.Join(slotFolder, address, "net", nic), 0o755))
		w.must(os.Symlink(driver, filepath.Join(slotFolder, address, "driver")))
	}
}

// linksOf are the names of a node's links among these.
func (w *world) linksOf(n *lab.Node, names ...string) (there []string) {
	w.t.Helper()
	for _, name := range names {
		if _, err := n.Exec(w.ctx, "ip", "link", "show", "dev", name); err == nil {
			there = append(there, name)
		}
	}
	return there
}

// newHostDeviceWorld has a node with two NICs, each on a wire to a machine of its own, and a network of host-device.
func newHostDeviceWorld(t *testing.T) (*world, *lab.PodResources) {
	t.Helper()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	w.wire("nic0", "10.80.0.1/24")
	w.wire("nic1", "10.81.0.1/24")
	w.slots(map[string]string{vf0: "nic0", vf1: "nic1"})
	w.ofResource("vf", nics, `{"cniVersion":"1.0.0","type":"host-device","capabilities":{"ips":true},"ipam":{"type":"static"}}`)
	w.base = w.snapshot()
	return w, w.kubelet()
}

const onWires = `[{"name":"vf","ips":["10.80.0.2/24"]},{"name":"blue"},{"name":"vf","ips":["10.81.0.2/24"]}]`

// TestHostDeviceTakesItsDevice: the real plugin moves the NICs into the pod whose addresses it was told, and back when the
// pod goes, though kubelet, NB and the API have nothing to say any more. The next pod has them while NB is away still.
func TestHostDeviceTakesItsDevice(t *testing.T) {
	w, k := newHostDeviceWorld(t)
	n := w.Nodes[0]
	k.Give("shop", "web", has{nics: {vf1, vf0}})
	for _, named := range []bool{true, false} {
		p := w.attached(0, "web", onWires)
		equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), nil)
		w.reachBy(p, "net1", "10.80.0.1")
		w.reachBy(p, "net3", "10.81.0.1")
		for _, s := range w.status(p) {
			equal(t, "MAC in the status of "+s.Interface, s.Mac, w.links(p)[s.Interface].MAC)
		}
		w.must(p.Check(w.ctx))
		k.Take("shop", "web")
		w.removeNAD("vf")
		w.must(w.NB.Kill())
		if named {
			w.del(p)
		} else {
			w.del(p, lab.WithoutCache()) // nor does the runtime know what it was given
		}
		equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), []string{"nic0", "nic1"})
		w.ofResource("vf", nics, `{"cniVersion":"1.0.0","type":"host-device","capabilities":{"ips":true},"ipam":{"type":"static"}}`)
		k.Give("shop", "next", has{nics: {vf0}})
		next := w.pod(0, "next", `[{"name":"vf","ips":["10.80.0.3/24"]}]`)
		w.eventually(func() error { _, err := next.Add(w.ctx); return err })
		w.reachBy(next, "net1", "10.80.0.1")
		w.end(next)
		w.must(w.NB.Restart(w.ctx))
		w.end(p)
		w.asBefore()
		k.Give("shop", "web", has{nics: {vf1, vf0}})
	}
}

// TestHostDeviceIsPulledOut: the plugin cannot give back what it cannot find. Its card stays the container's until it is
// there again; the other one, which went, is free.
func TestHostDeviceIsPulledOut(t *testing.T) {
	w, k := newHostDeviceWorld(t)
	n := w.Nodes[0]
	k.Give("shop", "a", has{nics: {vf0, vf1}})
	a := w.attached(0, "a", onWires)
	slot, away := filepath.Join(slotFolder, vf0), filepath.Join(slotFolder, "away")
	w.must(os.Rename(slot, away))
	w.refused(a.Del(w.ctx), uncoded, "interface net1: network shop/vf: ", "delegate host-device: error with host device: ", vf0)
	equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), []string{"nic1"})
	k.Take("shop", "a")
	k.Give("shop", "web", has{nics: {vf0}})
	web := w.pod(0, "web", `[{"name":"vf","ips":["10.80.0.3/24"]}]`)
	_, err := web.Add(w.ctx)
	w.refused(err, conf.CodeNoDevice, heldBy("net1", "vf", nics, vf0, a)...)
	k.Give("shop", "other", has{nics: {vf0, vf1}})
	other := w.attached(0, "other", `[{"name":"vf","ips":["10.81.0.3/24"]}]`)
	w.reachBy(other, "net1", "10.81.0.1")
	equal(t, "left behind", w.leftBehind(), []string{fmt.Sprintf("%s shop/a [{Interface:net1 Network:shop/vf Device:%s}] 1 false "+
		"interface net1: network shop/vf: plugin type=\"host-device\" failed (delete): delegate host-device: error with host device: lstat %s: no such file or directory", a.Sandbox, vf0, slot)})
	w.must(os.Rename(away, slot))
	w.end(a)
	equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), []string{"nic0"})
	w.del(web)
	w.add(web)
	w.reachBy(web, "net1", "10.80.0.1")
	w.end(web, other)
	w.asBefore()
}
