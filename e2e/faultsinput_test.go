package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// TestConfigurationsThatAreNone has what makes a parser stumble in NADs and annotations: a clear error that names the
// network and the key, or the element, and nothing made, of the pod's other networks neither.
// Conformance: F-7 F-12 F-13
func TestConfigurationsThatAreNone(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.recorderOn("good", "")
	for name, config := range map[string]string{
		"nothing": `null`, "list": `[]`, "empty": `{}`, "no-plugins": `{"plugins":[]}`, "null-plugins": `{"plugins":null}`, "null-plugin": `{"plugins":[{"type":"recorder"},null]}`,
		"args": `{"type":"recorder","args":"x"}`, "args-null": `{"type":"recorder","args":null}`, "typeless": `{"plugins":[{"type":1}]}`, "half": `{"type":"recorder"`,
		"incapable": `{"type":"recorder","capabilities":{"portMappings":false}}`,
	} {
		w.NAD(name, config)
	}
	p, prev := w.withoutNetworks("web", "")
	w.Base = w.Snapshot()
	ours := lab.OnlyOurs(prev)
	for _, tt := range []struct {
		networks string
		words    []string
	}{
		{"good,blue,nothing", []string{"interface net3", "shop/nothing", `"type" is missing`}},
		{"good,blue,list", []string{"interface net3", "shop/list", "array"}},
		{"good,blue,empty", []string{"interface net3", "shop/empty", `"type" is missing`}},
		{"good,blue,no-plugins", []string{"interface net3", "shop/no-plugins", `"plugins" is empty`}},
		{"good,blue,null-plugins", []string{"interface net3", "shop/null-plugins", `"plugins" is empty`}},
		{"good,blue,null-plugin", []string{"interface net3", "shop/null-plugin", "plugins[1]: null"}},
		{"good,blue,args", []string{"interface net3", "shop/args", `"args" is not an object`}},
		{"good,blue,args-null", []string{"interface net3", "shop/args-null", `"args" is not an object`}},
		{"good,blue,typeless", []string{"interface net3", "shop/typeless", `"type" is not a string`}},
		{"good,blue,half", []string{"interface net3", "shop/half"}},
		{`[{"name":"good"},{"name":"blue"},{"name":"incapable","portMappings":[{"hostPort":8080,"containerPort":80}]}]`,
			[]string{"interface net3", "shop/incapable", `no plugin of the network declares the capability "portMappings"`}},
		{`[null]`, []string{labtest.NetworksAnnotation, "entry 0: null"}},
		{`[{"name":"good"},null]`, []string{labtest.NetworksAnnotation, "entry 1: null"}},
		{`null`, []string{labtest.NetworksAnnotation, "null"}},
		{`[[]]`, []string{labtest.NetworksAnnotation, "entry 0"}},
		{`[{"name":null}]`, []string{labtest.NetworksAnnotation, `entry 0: "name" is missing`}},
	} {
		w.part(tt.networks, func(t *testing.T, w *world) {
			p.Annotations = map[string]string{labtest.NetworksAnnotation: tt.networks}
			w.refused(w.TryAdd(p, ours), conf.CodeInvalidConfig, tt.words...)
			equal(t, "calls of the good network's plugin", w.toldOf(log, p), nil)
			equal(t, "journal", w.journalled(p.Node), nil)
			w.AsBefore()
		})
	}
	p.Annotations[labtest.NetworksAnnotation] = "good,blue"
	w.Add(p, ours) // and the agent serves the next one
	equal(t, "calls after all", w.toldOf(log, p), []string{"ADD web net1"})
	w.End(p)
}

// TestIsolationHasNoWayAround: neither annotation brings a pod of one namespace onto another's network, or moves its first
// interface.
// Conformance: F-8
func TestIsolationHasNoWayAround(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates) // isolation is the default
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	for _, namespace := range []string{"infra", "shop"} {
		w.NAD(namespace+"/rec", addressed(log, "192.0.2.7/24", ""))
	}
	const refused = "annotation v1.multus-cni.io/default-network is not supported"
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		code        uint
		words       string
	}{
		{"another namespace's as the default network", map[string]string{conf.DefaultNetworkAnnotation: "infra/rec"}, conf.CodeInvalidConfig, refused},
		{"its own as the default network", map[string]string{conf.DefaultNetworkAnnotation: "rec"}, conf.CodeInvalidConfig, refused},
		{"beside networks", map[string]string{conf.DefaultNetworkAnnotation: "infra/rec", labtest.NetworksAnnotation: "rec,blue"}, conf.CodeInvalidConfig, refused},
		{"of another namespace", map[string]string{labtest.NetworksAnnotation: "rec,infra/rec"},
			conf.CodeNotAllowed, "interface net2: network infra/rec is not for pods of namespace shop"},
	} {
		for runtime, opts := range map[string][]lab.CallOption{"hands annotations": nil, "hands none": {lab.WithoutAnnotations()}} {
			w.part(tt.name+", and the runtime "+runtime, func(t *testing.T, w *world) {
				p, err := w.Nodes[0].NewPod(w.Ctx, "shop", "web", tt.annotations)
				w.Must(err)
				w.refused(w.TryAdd(p, opts...), tt.code, tt.words)
				equal(t, "interfaces", len(w.Links(p)), 1)
				equal(t, "journal", w.journalled(p.Node), nil)
				w.End(p)
				equal(t, "calls", w.toldOf(log, p), nil)
				w.AsBefore()
			})
		}
	}
	p := w.Attached(0, "web", "rec")
	equal(t, "its own network", w.toldOf(log, p), []string{"ADD web net1"})
	w.End(p)
}

// TestBrokenFileInTheNodesFolder: of the configurations on the node, one that is broken is its own trouble alone.
// Conformance: F-15
func TestBrokenFileInTheNodesFolder(t *testing.T) {
	t.Parallel()
	var dir string
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		withDelegates(l)
		dir = filepath.Join(l.Nodes[0].Dir, "nads.d")
		l.Nodes[0].AgentArgs = append(l.Nodes[0].AgentArgs, "--nad-conf-dir="+dir)
	})
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	w.Must(os.MkdirAll(filepath.Join(dir, "03-folder.conflist"), 0o700))
	w.Must(os.Symlink("nowhere", filepath.Join(dir, "04-dangling.conflist")))
	for name, text := range map[string]string{
		"00-half.conflist": `{"name":"local","plugins":[`, "01-empty.conflist": "", "02-null.conflist": "null", "05-number.conflist": `{"name":5}`,
		"10-other.conflist": `{"name":"other","plugins":[{"type":"macvlan"}]}`,
		"20-local.conf":     addressed(log, "192.0.2.20/24", `,"name":"local","cniVersion":"1.0.0"`),
		"30-local.conflist": `{"name":"local","cniVersion":"1.0.0","plugins":[` + addressed(log, "192.0.2.30/24", "") + `]}`,
		"40-local.conflist": `{"name":"local","cniVersion":"1.0.0","plugins":[` + addressed(log, "192.0.2.40/24", "") + `]}`,
	} {
		w.Must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	w.Must(w.WriteManifest("local.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: local}\n"))
	w.Must(w.WriteManifest("absent.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: absent}\n"))
	p := w.Attached(0, "web", "local")
	equal(t, "the first list of the name", w.Status(p)[1].IPs, []string{"192.0.2.30"})
	none := w.Pod(0, "none", "absent")
	w.refused(w.TryAdd(none), conf.CodeNetworkNotFound, "interface net1", `no configuration in `+dir+` has the name "absent"`)
	w.End(p, none)
	equal(t, "calls", w.toldOf(log, p), []string{"ADD web net1", "DEL web net1"})
	w.AsBefore()
}

// TestCodesOfDelegates: a plugin's own code reaches the runtime, of every command; one that has none, or cannot be run, is 108
// and never 999.
// Conformance: F-14
func TestCodesOfDelegates(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		l.Nodes[0].PluginConf = func(entry map[string]any) { entry["allowedDelegates"] = append([]string{"absent"}, allowed...) }
	})
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	w.Must(os.WriteFile(stuck, nil, 0o600))
	for name, how := range map[string]string{
		"own": `"fail":{"ADD":{"code":119,"msg":"no such wire"}}`, "try-again": `"fail":{"ADD":{"code":11,"msg":"wait"}}`,
		"codeless": `"fail":{"ADD":{"msg":"no code"}}`, "wordless": `"fail":{"ADD":""}`, "no-result": `"print":0`,
	} {
		w.NAD(name, `{"cniVersion":"1.0.0","type":"recorder","log":"`+filepath.Join(w.Nodes[0].Dir, "log")+`",`+how+`}`)
	}
	w.NAD("no-log", `{"cniVersion":"1.0.0","type":"recorder","log":"/nonexistent/log"}`)
	w.NAD("absent", `{"type":"absent"}`)
	for _, tt := range []struct {
		network string
		code    uint
		words   []string
	}{
		{"own", 119, []string{"no such wire"}},
		{"try-again", conf.CodeTryAgain, []string{"wait"}},
		{"codeless", conf.CodeDelegateFailed, []string{"no code"}},
		{"wordless", conf.CodeDelegateFailed, []string{"recorder"}},
		{"no-result", conf.CodeDelegateFailed, []string{"shop/no-result"}},
		{"absent", conf.CodeDelegateFailed, []string{"delegate absent: failed to find plugin"}},
		{"no-log", conf.CodeDelegateFailed, []string{"recorder", "/nonexistent/log"}},
	} {
		p := w.Pod(0, "web", tt.network)
		w.refused(w.TryAdd(p), tt.code, append(tt.words, "interface net1")...)
		if tt.network != "no-log" {
			w.Over(p)
			continue
		}
		// What cannot be run cannot be undone: it is tried, and given up.
		w.refused(p.Del(w.Ctx), conf.CodeDelegateFailed, tt.words...)
		w.End(p)
	}
}

// TestTruncatedFilesOfAnAttachment cuts what a DEL works from: the result that libcni keeps, which it does not write whole or
// not at all, and our own journal. Either alone is enough: the delegate gets its DEL, with all that its ADD had.
// Conformance: C-96 F-3 F-19
func TestTruncatedFilesOfAnAttachment(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	w.NAD("rec", `{"cniVersion":"1.0.0","plugins":[`+addressed(log, "192.0.2.7/24",
		fmt.Sprintf(`,"capabilities":{"mac":true},"fail":{"DEL":{"code":77,"msg":"still busy"}},"while":"%s"`, stuck))+`]}`)
	for _, tt := range []struct {
		name, glob string
		size       int64
		fails      bool // its first DEL
	}{
		{"the result is empty", "results/results/*", 0, false},
		{"the result is half", "results/results/*", 40, false},
		{"the result is empty, and the first DEL fails", "results/results/*", 0, true},
		{"the journal is empty", "attached/*@eth0", 0, false},
		{"the journal is half", "attached/*@eth0", 40, false},
		{"the journal is half, and the first DEL fails", "attached/*@eth0", 40, true},
	} {
		w.part(tt.name, func(t *testing.T, w *world) {
			w.Must(os.RemoveAll(log))
			p := w.Attached(0, "web", `[{"name":"rec","mac":"02:00:00:00:00:07","cni-args":{"a":"b"}},{"name":"blue"}]`)
			damaged := w.Glob(filepath.Join(p.Node.StateDir, tt.glob))
			if len(damaged) != 1 {
				t.Fatalf("files to damage: %q, want one", damaged)
			}
			w.Must(os.Truncate(damaged[0], tt.size))
			want := []string{"ADD web net1", "DEL web net1"}
			if tt.fails {
				w.Must(os.WriteFile(stuck, nil, 0o600))
				w.refused(p.Del(w.Ctx), 77, "still busy")
				w.Must(os.Remove(stuck))
				if strings.HasPrefix(tt.glob, "results") {
					w.Must(os.WriteFile(damaged[0], nil, 0o600)) // what the first DEL made of it does not count
				}
				want = append(want, "DEL web net1")
			}
			w.End(p)
			equal(t, "calls", w.toldOf(log, p), want)
			add := w.told(log)[0]
			for _, del := range w.told(log)[1:] {
				equal(t, "the result that DEL is given", del.prevAddress(), "192.0.2.7/24")
				equal(t, "CNI_ARGS", del.args, add.args)
				for _, key := range []string{"runtimeConfig", "args"} {
					equal(t, key, del.stdin[key], add.stdin[key])
				}
			}
			w.AsBefore()
		})
	}
}

// TestCheckWithATruncatedResult: what libcni's cache has lost is no fault of the attachment.
// Conformance: F-3
func TestCheckWithATruncatedResult(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	w.NAD("rec", `{"cniVersion":"1.0.0","plugins":[`+addressed(log, "192.0.2.7/24", "")+`]}`)
	p := w.Attached(0, "web", "rec")
	cached := w.Glob(filepath.Join(p.Node.StateDir, "results/results/*"))
	w.Must(os.Truncate(cached[0], 40))
	w.Must(p.Check(w.Ctx))
	equal(t, "calls", w.toldOf(log, p), []string{"ADD web net1", "CHECK web net1"})
	equal(t, "the result that CHECK is given", w.told(log)[1].prevAddress(), "192.0.2.7/24")
	w.Over(p)
}

// TestGCBesideADamagedEntry: a pod that lives, and whose entry cannot be read, loses nothing to the GC of others: its delegate
// gets no DEL, and is told to keep what it has for it.
// Conformance: F-4
func TestGCBesideADamagedEntry(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	w.NAD("rec", `{"cniVersion":"1.1.0","plugins":[`+addressed(log, "192.0.2.7/24", "")+`]}`)
	damaged, sound := w.Attached(0, "damaged", "rec,blue"), w.Attached(0, "sound", "rec,blue")
	w.Must(os.Truncate(filepath.Join(damaged.Node.StateDir, "attached", damaged.Sandbox+"@eth0"), 40))
	w.Must(w.Nodes[0].GC(w.Ctx, []*lab.Pod{damaged, sound}, lab.OnlyOurs(nil), lab.WithoutCache()))
	equal(t, "calls", w.toldOf(log, damaged, sound), []string{"ADD damaged net1", "ADD sound net1", "GC"})
	kept := fmt.Sprint(w.told(log)[2].stdin["cni.dev/valid-attachments"])
	for _, p := range []*lab.Pod{damaged, sound} {
		if !strings.Contains(kept, fmt.Sprintf("containerID:%s ifname:net1", p.Sandbox)) {
			t.Errorf("the plugin is not told to keep %s: %s", p, kept)
		}
	}
	w.Over(damaged, sound)
}

// TestGCOfNetworksOfOneCNIName: what of one NAD is stale and would not go is not taken away by another one's plugins, only
// because the two configurations have one "name"; and each one's plugins are asked.
// Conformance: F-18
func TestGCOfNetworksOfOneCNIName(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withGlobal("infra", withDelegates))
	dir := w.Nodes[0].Dir
	ours, theirs, stuck := filepath.Join(dir, "ours.log"), filepath.Join(dir, "theirs.log"), filepath.Join(dir, "stuck")
	w.Must(os.WriteFile(stuck, nil, 0o600))
	w.NAD("shop/lan", `{"cniVersion":"1.1.0","name":"lan","plugins":[`+
		addressed(ours, "192.0.2.1/24", fmt.Sprintf(`,"fail":{"DEL":{"code":77,"msg":"still busy"}},"while":"%s"`, stuck))+`]}`)
	w.NAD("infra/lan", `{"cniVersion":"1.1.0","name":"lan","plugins":[`+addressed(theirs, "198.51.100.1/24", "")+`]}`)
	stale, live := w.Attached(0, "stale", "lan"), w.Attached(0, "live", "infra/lan")
	w.refused(w.Nodes[0].GC(w.Ctx, []*lab.Pod{live}, lab.OnlyOurs(nil), lab.WithoutCache()), 77, "still busy")
	equal(t, "calls of the stale one's plugin", w.toldOf(ours, stale, live), []string{"ADD stale net1", "DEL stale net1", "GC"})
	equal(t, "calls of the live one's plugin", w.toldOf(theirs, stale, live), []string{"ADD live net1", "GC"})
	keep := any([]any{map[string]any{"containerID": live.Sandbox, "ifname": "net1"}})
	for _, log := range []string{ours, theirs} {
		calls := w.told(log)
		equal(t, "what is to be kept of the name", calls[len(calls)-1].stdin["cni.dev/valid-attachments"], keep)
	}

	w.Must(os.Remove(stuck))
	w.Must(w.Nodes[0].GC(w.Ctx, nil, lab.OnlyOurs(nil), lab.WithoutCache()))
	calls := w.told(ours)
	equal(t, "the retry", calls[3].of(stale, live), "DEL stale net1")
	equal(t, "the result that it is given", calls[3].prevAddress(), "192.0.2.1/24")
	equal(t, "calls of the live one's plugin, after its end", w.toldOf(theirs, stale, live)[2:], []string{"DEL live net1", "GC"})
	equal(t, "an empty list is a list", w.told(theirs)[3].stdin["cni.dev/valid-attachments"], any([]any{}))
	w.Over(stale, live)
}

// TestNADsThatCannotBeRead: a source that does not answer, or is not understood, is no defect of ours, and no final word on
// the pod either.
// Conformance: F-20
func TestNADsThatCannotBeRead(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.recorderOn("good", "")
	w.Must(w.WriteManifest("broken.yaml", "kind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: [\n"))
	p := w.Pod(0, "web", "good,blue,broken")
	w.refused(w.TryAdd(p), conf.CodeTryAgain, "interface net3", "shop/broken", "broken.yaml, which is not understood")
	equal(t, "calls of the good network's plugin", w.toldOf(log, p), nil)
	w.Over(p)
}
