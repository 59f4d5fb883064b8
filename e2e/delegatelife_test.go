package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// recorderOn writes a NAD whose plugin only writes down how it is called.
func (w *world) recorderOn(name, keys string) (log string) {
	w.t.Helper()
	log = filepath.Join(w.Nodes[0].Dir, name+".log")
	w.definition(name, fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0"}%s}`, log, keys))
	return log
}

// TestKilledAmongDelegates kills the plugin at each point of its work with delegates: each one whose ADD was begun gets
// its DEL, and what the real plugin made is gone.
// Conformance: N-141 C-84
func TestKilledAmongDelegates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.definition("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.71.0.0/24")))
	log := w.recorderOn("rec", "")
	for _, point := range []string{"delegate-begun", "delegate-made"} {
		w.must(os.RemoveAll(log))
		p := w.pod(0, "web", "rec,blue,pair")
		_, err := p.Add(w.ctx, lab.WithEnv(failpoint.Env+"="+point))
		w.killed(err)
		w.end(p)
		commands, _ := w.calls(log)
		want := []string{"DEL net1"}
		if point == "delegate-made" {
			want = []string{"ADD net1", "DEL net1"}
		}
		equal(t, point, commands, want)
	}
	p := w.attached(0, "web", "rec,blue,pair")
	w.killed(p.Del(w.ctx, lab.WithEnv(failpoint.Env+"=delegate-gone")))
	w.end(p)
	w.asBefore()
}

// TestDelegateDelFails: what a retry heals is an error of the DEL; what it does not is one no longer than that, so that
// the plugins before us get theirs, and is done by GC later.
// Conformance: N-142 N-143 C-100 F-2
func TestDelegateDelFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	w.must(os.WriteFile(stuck, nil, 0o600))
	log := w.recorderOn("sticky", fmt.Sprintf(`,"fail":{"DEL":{"code":11,"msg":"not yet"}},"while":"%s"`, stuck))
	other := w.recorderOn("other", "")

	p := w.attached(0, "healed", "other,sticky,blue")
	w.refused(p.Del(w.ctx), 11, "not yet")
	commands, _ := w.calls(other)
	equal(t, "one that fails keeps no other", commands, []string{"ADD net1", "DEL net1"})
	w.must(os.Remove(stuck))
	w.end(p)
	commands, _ = w.calls(log)
	equal(t, "the retry", commands, []string{"ADD net2", "DEL net2", "DEL net2"})
	w.asBefore()

	w.must(os.WriteFile(stuck, nil, 0o600))
	p = w.attached(0, "stuck", "sticky")
	for range 2 {
		w.refused(p.Del(w.ctx), 11, "not yet")
	}
	w.end(p) // the third time it is no error of ours any more
	later := w.attached(0, "later", "blue")
	w.must(os.Remove(stuck))
	w.end(later) // whose DEL takes it up
	commands, _ = w.calls(log)
	equal(t, "a later call has it done", commands[len(commands)-5:], []string{"ADD net1", "DEL net1", "DEL net1", "DEL net1", "DEL net1"})
	w.asBefore()

	w.must(os.WriteFile(stuck, nil, 0o600))
	w.Nodes[0].CNIVersion = "1.1.0"
	p = w.attached(0, "stuck", "sticky")
	for range 2 {
		w.refused(p.Del(w.ctx), 11, "not yet")
	}
	w.end(p)
	w.must(os.Remove(stuck))
	w.must(w.Nodes[0].GC(w.ctx, nil))
	w.asBefore()
}

// TestDelegateWithoutNetNS: the namespace went first, as it does when a node's runtime was killed.
// Conformance: C-40
func TestDelegateWithoutNetNS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.definition("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.71.0.0/24")))
	log := w.recorderOn("rec", "")
	p := w.attached(0, "web", "pair,rec")
	w.must(p.RemoveNetNS())
	w.del(p)
	_, last := w.calls(log)
	for _, kv := range last["env"].([]any) {
		if strings.HasPrefix(kv.(string), "CNI_NETNS=") && kv != "CNI_NETNS=" {
			t.Errorf("the plugin got %s, which is gone", kv)
		}
	}
	w.end(p)
	w.asBefore()
}

// TestHangingDelegate is killed at the deadline, with its children, and the pod's owner reads who it was.
func TestHangingDelegate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		l.Nodes[0].PluginConf = func(entry map[string]any) {
			entry["allowedDelegates"], entry["timeout"] = allowed, "2s"
		}
	})
	log := w.recorderOn("hangs", `,"hang":"ADD"`)
	p := w.pod(0, "web", "hangs,blue")
	_, err := p.Add(w.ctx)
	w.refused(err, 108, "recorder", "deadline")
	_, first := w.calls(log)
	commands, _ := w.calls(log)
	equal(t, "calls", commands, []string{"ADD net1", "DEL net1"})
	pid, err := strconv.Atoi(fmt.Sprint(first["pid"]))
	w.must(err)
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d of the plugin is still there", pid)
	}
	w.end(p)
	w.asBefore()
}

// TestDeviceInformation: what a plugin that wants to says of its device stands in network-status, and its file goes with
// the pod; what is none fails the ADD, which leaves nothing.
func TestDeviceInformation(t *testing.T) {
	const folder = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	const good = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","pf-pci-address":"0000:18:00.0"}}`
	log := w.recorderOn("device", `,"capabilities":{"CNIDeviceInfoFile":true},"device":`+good)
	w.recorderOn("bad", `,"capabilities":{"CNIDeviceInfoFile":true},"device":{"type":"pci","version":"1.1.0"}`)
	w.recorderOn("plain", "")

	p := w.attached(0, "web", "device,blue,plain,device")
	for i, s := range w.status(p) {
		text, err := json.Marshal(s.DeviceInfo)
		w.must(err)
		equal(t, "device information of "+s.Interface, string(text), []string{"null", good, "null", "null", good}[i])
	}
	_, last := w.calls(log)
	equal(t, "the file that net4 was told", fmt.Sprint(last["stdin"].(map[string]any)["runtimeConfig"]), "map[CNIDeviceInfoFile:"+folder+"/"+p.Sandbox+"-net4-device.json]")
	files := func() []string {
		found, err := filepath.Glob(filepath.Join(folder, "*-device.json"))
		w.must(err)
		return found
	}
	equal(t, "files", len(files()), 2)
	w.end(p)

	bad := w.pod(0, "bad", "blue,bad")
	_, err := bad.Add(w.ctx)
	w.refused(err, 6, `interface net2: network shop/bad: device information: "pci" is not there as an object`)
	w.end(bad)
	equal(t, "files in the end", files(), []string(nil))
	w.asBefore()
}
