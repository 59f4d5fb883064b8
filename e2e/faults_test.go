package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// told is one call of the recorder, as it got it.
type told struct {
	command, container, ifName, args string
	stdin                            map[string]any
}

// of is the call in short, with the name of the pod among these that has the sandbox.
func (c told) of(pods ...*lab.Pod) string {
	for _, p := range pods {
		if c.container == p.Sandbox {
			return c.command + " " + p.Name + " " + c.ifName
		}
	}
	return strings.TrimSpace(c.command + " " + c.container + " " + c.ifName)
}

// told reads all calls that a recorder wrote down.
func (w *world) told(log string) (all []told) {
	text, err := os.ReadFile(log)
	if os.IsNotExist(err) {
		return nil
	}
	w.Must(err)
	for line := range strings.Lines(string(text)) {
		var r struct {
			Command string
			Env     []string
			Stdin   map[string]any
		}
		w.Must(json.Unmarshal([]byte(line), &r))
		env := map[string]string{}
		for _, kv := range r.Env {
			key, value, _ := strings.Cut(kv, "=")
			env[key] = value
		}
		all = append(all, told{r.Command, env["CNI_CONTAINERID"], env["CNI_IFNAME"], env["CNI_ARGS"], r.Stdin})
	}
	return all
}

// toldOf is told in short.
func (w *world) toldOf(log string, pods ...*lab.Pod) (calls []string) {
	for _, c := range w.told(log) {
		calls = append(calls, c.of(pods...))
	}
	return calls
}

// prevAddress is the address in the result that a call was given of its ADD, "" without.
func (c told) prevAddress() string {
	prev, _ := c.stdin["prevResult"].(map[string]any)
	ips, _ := prev["ips"].([]any)
	if len(ips) == 0 {
		return ""
	}
	return fmt.Sprint(ips[0].(map[string]any)["address"])
}

// addressed is a recorder's configuration whose result has one address.
func addressed(log, address, keys string) string {
	return fmt.Sprintf(`{"type":"recorder","log":"%s","result":{"cniVersion":"1.0.0","ips":[{"address":"%s"}]}%s}`, log, address, keys)
}

// journalled lists what the plugin keeps on a node.
func (w *world) journalled(n *lab.Node) (names []string) {
	entries, err := os.ReadDir(filepath.Join(n.StateDir, "attached"))
	if !os.IsNotExist(err) {
		w.Must(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// withoutNetworks makes a pod that has its first interface, and then asks for networks: what our plugin alone does to
// the world can be told from what the primary network's do.
func (w *world) withoutNetworks(name, networks string) (*lab.Pod, types.Result) {
	p := w.Attached(0, name, "")
	prev, err := p.CachedResult()
	w.Must(err)
	p.Annotations = map[string]string{labtest.NetworksAnnotation: networks}
	return p, prev
}

// TestFailedStatusIsUndone: a status that cannot be written fails the ADD, and the ADD itself takes everything away
// again: ports, plugs, links and what delegates made, before anyone asks for a DEL. The default routes are back.
// Conformance: F-10
func TestFailedStatusIsUndone(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.recorderOn("rec", "")
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.NAD("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.71.0.0/24")))
	p, prev := w.withoutNetworks("web",
		`[{"name":"rec"},{"name":"blue"},{"name":"green","default-route":["10.2.0.1","fd02::1"]},{"name":"pair"}]`)
	w.Exec(p, strings.Fields("ip route add default via 10.244.1.1 dev eth0 metric 77 mtu 1300")...)
	before, base := w.Snapshot(), w.Base
	routes := w.Exec(p, "ip", "-details", "route")
	status := filepath.Join(w.Manifests, p.UID+".status.json")
	w.Must(os.Mkdir(status, 0o700))

	w.refused(w.TryAdd(p, lab.OnlyOurs(prev)), conf.CodeTryAgain, "pod shop/web: network-status")
	w.Base = before
	w.AsBefore()
	equal(t, "interfaces in the pod", len(w.Links(p)), 1)
	after := w.Exec(p, "ip", "-details", "route")
	equal(t, "routes of the pod", after, routes)
	equal(t, "calls of the delegate", w.toldOf(log, p), []string{"ADD web net1", "DEL web net1"})
	equal(t, "journal", w.journalled(p.Node), nil)
	held := w.Glob(filepath.Join(leases, "*", "10.71.0.*"))
	equal(t, "addresses held by the delegate", held, nil)

	w.Must(os.Remove(status))
	w.Add(p, lab.OnlyOurs(prev))
	equal(t, "entries of the status", len(w.Status(p)), 5)
	equal(t, "default routes", w.defaults(p, "-4"), []string{"default via 10.2.0.1 dev net3"})
	w.Base = base
	w.Over(p)
}

// TestCheckSeesEveryAttachment: CHECK is of each network of the pod, whoever made it.
// Conformance: F-5 F-14
func TestCheckSeesEveryAttachment(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	dir := w.Nodes[0].Dir
	wrong, log := filepath.Join(dir, "wrong"), filepath.Join(dir, "rec.log")
	w.NAD("rec", `{"cniVersion":"1.0.0","plugins":[`+addressed(log, "192.0.2.7/24",
		fmt.Sprintf(`,"fail":{"CHECK":{"code":123,"msg":"the wire is cut"}},"while":"%s"`, wrong))+`]}`)
	p := w.Attached(0, "web", "blue,rec,green")
	w.Must(p.Check(w.Ctx))
	calls := w.told(log)
	equal(t, "calls", w.toldOf(log, p), []string{"ADD web net2", "CHECK web net2"})
	equal(t, "the result that CHECK is given", calls[1].prevAddress(), "192.0.2.7/24")

	w.Must(os.WriteFile(wrong, nil, 0o600))
	w.refused(p.Check(w.Ctx), 123, "interface net2", "shop/rec", "the wire is cut")
	w.Must(os.Remove(wrong))
	w.Must(p.Check(w.Ctx))

	for _, c := range []struct {
		name         string
		damage, heal []string
		words        []string
	}{
		{"address", []string{"ip", "addr", "flush", "dev", "net3", "scope", "global"}, nil, []string{"interface net3", "lacks address"}},
		{"MAC", []string{"ip", "link", "set", "net1", "address", "02:00:00:00:00:99"}, nil, []string{"interface net1", "02:00:00:00:00:99"}},
		{"link", []string{"ip", "link", "del", "net1"}, nil, []string{"interface net1"}},
	} {
		w.Exec(p, c.damage...)
		w.refused(p.Check(w.Ctx), conf.CodeNotAsMade, c.words...)
	}
	w.End(p)

	p = w.Attached(0, "web", "rec,blue")
	w.Must(p.Check(w.Ctx))
	w.NBCtl("lsp-del", "shop/web/net2")
	w.refused(p.Check(w.Ctx), conf.CodeNotAsMade, "interface net2")
	w.Over(p)
}

// TestGCKeepsWhatIsValid asks our plugin alone, without libcni's own knowledge of what is stale: what the runtime lists
// stays, all else goes, and the delegate hears the same of its own attachments.
// Conformance: F-4
func TestGCKeepsWhatIsValid(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	w.NAD("rec", `{"cniVersion":"1.1.0","plugins":[`+addressed(log, "192.0.2.7/24", "")+`]}`)
	live, stale := w.Attached(0, "live", "rec,blue"), w.Attached(0, "stale", "rec,blue")
	row := w.portRow(live, "net2")
	w.Must(w.Nodes[0].GC(w.Ctx, []*lab.Pod{live}, lab.OnlyOurs(nil), lab.WithoutCache()))

	equal(t, "calls", w.toldOf(log, live, stale), []string{"ADD live net1", "ADD stale net1", "DEL stale net1", "GC"})
	calls := w.told(log)
	equal(t, "the result that DEL is given", calls[2].prevAddress(), "192.0.2.7/24")
	equal(t, "what the delegate may keep", calls[3].stdin["cni.dev/valid-attachments"],
		any([]any{map[string]any{"containerID": live.Sandbox, "ifname": "net1"}}))
	equal(t, "journal", w.journalled(live.Node), []string{live.Sandbox + "@eth0"})
	w.noPorts(stale)
	equal(t, "interfaces of the stale one", len(w.Links(stale)), 1)
	equal(t, "port of the live one", fmt.Sprint(w.portRow(live, "net2")), fmt.Sprint(row))
	w.Must(live.Check(w.Ctx))
	w.Over(live, stale)
}

// TestChainOfADelegateFailsAtDel: the last plugin of a network's chain refuses its DEL. The chain stops there, as CNI has it
// (CNI specification, section 3), the pod's other networks do not, and nothing is forgotten: the retry has the result of the
// ADD still, and goes through the whole chain.
// Conformance: F-2 F-17
func TestChainOfADelegateFailsAtDel(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	dir := w.Nodes[0].Dir
	stuck, first, last := filepath.Join(dir, "stuck"), filepath.Join(dir, "first.log"), filepath.Join(dir, "last.log")
	w.Must(os.WriteFile(stuck, nil, 0o600))
	w.NAD("chain", `{"cniVersion":"1.0.0","plugins":[`+addressed(first, "192.0.2.1/24", "")+","+
		addressed(last, "192.0.2.7/24", fmt.Sprintf(`,"fail":{"DEL":{"code":77,"msg":"still busy"}},"while":"%s"`, stuck))+`]}`)
	other := w.recorderOn("other", "")
	for _, tt := range []struct {
		name     string
		failures int  // while it is stuck
		gives    bool // up, on the pod's behalf
	}{
		{"a retry heals it", 2, false},
		{"it is given up, and a later call has it done", 2, true},
	} {
		w.part(tt.name, func(t *testing.T, w *world) {
			for _, log := range []string{first, last, other} {
				w.Must(os.RemoveAll(log))
			}
			w.Must(os.WriteFile(stuck, nil, 0o600))
			p := w.Attached(0, "web", "other,chain,blue")
			want := []string{"ADD web net2"}
			for range tt.failures {
				w.refused(p.Del(w.Ctx), 77, "still busy", "interface net2", "shop/chain")
				want = append(want, "DEL web net2")
			}
			later := w.Pod(0, "later", "blue")
			if tt.gives {
				w.End(p)
				want = append(want, "DEL web net2")
				w.Add(later)
			}
			equal(t, "the first of the chain waits", w.toldOf(first, p), []string{"ADD web net2"})
			equal(t, "the other network does not", w.toldOf(other, p), []string{"ADD web net1", "DEL web net1"})
			w.Must(os.Remove(stuck))
			if !tt.gives {
				w.End(p)
			}
			w.End(later)
			equal(t, "the last of the chain", w.toldOf(last, p), append(want, "DEL web net2"))
			equal(t, "the first of the chain", w.toldOf(first, p), []string{"ADD web net2", "DEL web net2"})
			for _, call := range append(w.told(last)[1:], w.told(first)[1:]...) {
				equal(t, "the result that each DEL is given", call.prevAddress(), "192.0.2.7/24")
			}
			w.AsBefore()
		})
	}
}

// TestNetworksOfOneCNIName: NADs of two namespaces whose configurations have the same "name", which is what libcni's cache
// goes by. In one pod and in two, each plugin gets its own configuration and its own result back.
// Conformance: F-18
func TestNetworksOfOneCNIName(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withGlobal("infra", withDelegates))
	ours, theirs := filepath.Join(w.Nodes[0].Dir, "ours.log"), filepath.Join(w.Nodes[0].Dir, "theirs.log")
	w.NAD("shop/lan", `{"cniVersion":"1.0.0","name":"lan","plugins":[`+addressed(ours, "192.0.2.1/24", "")+`]}`)
	w.NAD("infra/lan", `{"cniVersion":"1.0.0","name":"lan","plugins":[`+addressed(theirs, "198.51.100.1/24", "")+`]}`)
	both := w.Attached(0, "both", "lan,infra/lan")
	one, other := w.Attached(0, "one", "lan"), w.Attached(0, "other", "infra/lan")
	pods := []*lab.Pod{both, one, other}
	for i, want := range []string{"cbr0", "shop/lan", "infra/lan"} {
		equal(t, "status", w.Status(both)[i].Name, want)
	}
	for _, p := range pods {
		w.Must(p.Check(w.Ctx))
	}
	w.End(one)
	w.Must(other.Check(w.Ctx))
	w.End(both)
	w.Must(other.Check(w.Ctx))
	w.End(other)
	for _, tt := range []struct {
		log, address string
		want         []string
	}{
		{ours, "192.0.2.1/24", []string{"ADD both net1", "ADD one net1", "CHECK both net1", "CHECK one net1", "DEL one net1", "DEL both net1"}},
		{theirs, "198.51.100.1/24", []string{"ADD both net2", "ADD other net1", "CHECK both net2", "CHECK other net1", "CHECK other net1", "DEL both net2", "CHECK other net1", "DEL other net1"}},
	} {
		equal(t, "calls", w.toldOf(tt.log, pods...), tt.want)
		for _, call := range w.told(tt.log) {
			want := tt.address
			if call.command == "ADD" {
				want = ""
			}
			equal(t, "the result that "+call.of(pods...)+" is given", call.prevAddress(), want)
		}
	}
	w.AsBefore()
}

// TestPrimaryRuntimeConfigStaysThere: what kubelet asks for the pod, such as its hostPorts, is the primary network's. A
// secondary network whose plugins could do the same gets what the annotation asks of it, which here is nothing.
// Conformance: F-6
func TestPrimaryRuntimeConfigStaysThere(t *testing.T) {
	t.Parallel()
	const ports = `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		l.Nodes[0].PluginConf = func(entry map[string]any) {
			entry["allowedDelegates"] = allowed
			entry["capabilities"] = map[string]bool{conf.AnnotationsCapability: true, "portMappings": true}
		}
	})
	log := w.recorderOn("rec", fmt.Sprintf(`,"capabilities":{"portMappings":true,"bandwidth":true,"ips":true,"mac":true,"%s":true}`, conf.AnnotationsCapability))
	w.End(w.Attached(0, "declared", "rec"))

	// A runtime that hands no annotations, and an entry that has the ports without libcni's doing.
	w.Nodes[0].PluginConf = func(entry map[string]any) {
		entry["allowedDelegates"] = allowed
		entry["runtimeConfig"] = map[string]any{"portMappings": json.RawMessage(ports), "bandwidth": map[string]int{"ingressRate": 1000}}
	}
	p := w.Pod(0, "written", "rec")
	w.Add(p, lab.WithoutAnnotations())
	w.End(p)

	calls := w.told(log)
	equal(t, "calls", len(calls), 4)
	for _, c := range calls {
		equal(t, c.command+": runtimeConfig", c.stdin["runtimeConfig"], any(nil))
		// Not "8080": these digits can stand in the ID of a sandbox.
		for _, word := range []string{"hostPort", "ingressRate", labtest.NetworksAnnotation} {
			if text := fmt.Sprint(c.stdin, c.args); strings.Contains(text, word) {
				t.Errorf("%s was told of %s: %s", c.command, word, text)
			}
		}
	}
	w.AsBefore()
}
