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

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

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
	w.t.Helper()
	path = filepath.Join(deviceFolder, "dp", strings.ReplaceAll(resource, "/", "-")+"-"+id+"-device.json")
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.must(os.WriteFile(path, []byte(text), 0o644))
	w.t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}

// privateRun holds the mounts against what these tests need: the folder has a fixed name, and the machine's own is not ours.
func (w *world) privateRun() {
	w.t.Helper()
	run, err := filepath.EvalSymlinks("/var/run")
	w.must(err)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	w.must(err)
	var last []string // the mounts of a place cover each other
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 6 && f[4] == run {
			last = f
		}
	}
	if last == nil {
		w.t.Fatalf("%s is no mount of its own", run)
	}
	if optional, kind, _ := strings.Cut(strings.Join(last[6:], " "), "- "); !strings.HasPrefix(kind, "tmpfs ") || strings.Contains(optional, "shared:") {
		w.t.Fatalf("%s is no private tmpfs: %q", run, last)
	}
}

// pci is the information of a PCI device.
func pci(address string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"%s","pf-pci-address":"0000:3b:00.0"}}`, address)
}

// infos are the device informations in a pod's network-status, by interface.
func (w *world) infos(p *lab.Pod) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, s := range w.status(p) {
		if s.DeviceInfo == nil {
			continue
		}
		text, err := json.Marshal(s.DeviceInfo)
		w.must(err)
		all[s.Interface] = string(text)
	}
	return all
}

// deviceRead is what stood in the file for device information when a recorder was called, by "<command> <interface>".
func (w *world) deviceRead(log string) map[string]string {
	w.t.Helper()
	text, err := os.ReadFile(log)
	w.must(err)
	read := map[string]string{}
	commands, _ := w.calls(log)
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var r struct{ Device string }
		w.must(json.Unmarshal([]byte(line), &r))
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

	p := w.attached(0, "web", "reads,changes,blue,plain,quiet")
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
	w.must(p.Check(w.ctx))
	w.end(p)
	equal(t, "read at DEL", w.deviceRead(changes)["DEL net2"], vdpa)
	equal(t, "files in the end", w.files(deviceFolder), given)
	w.asBefore()
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
			equal(w.t, "the file that is left", read(w.t, path), pci(before))
		}},
		{"of nobody", func(w *world, path string, _ func(...lab.CallOption) error) {
			w.must(os.WriteFile(path, []byte(pci(before)), 0o600))
		}},
		{"a link to a file of the node's", func(w *world, path string, _ func(...lab.CallOption) error) {
			target := filepath.Join(w.Nodes[0].Dir, "shadow")
			w.must(os.WriteFile(target, []byte("root"), 0o600))
			w.must(os.Symlink(target, path))
			w.t.Cleanup(func() { equal(w.t, "the node's file", read(w.t, target), "root") })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.sub(t)
			w.must(errors.Join(os.RemoveAll(log), os.MkdirAll(filepath.Join(deviceFolder, "cni"), 0o755)))
			k.Give("shop", "web", has{nics: {before}})
			p, prev := w.withoutNetworks("web", "vf")
			add := func(opts ...lab.CallOption) error {
				_, err := p.Add(w.ctx, append(opts, lab.OnlyOurs(prev))...)
				return err
			}
			c.stale(w, filepath.Join(deviceFolder, "cni", p.Sandbox+"-net1-device.json"), add)
			k.Give("shop", "web", has{nics: {after}})
			w.must(add())
			equal(t, "read", w.deviceRead(log)["ADD net1"], pci(after))
			equal(t, "device", w.devices(log)["ADD net1"], both(after))
			equal(t, "in the status", w.infos(p), map[string]string{"net1": pci(after)})
			w.end(p)
			equal(t, "files in the end", w.files(filepath.Join(deviceFolder, "cni")), nil)
			w.asBefore()
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
	w.must(os.WriteFile(secret, []byte(pci(id)), 0o600))
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
		t.Run(tt.name, func(t *testing.T) {
			w := w.sub(t)
			path := w.deviceSays(nics, id, tt.text)
			if tt.instead != nil {
				w.must(errors.Join(os.Remove(path), tt.instead(path)))
			}
			w.nothingOf("blue,vf", conf.CodeDecoding, []string{"interface net2: network shop/vf: what the device plugin says of device " + id + ": ", tt.words}, "the device plugin wrote it", log)
		})
	}
	w.deviceSays(nics, id, pci(id))
	p := w.attached(0, "web", "blue,vf")
	equal(t, "in the status", w.infos(p), map[string]string{"net2": pci(id)})
	w.end(p)
	w.asBefore()
}
