package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// TestForgetOneOfTwo: what is forgotten goes with the next DEL, before what is only tried again, and nothing else goes.
func TestForgetOneOfTwo(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log, stuck := w.sticky()
	vf := w.taking("vf", nics, "")
	k.Give("shop", "a", has{nics: {vf0}})
	k.Give("shop", "b", has{nics: {vf1}})
	a, b := w.Attached(0, "a", "sticky"), w.Attached(0, "b", "sticky")
	w.Must(os.WriteFile(stuck, nil, 0o600))
	for _, p := range []*lab.Pod{a, b} {
		for range 2 {
			w.refused(p.Del(w.Ctx), 11, "still busy")
		}
		w.End(p)
	}
	equal(t, "left behind", len(w.leftBehind()), 2)
	// b's own DEL has tried a once more, so that b would be next in turn.
	kept, gone, keptID, goneID := b, a, vf1, vf0
	for range 2 {
		w.Must(os.RemoveAll(log))
		out, err := w.forget(gone.Sandbox)
		w.Must(err)
		again, err := w.forget(gone.Sandbox) // which changes nothing
		w.Must(err)
		equal(t, "said the second time", again, out)
		k.Give("shop", "web", has{nics: {goneID}})
		web := w.Attached(0, "web", "vf")
		w.End(web)
		equal(t, "calls for the one that is forgotten", w.toldOf(log, a, b), nil)
		if kept == nil {
			break
		}
		left := w.leftBehind()
		if len(left) != 1 || !strings.HasPrefix(left[0], kept.Sandbox+" ") {
			t.Errorf("left behind: %q, want %s alone", left, kept)
		}
		k.Give("shop", "web", has{nics: {keptID}})
		web = w.Pod(0, "web", "vf")
		w.refused(w.TryAdd(web), conf.CodeNoDevice, heldBy("net1", "vf", nics, keptID, kept)...)
		w.End(web)
		kept, gone, goneID = nil, kept, keptID
	}
	equal(t, "left behind in the end", w.leftBehind(), nil)
	equal(t, "devices", w.devices(vf)["DEL net1"], both(vf1))
	w.AsBefore()
}

// TestDeviceOfARepeatedAdd: a runtime that repeats an ADD has the device of the first one taken away before the pod gets
// what it has now.
func TestDeviceOfARepeatedAdd(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log := w.taking("vf", nics, "")
	p, prev := w.withoutNetworks("web", "blue,vf")
	for _, id := range []string{vf0, vf0, vf1} {
		k.Give("shop", "web", has{nics: {id}})
		w.Add(p, lab.OnlyOurs(prev))
	}
	w.End(p)
	var calls []string
	for _, c := range w.told(log) {
		calls = append(calls, fmt.Sprint(c.command, " ", c.stdin["deviceID"]))
	}
	equal(t, "calls", calls, []string{"ADD " + vf0, "DEL " + vf0, "ADD " + vf0, "DEL " + vf0, "ADD " + vf1, "DEL " + vf1})
	w.AsBefore()
}

// TestDeviceOfAFailedAdd: a device whose plugin fails is free with the error, unless the plugin cannot take away either what
// it began.
func TestDeviceOfAFailedAdd(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	vf := w.taking("vf", nics, "")
	w.taking("fails", nics, `,"fail":{"ADD":{"code":119,"msg":"no carrier"}}`)
	w.taking("worse", nics, fmt.Sprintf(`,"fail":{"ADD":{"code":119,"msg":"no carrier"},"DEL":{"code":120,"msg":"no card"}},"while":"%s"`, stuck))
	w.Must(os.WriteFile(stuck, nil, 0o600))
	k.Give("shop", "web", has{nics: {vf0}})
	for _, tt := range []struct {
		network string
		held    bool
	}{{"fails", false}, {"worse", true}} {
		k.Give("shop", "a", has{nics: {vf0}})
		a := w.Pod(0, "a", "blue,"+tt.network)
		w.refused(w.TryAdd(a), 119, "interface net2: network shop/"+tt.network, "no carrier")
		web := w.Pod(0, "web", "vf")
		_, err := web.Add(w.Ctx)
		if tt.held {
			w.refused(err, conf.CodeNoDevice, heldBy("net1", "vf", nics, vf0, a)...)
			w.Del(web)
			w.refused(a.Del(w.Ctx), 120, "no card")
			w.Must(os.Remove(stuck))
			w.Del(a)
			w.Add(web)
		} else {
			w.Must(err)
		}
		equal(t, "device", w.devices(vf)["ADD net1"], both(vf0))
		w.Over(a, web)
	}
}

// TestDeviceOfADamagedEntry: of a journal that cannot be read, libcni knows the device, and its file goes with it.
func TestDeviceOfADamagedEntry(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	for _, capabilities := range []string{"{}", `{"deviceID":true}`, `{"deviceID":true,"CNIDeviceInfoFile":true}`} {
		w.part(capabilities, func(t *testing.T, w *world) {
			log := w.taking("vf", nics, `,"capabilities":`+capabilities)
			w.Must(os.RemoveAll(log))
			w.deviceSays(nics, vf0, pci(vf0))
			k.Give("shop", "web", has{nics: {vf0}})
			p := w.Pod(0, "web", "blue,vf")
			w.Eventually(func() error { // the agent may know the NAD of the case before still
				w.Add(p)
				if got := fmt.Sprint(w.told(log)[0].stdin["runtimeConfig"]); strings.Contains(got, "devinfo") != strings.Contains(capabilities, "Info") ||
					strings.Contains(got, vf0) != strings.Contains(capabilities, "deviceID") {
					w.Del(p)
					w.Must(os.RemoveAll(log))
					return fmt.Errorf("runtimeConfig is %s", got)
				}
				return nil
			})
			w.Must(os.Truncate(filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0"), 40))
			k.Take("shop", "web")
			w.End(p)
			equal(t, "calls", w.toldOf(log, p), []string{"ADD web net2", "DEL web net2"})
			w.likeItsADD(log)
			equal(t, "files of devices", w.files(filepath.Join(deviceFolder, "cni")), nil)
			w.AsBefore()
		})
	}
}

// TestDeviceOfANetworkInTheNodesFolder: a NAD without a configuration names the resource all the same.
func TestDeviceOfANetworkInTheNodesFolder(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		withDelegates(l)
		folder := filepath.Join(l.Nodes[0].Dir, "nads")
		l.Nodes[0].AgentArgs = append(l.Nodes[0].AgentArgs, "--nad-conf-dir", folder)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	})
	k := w.kubelet()
	log := filepath.Join(w.Nodes[0].Dir, "vf.log")
	w.Must(os.WriteFile(filepath.Join(w.Nodes[0].Dir, "nads", "10-vf.conf"),
		fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"vf","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0"}}`, log), 0o600))
	w.Must(w.WriteManifest("vf.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  namespace: shop\n  name: vf\n  annotations: {"+
		netmodel.ResourceNameAnnotation+": "+nics+"}\n"))
	k.Give("shop", "web", has{nics: {vf1, vf0}})
	p := w.Attached(0, "web", "vf")
	w.End(p)
	equal(t, "devices", w.devices(log), map[string][2]string{"ADD net1": both(vf0), "DEL net1": both(vf0)})
	w.AsBefore()
}
