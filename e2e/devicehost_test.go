package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// slotFolder is where Linux lists PCI devices.
const slotFolder = "/sys/bus/pci/devices"

// slots has NICs of the first node look like PCI devices, to who looks where Linux lists them: this machine may have none to
// give away. It is a folder of our own, in the lab's own mounts.
func (w *world) slots(nicOf map[string]string) {
	w.Must(unix.Mount("tmpfs", slotFolder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"))
	w.T.Cleanup(func() { w.Must(unix.Unmount(slotFolder, unix.MNT_DETACH)) })
	driver := filepath.Join(w.Nodes[0].Dir, "igbvf")
	w.Must(os.MkdirAll(driver, 0o755))
	for address, nic := range nicOf {
		w.Must(os.MkdirAll(filepath.Join(slotFolder, address, "net", nic), 0o755))
		w.Must(os.Symlink(driver, filepath.Join(slotFolder, address, "driver")))
	}
}

// linksOf are the names of a node's links among these.
func (w *world) linksOf(n *lab.Node, names ...string) (there []string) {
	for _, name := range names {
		if _, err := n.Exec(w.Ctx, "ip", "link", "show", "dev", name); err == nil {
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
	w.Base = w.Snapshot()
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
		p := w.Attached(0, "web", onWires)
		equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), nil)
		w.reachBy(p, "net1", "10.80.0.1")
		w.reachBy(p, "net3", "10.81.0.1")
		for _, s := range w.Status(p) {
			equal(t, "MAC in the status of "+s.Interface, s.Mac, w.Links(p)[s.Interface].MAC)
		}
		w.Must(p.Check(w.Ctx))
		k.Take("shop", "web")
		w.removeNAD("vf")
		w.Must(w.NB.Kill())
		if named {
			w.Del(p)
		} else {
			w.Del(p, lab.WithoutCache()) // nor does the runtime know what it was given
		}
		equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), []string{"nic0", "nic1"})
		w.ofResource("vf", nics, `{"cniVersion":"1.0.0","type":"host-device","capabilities":{"ips":true},"ipam":{"type":"static"}}`)
		k.Give("shop", "next", has{nics: {vf0}})
		next := w.Pod(0, "next", `[{"name":"vf","ips":["10.80.0.3/24"]}]`)
		w.Eventually(func() error { _, err := next.Add(w.Ctx); return err })
		w.reachBy(next, "net1", "10.80.0.1")
		w.End(next)
		w.Must(w.NB.Restart(w.Ctx))
		w.Over(p)
		k.Give("shop", "web", has{nics: {vf1, vf0}})
	}
}

// TestHostDeviceIsPulledOut: the plugin cannot give back what it cannot find. Its card stays the container's until it is
// there again; the other one, which went, is free.
func TestHostDeviceIsPulledOut(t *testing.T) {
	w, k := newHostDeviceWorld(t)
	n := w.Nodes[0]
	k.Give("shop", "a", has{nics: {vf0, vf1}})
	a := w.Attached(0, "a", onWires)
	slot, away := filepath.Join(slotFolder, vf0), filepath.Join(slotFolder, "away")
	w.Must(os.Rename(slot, away))
	w.refused(a.Del(w.Ctx), uncoded, "interface net1: network shop/vf: ", "delegate host-device: error with host device: ", vf0)
	equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), []string{"nic1"})
	k.Take("shop", "a")
	k.Give("shop", "web", has{nics: {vf0}})
	web := w.Pod(0, "web", `[{"name":"vf","ips":["10.80.0.3/24"]}]`)
	w.refused(w.TryAdd(web), conf.CodeNoDevice, heldBy("net1", "vf", nics, vf0, a)...)
	k.Give("shop", "other", has{nics: {vf0, vf1}})
	other := w.Attached(0, "other", `[{"name":"vf","ips":["10.81.0.3/24"]}]`)
	w.reachBy(other, "net1", "10.81.0.1")
	equal(t, "left behind", w.leftBehind(), []string{fmt.Sprintf("%s shop/a [{Interface:net1 Network:shop/vf Device:%s}] 1 false "+
		"interface net1: network shop/vf: plugin type=\"host-device\" failed (delete): delegate host-device: error with host device: lstat %s: no such file or directory", a.Sandbox, vf0, slot)})
	w.Must(os.Rename(away, slot))
	w.End(a)
	equal(t, "NICs on the node", w.linksOf(n, "nic0", "nic1"), []string{"nic0"})
	w.Del(web)
	w.Add(web)
	w.reachBy(web, "net1", "10.80.0.1")
	w.Over(web, other)
}

// deviceFolder is where device plugins (dp) and CNI plugins (cni) leave what they know of devices.
const deviceFolder = "/var/run/k8s.cni.cncf.io/devinfo"

// detailsOf is what an error says beside its message.
func detailsOf(err error) string {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e.Details
	}
	return ""
}

// deviceSays writes what a device plugin says of a device, and returns the file.
func (w *world) deviceSays(resource, id, text string) (path string) {
	path = filepath.Join(deviceFolder, "dp", strings.ReplaceAll(resource, "/", "-")+"-"+id+"-device.json")
	w.Must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.Must(os.WriteFile(path, []byte(text), 0o644))
	w.T.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}

// privateRun holds the mounts against what these tests need: the folder has a fixed name, and the machine's own is not ours.
func (w *world) privateRun() {
	run, err := filepath.EvalSymlinks("/var/run")
	w.Must(err)
	mounts := w.Read("/proc/self/mountinfo")
	var last []string // the mounts of a place cover each other
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 6 && f[4] == run {
			last = f
		}
	}
	if last == nil {
		w.T.Fatalf("%s is no mount of its own", run)
	}
	if optional, kind, _ := strings.Cut(strings.Join(last[6:], " "), "- "); !strings.HasPrefix(kind, "tmpfs ") || strings.Contains(optional, "shared:") {
		w.T.Fatalf("%s is no private tmpfs: %q", run, last)
	}
}

// pci is the information of a PCI device.
func pci(address string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"%s","pf-pci-address":"0000:3b:00.0"}}`, address)
}

// infos are the device informations in a pod's network-status, by interface.
func (w *world) infos(p *lab.Pod) map[string]string {
	all := map[string]string{}
	for _, s := range w.Status(p) {
		if s.DeviceInfo == nil {
			continue
		}
		text := w.JSON(s.DeviceInfo)
		all[s.Interface] = string(text)
	}
	return all
}

// deviceRead is what stood in the file for device information when a recorder was called, by "<command> <interface>".
func (w *world) deviceRead(log string) map[string]string {
	text := w.Read(log)
	read := map[string]string{}
	commands, _ := w.calls(log)
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var r struct{ Device string }
		w.Must(json.Unmarshal([]byte(line), &r))
		read[commands[i]] = r.Device
	}
	return read
}

// TestInformationOfADevicePlugin: what a device plugin says of a device is in the CNI file before the plugins run, they may
// write their own over it, network-status has what is there in the end, and the file goes with the pod.
// Conformance: D-4 D-6 D-8
func TestInformationOfADevicePlugin(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	w.privateRun()
	k := w.kubelet()
	const capable = `,"capabilities":{"CNIDeviceInfoFile":true}`
	const vdpa = `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-0","pci-address":"0000:3b:02.1"}}`
	reads, changes, plain := w.taking("reads", nics, capable), w.taking("changes", nics, capable+`,"device":`+vdpa), w.taking("plain", nics, "")
	quiet := w.taking("quiet", nics, capable)
	first, second, third := "0000:3b:02.0", "0000:3b:02.1", "0000:3b:02.2"
	for _, id := range []string{first, second, third} {
		w.deviceSays(nics, id, pci(id))
	}
	w.deviceSays(cards, first, pci("0000:3b:1f.7")) // of another resource
	k.Give("shop", "web", has{nics: {"0000:3b:02.3", third, second, first}})
	given := w.files(deviceFolder)

	p := w.Attached(0, "web", "reads,changes,blue,plain,quiet")
	equal(t, "in the status", w.infos(p), map[string]string{"net1": pci(first), "net2": vdpa, "net4": pci(third)})
	equal(t, "read by one that wants to know", w.deviceRead(reads), map[string]string{"ADD net1": pci(first)})
	equal(t, "read by one that knows better", w.deviceRead(changes), map[string]string{"ADD net2": pci(second)})
	equal(t, "told to one that does not ask", w.deviceRead(plain), map[string]string{"ADD net4": ""})
	equal(t, "read where the device plugin says nothing", w.deviceRead(quiet), map[string]string{"ADD net5": ""})
	var made []string
	for _, ifName := range []string{"net1", "net2", "net4"} {
		made = append(made, "cni/"+p.Sandbox+"-"+ifName+"-device.json")
	}
	equal(t, "files", w.files(deviceFolder), append(made, given...))

	// The device plugin may be gone since, or have written something else.
	w.deviceSays(nics, first, "{")
	w.Must(p.Check(w.Ctx))
	w.End(p)
	equal(t, "read at DEL", w.deviceRead(changes)["DEL net2"], vdpa)
	equal(t, "files in the end", w.files(deviceFolder), given)
	w.AsBefore()
}

// TestStaleDeviceFile: a killed call leaves a file that says nothing of the next one's device, and the file of an attachment
// stays until its plugin's DEL has had it.
func TestStaleDeviceFile(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log := w.taking("vf", nics, `,"capabilities":{"CNIDeviceInfoFile":true}`)
	before, after := "0000:3b:02.0", "0000:3b:02.1"
	w.deviceSays(nics, before, pci(before))
	w.deviceSays(nics, after, pci(after))
	for _, c := range []struct {
		name  string
		stale func(w *world, path string, add func(...lab.CallOption) error)
	}{
		{"of a killed call", func(w *world, path string, add func(...lab.CallOption) error) {
			w.killed(add(lab.WithEnv(failpoint.Env + "=delegate-made")))
			equal(w.T, "the file that is left", read(w.T, path), pci(before))
		}},
		{"of nobody", func(w *world, path string, _ func(...lab.CallOption) error) {
			w.Must(os.WriteFile(path, []byte(pci(before)), 0o600))
		}},
		{"a link to a file of the node's", func(w *world, path string, _ func(...lab.CallOption) error) {
			target := filepath.Join(w.Nodes[0].Dir, "shadow")
			w.Must(os.WriteFile(target, []byte("root"), 0o600))
			w.Must(os.Symlink(target, path))
			w.T.Cleanup(func() { equal(w.T, "the node's file", read(w.T, target), "root") })
		}},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			w.Must(errors.Join(os.RemoveAll(log), os.MkdirAll(filepath.Join(deviceFolder, "cni"), 0o755)))
			k.Give("shop", "web", has{nics: {before}})
			p, prev := w.withoutNetworks("web", "vf")
			add := func(opts ...lab.CallOption) error {
				_, err := p.Add(w.Ctx, append(opts, lab.OnlyOurs(prev))...)
				return err
			}
			c.stale(w, filepath.Join(deviceFolder, "cni", p.Sandbox+"-net1-device.json"), add)
			k.Give("shop", "web", has{nics: {after}})
			w.Must(add())
			equal(t, "read", w.deviceRead(log)["ADD net1"], pci(after))
			equal(t, "device", w.devices(log)["ADD net1"], both(after))
			equal(t, "in the status", w.infos(p), map[string]string{"net1": pci(after)})
			w.End(p)
			equal(t, "files in the end", w.files(filepath.Join(deviceFolder, "cni")), nil)
			w.AsBefore()
		})
	}
}

// TestHostileInformation: the folder is open to every device plugin. What is no information of the device is an error with
// its file's place, before anything is made.
func TestHostileInformation(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log := w.taking("vf", nics, `,"capabilities":{"CNIDeviceInfoFile":true}`)
	const id = "0000:3b:02.0"
	k.Give("shop", "web", has{nics: {id}})
	secret := filepath.Join(w.Nodes[0].Dir, "secret")
	w.Must(os.WriteFile(secret, []byte(pci(id)), 0o600))
	for _, tt := range []struct {
		name, text, words string
		instead           func(path string) error
	}{
		{name: "empty", words: "it is not a JSON object"},
		{name: "half", text: pci(id)[:40], words: "it is not a JSON object"},
		{name: "null", text: "null", words: "it is not a JSON object"},
		{name: "a list", text: "[" + pci(id) + "]", words: "it is not a JSON object"},
		{name: "of another device", text: pci("0000:3b:02.1"), words: "it is of PCI device 0000:3b:02.1"},
		{name: "of no type", text: `{"version":"1.1.0"}`, words: `type: "" is none of pci`},
		{name: "without its device", text: `{"type":"pci","version":"1.1.0"}`, words: `"pci" is not there as an object`},
		{name: "without an address", text: `{"type":"pci","version":"1.1.0","pci":{}}`, words: `pci: "pci-address" is missing`},
		{name: "with a path for an address", text: pci("../../etc"), words: "is no address like 0000:01:02.3"},
		{name: "without a version", text: `{"type":"pci","pci":{"pci-address":"` + id + `"}}`, words: "version:"},
		{name: "large", text: pci(id) + strings.Repeat(" ", 64<<10), words: "has more than 65536 bytes"},
		{name: "a link", words: "too many levels of symbolic links", instead: func(path string) error { return os.Symlink(secret, path) }},
		{name: "a pipe", words: "is no plain file", instead: func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{name: "a folder", words: "is no plain file", instead: func(path string) error { return os.Mkdir(path, 0o700) }},
		{name: "a socket", words: "no such device or address", instead: func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) }},
	} {
		w.part(tt.name, func(t *testing.T, w *world) {
			path := w.deviceSays(nics, id, tt.text)
			if tt.instead != nil {
				w.Must(errors.Join(os.Remove(path), tt.instead(path)))
			}
			w.nothingOf("blue,vf", conf.CodeDecoding, []string{"interface net2: network shop/vf: what the device plugin says of device " + id + ": ", tt.words}, "the device plugin wrote it", log)
		})
	}
	w.deviceSays(nics, id, pci(id))
	p := w.Attached(0, "web", "blue,vf")
	equal(t, "in the status", w.infos(p), map[string]string{"net2": pci(id)})
	w.Over(p)
}
