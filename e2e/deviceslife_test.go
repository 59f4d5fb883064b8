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
	a, b := w.attached(0, "a", "sticky"), w.attached(0, "b", "sticky")
	w.must(os.WriteFile(stuck, nil, 0o600))
	for _, p := range []*lab.Pod{a, b} {
		for range 2 {
			w.refused(p.Del(w.ctx), 11, "still busy")
		}
		w.end(p)
	}
	equal(t, "left behind", len(w.leftBehind()), 2)
	// b's own DEL has tried a once more, so that b would be next in turn.
	kept, gone, keptID, goneID := b, a, vf1, vf0
	for range 2 {
		w.must(os.RemoveAll(log))
		out, err := w.forget(gone.Sandbox)
		w.must(err)
		again, err := w.forget(gone.Sandbox) // which changes nothing
		w.must(err)
		equal(t, "said the second time", again, out)
		k.Give("shop", "web", has{nics: {goneID}})
		web := w.attached(0, "web", "vf")
		w.end(web)
		equal(t, "calls for the one that is forgotten", w.toldOf(log, a, b), nil)
		if kept == nil {
			break
		}
		left := w.leftBehind()
		if len(left) != 1 || !strings.HasPrefix(left[0], kept.Sandbox+" ") {
			t.Errorf("left behind: %q, want %s alone", left, kept)
		}
		k.Give("shop", "web", has{nics: {keptID}})
		web = w.pod(0, "web", "vf")
		_, err = web.Add(w.ctx)
		w.refused(err, conf.CodeNoDevice, heldBy("net1", "vf", nics, keptID, kept)...)
		w.end(web)
		kept, gone, goneID = nil, kept, keptID
	}
	equal(t, "left behind in the end", w.leftBehind(), nil)
	equal(t, "devices", w.devices(vf)["DEL net1"], both(vf1))
	w.asBefore()
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
		w.add(p, lab.OnlyOurs(prev))
	}
	w.end(p)
	var calls []string
	for _, c := range w.told(log) {
		calls = append(calls, fmt.Sprint(c.command, " ", c.stdin["deviceID"]))
	}
	equal(t, "calls", calls, []string{"ADD " + vf0, "DEL " + vf0, "ADD " + vf0, "DEL " + vf0, "ADD " + vf1, "DEL " + vf1})
	w.asBefore()
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
	w.must(os.WriteFile(stuck, nil, 0o600))
	k.Give("shop", "web", has{nics: {vf0}})
	for _, tt := range []struct {
		network string
		held    bool
	}{{"fails", false}, {"worse", true}} {
		k.Give("shop", "a", has{nics: {vf0}})
		a := w.pod(0, "a", "blue,"+tt.network)
		_, err := a.Add(w.ctx)
		w.refused(err, 119, "interface net2: network shop/"+tt.network, "no carrier")
		web := w.pod(0, "web", "vf")
		_, err = web.Add(w.ctx)
		if tt.held {
			w.refused(err, conf.CodeNoDevice, heldBy("net1", "vf", nics, vf0, a)...)
			w.del(web)
			w.refused(a.Del(w.ctx), 120, "no card")
			w.must(os.Remove(stuck))
			w.del(a)
			w.add(web)
		} else {
			w.must(err)
		}
		equal(t, "device", w.devices(vf)["ADD net1"], both(vf0))
		w.end(a, web)
		w.asBefore()
	}
}

// TestDeviceOfADamagedEntry: of a journal that cannot be read, libcni knows the device, and its file goes with it.
func TestDeviceOfADamagedEntry(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	for _, capabilities := range []string{"{}", `{"deviceID":true}`, `{"deviceID":true,"CNIDeviceInfoFile":true}`} {
		t.Run(capabilities, func(t *testing.T) {
			w := w.sub(t)
			log := w.taking("vf", nics, `,"capabilities":`+capabilities)
			w.must(os.RemoveAll(log))
			w.deviceSays(nics, vf0, pci(vf0))
			k.Give("shop", "web", has{nics: {vf0}})
			p := w.pod(0, "web", "blue,vf")
			w.eventually(func() error { // the agent may know the NAD of the case before still
				w.add(p)
				if got := fmt.Sprint(w.told(log)[0].stdin["runtimeConfig"]); strings.Contains(got, "devinfo") != strings.Contains(capabilities, "Info") ||
					strings.Contains(got, vf0) != strings.Contains(capabilities, "deviceID") {
					w.del(p)
					w.must(os.RemoveAll(log))
					return fmt.Errorf("runtimeConfig is %s", got)
				}
				return nil
			})
			w.must(os.Truncate(filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0"), 40))
			k.Take("shop", "web")
			w.end(p)
			equal(t, "calls", w.toldOf(log, p), []string{"ADD web net2", "DEL web net2"})
			w.likeItsADD(log)
			equal(t, "files of devices", w.files(filepath.Join(deviceFolder, "cni")), nil)
			w.asBefore()
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
	w.must(os.WriteFile(filepath.Join(w.Nodes[0].Dir, "nads", "10-vf.conf"),
		fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"vf","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0"}}`, log), 0o600))
	w.must(w.WriteManifest("vf.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  namespace: shop\n  name: vf\n  annotations: {"+
		netmodel.ResourceNameAnnotation+": "+nics+"}\n"))
	k.Give("shop", "web", has{nics: {vf1, vf0}})
	p := w.attached(0, "web", "vf")
	w.end(p)
	equal(t, "devices", w.devices(log), map[string][2]string{"ADD net1": both(vf0), "DEL net1": both(vf0)})
	w.asBefore()
}
