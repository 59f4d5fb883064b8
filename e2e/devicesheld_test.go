package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// The devices of these scenarios.
const vf0, vf1, vf2 = "0000:3b:02.0", "0000:3b:02.1", "0000:3b:02.2"

// sticky writes a NAD that takes a nic and whose DEL fails as long as the file that it returns is there.
func (w *world) sticky() (log, stuck string) {
	stuck = filepath.Join(w.Nodes[0].Dir, "stuck")
	return w.taking("sticky", nics, fmt.Sprintf(`,"capabilities":{"CNIDeviceInfoFile":true},"fail":{"DEL":{"code":11,"msg":"still busy"}},"while":"%s"`, stuck)), stuck
}

// heldBy is how a device is refused that another container has.
func heldBy(ifName, nad, resource, id string, p *lab.Pod) []string {
	return []string{fmt.Sprintf("interface %s: network shop/%s: ", ifName, nad), id, "of resource " + resource + " is ", fmt.Sprintf("is allocated to container %.12s of pod %s", p.Sandbox, p)}
}

const givenUp = "kubectl multinet forget"

// TestHeldDevice: kubelet gives a device anew as soon as it thinks that a pod has ended. Whoever has it still, its DEL would
// take it away from the next one: that one waits, and the other devices of both are free.
func TestHeldDevice(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log, stuck := w.sticky()
	w.Must(os.WriteFile(stuck, nil, 0o600))
	vf, card, large := w.taking("vf", nics, ""), w.taking("card", cards, ""), w.taking("large", "example.com/nic-large", "")
	k.Give("shop", "a", has{nics: {vf0}, cards: {"card-1"}})
	a := w.Attached(0, "a", "blue,sticky,card")
	k.Take("shop", "a")
	k.Give("shop", "web", has{nics: {vf0}, "example.com/nic-large": {strings.ToUpper(vf0)}})
	base := w.Base
	w.Base = w.Snapshot()
	refused := func() {
		t.Helper()
		w.nothingOf("blue,vf", conf.CodeNoDevice, heldBy("net2", "vf", nics, vf0, a), givenUp, vf)
	}
	refused()                         // a lives
	again, err := a.NewSandbox(w.Ctx) // its own next sandbox is another container too
	w.Must(err)
	k.Give("shop", "a", has{nics: {vf0}, cards: {"card-1"}})
	w.refused(w.TryAdd(again), conf.CodeNoDevice, heldBy("net2", "sticky", nics, vf0, a)...)
	w.Del(again)
	w.Must(again.RemoveNetNS())
	k.Take("shop", "a")
	w.nothingOf(`[{"name":"vf","deviceID":"`+vf0+`"}]`, conf.CodeNoDevice, heldBy("net1", "vf", nics, vf0, a), givenUp, vf)
	// A PCI device is one, whatever the resources are called that it is offered as.
	w.nothingOf("large", conf.CodeNoDevice, heldBy("net1", "large", "example.com/nic-large", strings.ToUpper(vf0), a), givenUp, large)

	w.refused(a.Del(w.Ctx), 11, "interface net2: network shop/sticky", "still busy")
	w.Eventually(func() error { // its port is released all the same
		out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=name", "list", "Logical_Switch_Port")
		if err == nil && out != "" {
			err = fmt.Errorf("ports in NB: %s", out)
		}
		return err
	})
	w.Base = w.Snapshot()
	refused()
	w.Must(w.Nodes[0].KillAgent())
	w.Must(w.Nodes[0].StartAgent(w.Ctx))
	refused() // it is in the journal, not in the agent's mind
	k.Give("shop", "next", has{nics: {vf1, vf0}, cards: {"card-1"}})
	next := w.Attached(0, "next", "vf,card")
	equal(t, "the other device", w.devices(vf)["ADD net1"], both(vf1))
	equal(t, "the device of the network that went", w.devices(card)["ADD net2"], both("card-1"))
	w.End(next)

	w.Must(os.Remove(stuck))
	w.End(a)
	web := w.Attached(0, "web", "blue,vf")
	equal(t, "the device in the end", w.devices(vf)["ADD net2"], both(vf0))
	w.End(web)
	equal(t, "calls of the one that would not go", w.toldOf(log, a), []string{"ADD a net2", "DEL a net2", "DEL a net2"})
	w.likeItsADD(log)
	w.Base = base
	w.AsBefore()
}

// forget runs the agent's command of that name on the first node, as its operator would.
func (w *world) forget(args ...string) (out string, err error) {
	args = append([]string{"forget", "--socket", w.Nodes[0].AgentSocket}, args...)
	text, err := exec.CommandContext(w.Ctx, filepath.Join(w.Binaries().Ours, "ovn-multinetd"), args...).CombinedOutput()
	return string(text), err
}

// leftBehind is what the command lists, without the time.
func (w *world) leftBehind() (all []string) {
	out, err := w.forget("-o", "json")
	w.Must(err)
	var left []agentapi.FailedDEL
	w.Must(json.Unmarshal([]byte(out), &left))
	for _, l := range left {
		if l.Since.IsZero() {
			w.T.Errorf("it is not said when %s was tried", l.ContainerID)
		}
		all = append(all, fmt.Sprintf("%s %s/%s %+v %d %v %s", l.ContainerID, l.Namespace, l.Pod, l.Delegates, l.FailedAttempts, l.Forgotten, l.LastError))
	}
	return all
}

// TestForget: a plugin that will never take its network away keeps the device until an operator gives the network up. The
// device is free at once, and nobody runs the plugin again.
func TestForget(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log, stuck := w.sticky()
	vf := w.taking("vf", nics, "")
	out, err := w.forget()
	w.Must(err)
	equal(t, "said of a node where nothing is left", out, "nothing is left behind on this node\n")
	w.deviceSays(nics, vf0, pci(vf0))
	k.Give("shop", "a", has{nics: {vf0}})
	k.Give("shop", "live", has{nics: {vf1}})
	a, live := w.Attached(0, "a", "blue,sticky"), w.Attached(0, "live", "blue,sticky")
	w.Must(os.WriteFile(stuck, nil, 0o600))
	for range 2 {
		w.refused(a.Del(w.Ctx), 11, "still busy")
	}
	w.End(a) // the third time it is no error of ours any more
	k.Take("shop", "a")

	line := func(tries int, forgotten bool) []string {
		return []string{fmt.Sprintf("%s shop/a [{Interface:net2 Network:shop/sticky Device:%s}] %d %v interface net2: network shop/sticky: plugin type=\"recorder\" failed (delete): delegate recorder: still busy", a.Sandbox, vf0, tries, forgotten)}
	}
	equal(t, "left behind", w.leftBehind(), line(3, false))
	equal(t, "its file", w.files(filepath.Join(deviceFolder, "cni")), []string{a.Sandbox + "-net2-device.json"})
	w.tableSays(a, "tried again")
	for _, id := range []string{live.Sandbox, live.Sandbox[:12], "", "0x", a.Sandbox + "0"} {
		out, err := w.forget(id)
		if err == nil || !strings.Contains(out, fmt.Sprintf("container %q: ", id)) || !strings.Contains(out, "where one is wanted") {
			t.Errorf("forget %q: %v: %s", id, err, out)
		}
	}
	k.Give("shop", "web", has{nics: {vf0}})
	base := w.Base
	w.Base = w.Snapshot()
	// An ADD that fails tries again to take away what holds the device.
	w.nothingOf("blue,vf", conf.CodeNoDevice, heldBy("net2", "vf", nics, vf0, a), givenUp, vf)
	k.Give("shop", "web", has{nics: {vf1}})
	w.nothingOf("blue,vf", conf.CodeNoDevice, heldBy("net2", "vf", nics, vf1, live), givenUp, vf)

	out, err = w.forget(a.Sandbox[:9])
	w.Must(err)
	if !strings.Contains(out, "forgotten") {
		t.Errorf("forget says %q", out)
	}
	equal(t, "left behind, forgotten", w.leftBehind(), line(5, true))
	w.tableSays(a, "forgotten")
	k.Give("shop", "web", has{nics: {vf0}})
	web := w.Attached(0, "web", "blue,vf")
	equal(t, "the device, at once", w.devices(vf)["ADD net2"], both(vf0))
	w.End(web) // whose DEL takes the entry away
	equal(t, "left behind in the end", w.leftBehind(), nil)
	equal(t, "calls of the plugin", w.toldOf(log, a, live), []string{"ADD a net2", "ADD live net2", "DEL a net2", "DEL a net2", "DEL a net2", "DEL a net2", "DEL a net2"})
	equal(t, "files of devices", w.files(filepath.Join(deviceFolder, "cni")), nil)
	w.Must(os.Remove(stuck))
	w.End(live)
	w.Base = base
	w.AsBefore()
}

// tableSays holds the table of the command against a container's state.
func (w *world) tableSays(p *lab.Pod, state string) {
	out, err := w.forget()
	w.Must(err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "CONTAINER") {
		w.T.Fatalf("the table is %q, want a line below its head", out)
	}
	for _, word := range []string{p.Sandbox[:12] + " ", p.String() + " ", "net2 on shop/sticky with " + vf0 + " ", " " + state + " ", "still busy"} {
		if !strings.Contains(lines[1]+" ", word) {
			w.T.Errorf("the table does not say %q: %s", word, lines[1])
		}
	}
}

// TestForgetWhileItsRuntimeAsks gives a network up before its runtime does: the next GC, or the next DEL of the container,
// succeeds without the plugin. One that is forgotten and then made anew is an attachment like any other.
func TestForgetWhileItsRuntimeAsks(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withDelegates)
	k := w.kubelet()
	log, stuck := w.sticky()
	k.Give("shop", "a", has{nics: {vf0}})
	a, prev := w.withoutNetworks("a", "blue,sticky")
	w.Add(a, lab.OnlyOurs(prev))
	w.Must(os.WriteFile(stuck, nil, 0o600))
	w.refused(w.Nodes[0].GC(w.Ctx, nil, lab.WithoutCache()), 11, "still busy")
	_, err := w.forget(a.Sandbox)
	w.Must(err)
	w.Must(w.Nodes[0].GC(w.Ctx, nil, lab.WithoutCache()))
	equal(t, "calls", w.toldOf(log, a), []string{"ADD a net2", "DEL a net2"})
	equal(t, "journal", w.journalled(w.Nodes[0]), nil)
	w.Must(errors.Join(os.Remove(stuck), os.Remove(log)))
	w.Over(a)

	a, prev = w.withoutNetworks("a", "blue,sticky")
	w.Add(a, lab.OnlyOurs(prev))
	w.Must(os.WriteFile(stuck, nil, 0o600))
	w.refused(a.Del(w.Ctx, lab.OnlyOurs(prev)), 11, "still busy")
	_, err = w.forget(a.Sandbox)
	w.Must(err)
	w.Del(a, lab.OnlyOurs(prev))
	equal(t, "calls", w.toldOf(log, a), []string{"ADD a net2", "DEL a net2"})
	equal(t, "journal", w.journalled(w.Nodes[0]), nil)

	w.Add(a, lab.OnlyOurs(prev))
	equal(t, "left behind, of one that lives again", w.leftBehind(), nil)
	k.Give("shop", "web", has{nics: {vf0}})
	base := w.Base
	w.Base = w.Snapshot()
	w.nothingOf("sticky", conf.CodeNoDevice, heldBy("net1", "sticky", nics, vf0, a), givenUp)
	w.Base = base
	w.Must(os.Remove(stuck))
	w.Over(a)
}

// TestKilledWithDevice kills the plugin on its way: from where its plan is in the journal the device is the container's,
// until a DEL has taken away what there is.
func TestKilledWithDevice(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log := w.taking("vf", nics, `,"capabilities":{"CNIDeviceInfoFile":true}`)
	w.deviceSays(nics, vf0, pci(vf0))
	for _, c := range []struct {
		point string
		holds bool
		calls []string
	}{
		{"intent-written", false, nil},
		{"plan-received", false, nil},
		{"plan-written", true, nil},
		{"delegate-begun", true, []string{"DEL a net2"}},
		{"delegate-made", true, []string{"ADD a net2", "DEL a net2"}},
		{"bound", true, []string{"ADD a net2", "DEL a net2"}},
	} {
		w.part(c.point, func(t *testing.T, w *world) {
			w.Must(os.RemoveAll(log))
			k.Give("shop", "a", has{nics: {vf0}})
			a := w.Pod(0, "a", "blue,vf")
			w.killed(w.TryAdd(a, lab.WithEnv(failpoint.Env+"="+c.point)))
			k.Take("shop", "a")
			k.Give("shop", "web", has{nics: {vf0}})
			web := w.Pod(0, "web", "vf")
			_, err := web.Add(w.Ctx)
			if c.holds {
				w.refused(err, conf.CodeNoDevice, heldBy("net1", "vf", nics, vf0, a)...)
			} else {
				w.Must(err)
			}
			w.Del(web)
			w.End(a)
			equal(t, "files of devices", w.files(filepath.Join(deviceFolder, "cni")), nil)
			w.Add(web)
			equal(t, "in the status", w.infos(web), map[string]string{"net1": pci(vf0)})
			w.End(web)
			var calls []string
			for _, call := range w.told(log) {
				if call.container == a.Sandbox {
					calls = append(calls, call.of(a))
				}
			}
			equal(t, "calls", calls, c.calls)
			w.AsBefore()
		})
	}
	w.part("delegate-gone", func(t *testing.T, w *world) {
		k.Give("shop", "a", has{nics: {vf0}})
		a := w.Attached(0, "a", "blue,vf")
		w.killed(a.Del(w.Ctx, lab.WithEnv(failpoint.Env+"=delegate-gone")))
		k.Give("shop", "web", has{nics: {vf0}})
		web := w.Pod(0, "web", "vf")
		w.refused(w.TryAdd(web), conf.CodeNoDevice, heldBy("net1", "vf", nics, vf0, a)...)
		w.Del(web)
		w.End(a)
		w.Add(web)
		w.Over(web)
	})
}

// TestAgentKilledWithDevice kills the agent on its way: the plugin asks the next one, which gives the pod the same device.
func TestAgentKilledWithDevice(t *testing.T) {
	for _, c := range []struct {
		point     string
		questions int
	}{{"nb-committed", 2}, {"plan-made", 2}, {"flows-installed", 1}, {"status-written", 1}, {"released", 1}} {
		t.Run(c.point, func(t *testing.T) {
			w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
			k := w.kubelet()
			log := w.taking("vf", nics, "")
			n := w.Nodes[0]
			k.Give("shop", "web", has{nics: {vf1, vf0}})
			p := w.Pod(0, "web", "blue,vf")
			ended, err := n.AcrossKill(w.Ctx, c.point, func() error { return w.addAndDel(p) })
			w.killed(ended)
			w.Must(err)
			w.End(p)
			equal(t, "calls", w.toldOf(log, p), []string{"ADD web net2", "DEL web net2"})
			equal(t, "devices", w.devices(log), map[string][2]string{"ADD net2": both(vf0), "DEL net2": both(vf0)})
			equal(t, "questions", k.Asked(), c.questions)
			k.Give("shop", "web", has{nics: {vf0}})
			p = w.Attached(0, "web", "vf")
			w.Over(p)
		})
	}
}

// TestDeviceWhileTheAgentIsAway: DEL needs nobody, and the agent that comes sees that the device is free.
func TestDeviceWhileTheAgentIsAway(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log := w.taking("vf", nics, "")
	k.Give("shop", "a", has{nics: {vf0}})
	a := w.Attached(0, "a", "blue,vf")
	w.Must(w.Nodes[0].KillAgent())
	w.End(a)
	w.Must(w.Nodes[0].StartAgent(w.Ctx))
	k.Give("shop", "web", has{nics: {vf0}})
	web := w.Attached(0, "web", "vf,blue")
	equal(t, "calls", w.toldOf(log, a, web), []string{"ADD a net2", "DEL a net2", "ADD web net1"})
	equal(t, "devices", w.devices(log), map[string][2]string{"ADD net2": both(vf0), "DEL net2": both(vf0), "ADD net1": both(vf0)})
	w.Over(web)
}

// TestDevicesAtOnce starts many pods at the same moment: kubelet's answer has them all, and each has its own device.
func TestDevicesAtOnce(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log := w.taking("vf", nics, "")
	want := map[string][2]string{}
	var pods []*lab.Pod
	var adds, dels errgroup.Group
	for i := range 6 {
		p := w.Pod(0, fmt.Sprintf("web-%d", i), "blue,vf,vf")
		ids := []string{fmt.Sprintf("0000:3b:%02x.1", i), fmt.Sprintf("0000:3b:%02x.0", i)}
		k.Give("shop", p.Name, has{nics: ids})
		want[p.Sandbox+" net2"], want[p.Sandbox+" net3"] = both(ids[1]), both(ids[0])
		pods = append(pods, p)
	}
	for _, p := range pods {
		adds.Go(func() error { _, err := p.Add(w.Ctx); return err })
	}
	w.Must(adds.Wait())
	got := map[string][2]string{}
	for _, c := range w.told(log) {
		got[c.container+" "+c.ifName] = [2]string{fmt.Sprint(c.stdin["deviceID"]), fmt.Sprint(c.stdin["pciBusID"])}
	}
	equal(t, "devices", got, want)
	equal(t, "questions", k.Asked(), len(pods))
	for _, p := range pods {
		dels.Go(func() error { return p.Close(w.Ctx) })
	}
	w.Must(dels.Wait())
	w.AsBefore()
}
