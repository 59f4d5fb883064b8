package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// plugin calls ours alone, byte for byte as asked: entry may change its configuration, where the name of the conflist is,
// and prev is its prevResult, "" for none. It returns what the plugin printed.
func (w *world) plugin(p *lab.Pod, command, prev string, entry func(map[string]any)) (string, error) {
	text, err := p.Node.ConfList()
	w.Must(err)
	var list struct {
		Name, CNIVersion string
		Plugins          []map[string]any
	}
	w.Must(json.Unmarshal(text, &list))
	c := list.Plugins[len(list.Plugins)-1]
	c["name"], c["cniVersion"] = list.Name, list.CNIVersion
	c["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": p.Annotations}
	delete(c, "capabilities")
	if entry != nil {
		entry(c)
	}
	stdin := w.JSON(c)
	if prev != "" {
		stdin = fmt.Appendf(nil, `%s,"prevResult":%s}`, bytes.TrimSuffix(stdin, []byte("}")), prev)
	}
	bins := w.Binaries()
	cmd := exec.CommandContext(w.Ctx, filepath.Join(bins.Ours, lab.PluginType))
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + p.Sandbox, "CNI_NETNS=" + p.NetNS, "CNI_IFNAME=eth0",
		"CNI_PATH=" + bins.CNI + ":" + bins.Ours,
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID)}
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(stdin), &stdout
	w.Must(lab.StartIn(p.Node.NetNS, cmd))
	if err := cmd.Wait(); err != nil {
		said := &types.Error{}
		w.Must(json.Unmarshal(stdout.Bytes(), said))
		return "", said
	}
	return stdout.String(), nil
}

// primaryOnly attaches a pod by the plugins before ours, and returns their result as text.
func (w *world) primaryOnly(p *lab.Pod) (prev string) {
	p.Node.PrimaryOnly = true
	_, err := p.Add(w.Ctx)
	p.Node.PrimaryOnly = false
	w.Must(err)
	result, err := p.CachedResult()
	w.Must(err)
	result, err = result.GetAsVersion(p.Node.CNIVersion)
	w.Must(err)
	text, err := json.MarshalIndent(result, "", "\t")
	w.Must(err)
	return string(text)
}

// TestChainVersions: whatever version the node's conflist has and whatever the delegates speak, what is printed is the
// primary's result to the byte, and one whose default route moves stays in its version.
// Conformance: F-1
func TestChainVersions(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.recorderOn("rec", "")
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		w.part(version, func(t *testing.T, w *world) {
			w.Must(os.RemoveAll(log))
			w.Nodes[0].CNIVersion = version
			same, moves := w.Pod(0, "same", "blue,rec"), w.Pod(0, "moves", `[{"name":"rec"},{"name":"blue","default-route":["10.1.0.1"]}]`)
			prev := w.primaryOnly(same)
			printed, err := w.plugin(same, "ADD", prev, nil)
			w.Must(err)
			equal(t, "printed", printed, prev+"\n")

			prev = w.primaryOnly(moves)
			printed, err = w.plugin(moves, "ADD", prev, nil)
			w.Must(err)
			var was, is map[string]json.RawMessage
			w.Must(errors.Join(json.Unmarshal([]byte(prev), &was), json.Unmarshal([]byte(printed), &is)))
			w.same("the default route in the result", is["routes"], `[{"dst":"10.244.0.0/16"},{"dst":"0.0.0.0/0","gw":"10.1.0.1"}]`)
			for _, key := range []string{"cniVersion", "interfaces", "ips", "dns"} {
				w.same(key+" of the result", is[key], string(was[key]))
			}
			equal(t, "keys", len(is), len(was))
			for _, p := range []*lab.Pod{same, moves} {
				if version != "0.3.1" {
					_, err = w.plugin(p, "CHECK", prev, nil)
					w.Must(err)
				}
				_, err = w.plugin(p, "DEL", "", nil)
				w.Must(err)
			}
			_, stdin := w.stdins(log)
			w.same("the delegate's version", stdin["ADD "]["cniVersion"], `"1.0.0"`)
			w.Over(same, moves)
		})
	}
}

// checkNetworks writes the networks of a CHECK: a bridge with a recorder behind it, a recorder, and those that are not
// to be asked.
func (w *world) checkNetworks() (log, cut, leases string) {
	dir := w.Nodes[0].Dir
	log, cut, leases = filepath.Join(dir, "recorder.log"), filepath.Join(dir, "cut"), filepath.Join(dir, "delegate-leases")
	recorder := func(tag, version string) string {
		return fmt.Sprintf(`"type":"recorder","log":"%s","tag":"%s","result":{"cniVersion":"%s"}`, log, tag, version)
	}
	w.NAD("seen", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"seen","plugins":[
		{"type":"bridge","bridge":"kbr0","ipam":%s},{"type":"recorder","log":"%s","tag":"seen"}]}`, ipam(leases, "10.75.0.0/24"), log))
	w.NAD("rec", fmt.Sprintf(`{"cniVersion":"0.4.0",%s,"fail":{"CHECK":{"code":119,"msg":"the wire is cut"}},"while":"%s"}`, recorder("rec", "0.4.0"), cut))
	w.NAD("quiet", fmt.Sprintf(`{"cniVersion":"1.0.0","disableCheck":true,%s}`, recorder("quiet", "1.0.0")))
	w.NAD("quiet-list", fmt.Sprintf(`{"cniVersion":"1.1.0","name":"quiet-list","disableCheck":true,"plugins":[{%s}]}`, recorder("quiet-list", "1.1.0")))
	w.NAD("old", fmt.Sprintf(`{"cniVersion":"0.3.1",%s}`, recorder("old", "0.3.1")))
	return log, cut, leases
}

// TestCheckWithDelegates breaks one thing at a time of a pod with an OVN interface and delegates: CHECK says which
// interface it is and keeps a plugin's own code. All delegates are asked that know CHECK and whose author wants it.
// Conformance: C-45 F-5
func TestCheckWithDelegates(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log, cut, leases := w.checkNetworks()
	both := []string{"CHECK seen", "CHECK rec"}
	for _, c := range []struct {
		name   string
		damage func(w *world, p *lab.Pod) error
		code   uint
		words  []string
		asked  []string
	}{
		{"nothing", func(*world, *lab.Pod) error { return nil }, 0, nil, both},
		{"a delegate's address", func(w *world, p *lab.Pod) error {
			_, err := p.Exec(w.Ctx, "ip", "addr", "flush", "dev", "net2")
			return err
		}, uncoded, []string{"interface net2: network shop/seen", "delegate bridge"}, nil},
		{"an OVN interface's address", func(w *world, p *lab.Pod) error {
			_, err := p.Exec(w.Ctx, "ip", "addr", "flush", "dev", "net1")
			return err
		}, conf.CodeNotAsMade, []string{"interface net1 is not as it was made", "it lacks address 10.1."}, nil},
		{"the addresses of the port", func(w *world, p *lab.Pod) error {
			_, err := w.Lab.NBCtl(w.Ctx, "lsp-set-addresses", p.String()+"/net1", "02:00:00:00:00:99 10.1.9.9")
			return err
		}, conf.CodeNotAsMade, []string{"interface net1", "Northbound"}, both},
		{"the plug", func(w *world, p *lab.Pod) error {
			_, err := p.Node.VSCtl(w.Ctx, "del-port", agentapi.HostVeth(p.Sandbox, "net1"))
			return err
		}, conf.CodeNotAsMade, []string{"interface net1: its host-side veth", "is not in Open vSwitch"}, both},
		{"what a plugin sees", func(*world, *lab.Pod) error { return os.WriteFile(cut, nil, 0o600) },
			119, []string{"interface net3: network shop/rec", "delegate recorder: the wire is cut"}, both},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			p := w.Attached(0, "web", "blue,seen,rec,quiet,quiet-list,old")
			_, by := w.stdins(log)
			made := string(by["ADD seen"]["prevResult"])
			w.Must(os.Remove(log))
			w.Must(c.damage(w, p))
			if err := p.Check(w.Ctx); c.code == 0 {
				w.Must(err)
			} else {
				w.refused(err, c.code, c.words...)
			}
			var asked []string
			if _, err := os.Stat(log); err == nil {
				var by map[string]map[string]json.RawMessage
				asked, by = w.stdins(log)
				w.same("the result that is checked", by["CHECK seen"]["prevResult"], made)
			}
			equal(t, "asked", asked, c.asked)
			w.Must(os.RemoveAll(cut))
			w.End(p)
			w.onNode("ip", "link", "del", "kbr0")
			equal(t, "leases that are left", w.files(leases), nil)
			w.AsBefore()
		})
	}
}

// gcNetworks writes the networks of a GC, as CHECK's are.
func (w *world) gcNetworks() (log, leases string) {
	dir := w.Nodes[0].Dir
	log, leases = filepath.Join(dir, "recorder.log"), filepath.Join(dir, "delegate-leases")
	w.NAD("seen", fmt.Sprintf(`{"cniVersion":"1.1.0","name":"seen","plugins":[
		{"type":"bridge","bridge":"kbr0","ipam":%s},{"type":"recorder","log":"%s","tag":"seen"}]}`, ipam(leases, "10.76.0.0/24"), log))
	for name, keys := range map[string]string{
		"rec": `"cniVersion":"1.1.0"`, "quiet": `"cniVersion":"1.1.0","disableGC":true`, "old": `"cniVersion":"1.0.0"`,
	} {
		w.NAD(name, fmt.Sprintf(`{%s,"type":"recorder","log":"%s","tag":"%s","result":{"cniVersion":"1.0.0"}}`, keys, log, name))
	}
	return log, leases
}

// collects runs a GC of the node's conflist with these pods valid, and holds against each other what the delegates'
// plugins were told. A runtime that has lost its cache does no DEL of its own.
func (w *world) collects(log string, valid []*lab.Pod, dels []string, attachments map[string]string) {
	w.Must(os.RemoveAll(log))
	w.Must(w.Nodes[0].GC(w.Ctx, valid, lab.WithoutCache()))
	order, by := w.stdins(log)
	told := len(order) - len(attachments)
	equal(w.T, "DELs", order[:max(told, 0)], dels)
	slices.Sort(order[told:])
	equal(w.T, "GCs", order[told:], []string{"GC rec", "GC seen"})
	for tag, want := range attachments {
		w.same("valid attachments of "+tag, by["GC "+tag]["cni.dev/valid-attachments"], want)
	}
}

// TestGC has three pods of which the runtime says that one lives, beside one pod of another conflist and one in another
// state folder: the two go with all that they have, and nobody else notices. The plugins of delegates are told who
// lives on their network, if they know GC and their author wants it.
// Conformance: C-68 C-69 F-4
func TestGC(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withDelegates)
	log, leases := w.gcNetworks()
	// A bridge without a MAC of its own takes its ports', and bridge's CHECK holds that against it.
	w.onNode("ip", "link", "add", "kbr0", "address", "02:00:00:00:76:01", "type", "bridge")
	const networks = "blue,seen,rec,quiet,old"
	valid, apart, elsewhere := w.Attached(0, "valid", networks), w.Pod(0, "apart", networks), w.Pod(0, "elsewhere", "blue,seen")
	ofOther := func(entry map[string]any) { entry["name"] = "other" }
	inOther := func(entry map[string]any) { entry["stateDir"] = filepath.Join(w.Nodes[0].Dir, "other-state") }
	for p, entry := range map[*lab.Pod]func(map[string]any){apart: ofOther, elsewhere: inOther} {
		_, err := w.plugin(p, "ADD", w.primaryOnly(p), entry)
		w.Must(err)
	}
	before := w.Base
	w.Base = w.Snapshot()
	held := w.files(leases)
	stale := []*lab.Pod{w.Attached(0, "stale-a", networks), w.Attached(0, "stale-b", networks)}

	one := []string{"DEL old", "DEL quiet", "DEL rec", "DEL seen"}
	who := func(ifName string) string {
		return fmt.Sprintf(`[{"containerID":"%s","ifname":"%s"},{"containerID":"%s","ifname":"%s"}]`, apart.Sandbox, ifName, valid.Sandbox, ifName)
	}
	if apart.Sandbox > valid.Sandbox { // in the order of the journal's files
		who = func(ifName string) string {
			return fmt.Sprintf(`[{"containerID":"%s","ifname":"%s"},{"containerID":"%s","ifname":"%s"}]`, valid.Sandbox, ifName, apart.Sandbox, ifName)
		}
	}
	living := map[string]string{"seen": who("net2"), "rec": who("net3")}
	w.collects(log, []*lab.Pod{valid}, slices.Concat(one, one), living)
	journal := []string{apart.Sandbox + "@eth0", valid.Sandbox + "@eth0"}
	slices.Sort(journal)
	for range 2 {
		equal(t, "journal", w.files(filepath.Join(w.Nodes[0].StateDir, "attached")), journal)
		for _, p := range stale {
			equal(t, "links of "+p.String(), len(w.Links(p)), 1) // the first one, which is not ours
		}
		equal(t, "leases", w.files(leases), held)
		for _, p := range []*lab.Pod{apart, elsewhere} {
			w.reachBy(valid, "net1", w.Links(p)["net1"].IPs()...)
			w.reachBy(valid, "net2", w.Links(p)["net2"].IPs()...)
		}
		w.Must(valid.Check(w.Ctx))
		w.collects(log, []*lab.Pod{valid}, nil, living) // once more is the same
	}
	w.Over(stale...)

	w.Base = before
	for p, entry := range map[*lab.Pod]func(map[string]any){apart: ofOther, elsewhere: inOther} {
		_, err := w.plugin(p, "DEL", "", entry)
		w.Must(err)
	}
	w.collects(log, nil, one, map[string]string{"seen": `[]`, "rec": `[]`})
	w.End(valid, apart, elsewhere)
	w.onNode("ip", "link", "del", "kbr0")
	equal(t, "leases that are left", w.files(leases), nil)
	w.AsBefore()
}

// hostEnds are the names that plugins choose at random.
var hostEnds = regexp.MustCompile(`veth[0-9a-f]{8}`)

// nameless is the world without the names and keys that chance chooses.
func (w *world) nameless() lab.Snapshot {
	var s lab.Snapshot
	for _, line := range w.Snapshot() {
		if !strings.Contains(line, " ovs ") {
			s = append(s, hostEnds.ReplaceAllString(line, "veth"))
		}
	}
	slices.Sort(s)
	return s
}

// TestDelegateRepeats calls ADD and DEL of a pod with delegates more often than a runtime should, and with less: each
// delegate has its DEL before its next ADD, and one DEL at the end, and its namespace as long as there is one.
// Conformance: C-32
func TestDelegateRepeats(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.NAD("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.77.0.0/24")))
	log := w.recorderOn("rec", "")
	other := w.Attached(0, "other", "blue,pair")
	before := w.Base
	w.Base = w.Snapshot()
	w.Must(os.RemoveAll(log))
	for _, c := range []struct {
		name  string
		do    func(w *world, p *lab.Pod)
		calls []string
	}{
		{"ADD twice", func(w *world, p *lab.Pod) {
			before := w.nameless()
			prev, err := p.CachedResult()
			w.Must(err)
			w.Add(p, lab.OnlyOurs(prev))
			equal(w.T, "what a repeated ADD changed", before.Diff(w.nameless()), "")
			w.delegated(p, 0, 2, "shop/pair", "net2", w.Links(p)["net2"].Prefixes())
			w.reachBy(p, "net2", "10.77.0.1")
			w.reachBy(p, "net1", w.Links(other)["net1"].IPs()...)
			equal(w.T, "leases", len(w.files(leases)), 2)
			w.Must(p.Check(w.Ctx))
			w.Del(p)
		}, []string{"ADD net3", "DEL net3", "ADD net3", "CHECK net3", "DEL net3"}},
		{"DEL many times", func(w *world, p *lab.Pod) {
			for range 5 {
				w.Del(p)
			}
		}, []string{"ADD net3", "DEL net3"}},
		{"DEL without the namespace's path", func(w *world, p *lab.Pod) {
			w.Del(p, lab.WithNetNS(""))
			for name := range w.Links(p) {
				if strings.HasPrefix(name, "net") {
					w.T.Errorf("%s is left in the pod", name)
				}
			}
		}, []string{"ADD net3", "DEL net3"}},
		{"DEL with a namespace that is gone", func(w *world, p *lab.Pod) {
			w.Must(p.RemoveNetNS())
			w.Del(p, lab.WithNetNS(p.NetNS))
		}, []string{"ADD net3", "DEL net3"}},
		{"DEL of an unknown container", func(w *world, p *lab.Pod) {
			unknown := w.NewSandbox(p)
			before := w.Snapshot()
			w.Del(unknown)
			equal(w.T, "what it changed", before.Diff(w.Snapshot()), "")
			w.reachBy(p, "net2", "10.77.0.1")
			w.Must(unknown.RemoveNetNS())
			w.Del(p)
		}, []string{"ADD net3", "DEL net3"}},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			p := w.Attached(0, "web", "blue,pair,rec")
			c.do(w, p)
			w.End(p)
			commands, _ := w.calls(log)
			equal(t, "calls", commands, c.calls)
			equal(t, "leases", len(w.files(leases)), 1)
			w.Must(os.RemoveAll(log))
			w.AsBefore()
		})
	}
	w.Base = before
	w.Over(other)
}
