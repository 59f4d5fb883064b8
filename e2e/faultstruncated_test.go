package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestTruncatedFilesOfAnAttachment cuts what a DEL works from: the result that libcni keeps, which it does not write whole or
// not at all, and our own journal. Either alone is enough: the delegate gets its DEL, with all that its ADD had.
// Conformance: C-96 F-3 F-19
func TestTruncatedFilesOfAnAttachment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	w.definition("rec", `{"cniVersion":"1.0.0","plugins":[`+addressed(log, "192.0.2.7/24",
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
		t.Run(tt.name, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx, base: w.base}
			w.must(os.RemoveAll(log))
			p := w.attached(0, "web", `[{"name":"rec","mac":"02:00:00:00:00:07","cni-args":{"a":"b"}},{"name":"blue"}]`)
			damaged, err := filepath.Glob(filepath.Join(p.Node.StateDir, tt.glob))
			w.must(err)
			if len(damaged) != 1 {
				t.Fatalf("files to damage: %q, want one", damaged)
			}
			w.must(os.Truncate(damaged[0], tt.size))
			want := []string{"ADD web net1", "DEL web net1"}
			if tt.fails {
				w.must(os.WriteFile(stuck, nil, 0o600))
				w.refused(p.Del(w.ctx), 77, "still busy")
				w.must(os.Remove(stuck))
				if strings.HasPrefix(tt.glob, "results") {
					w.must(os.WriteFile(damaged[0], nil, 0o600)) // what the first DEL made of it does not count
				}
				want = append(want, "DEL web net1")
			}
			w.end(p)
			equal(t, "calls", w.toldOf(log, p), want)
			add := w.told(log)[0]
			for _, del := range w.told(log)[1:] {
				equal(t, "the result that DEL is given", del.prevAddress(), "192.0.2.7/24")
				equal(t, "CNI_ARGS", del.args, add.args)
				for _, key := range []string{"runtimeConfig", "args"} {
					equal(t, key, del.stdin[key], add.stdin[key])
				}
			}
			w.asBefore()
		})
	}
}

// TestCheckWithATruncatedResult: what libcni's cache has lost is no fault of the attachment.
// Conformance: F-3
func TestCheckWithATruncatedResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	w.definition("rec", `{"cniVersion":"1.0.0","plugins":[`+addressed(log, "192.0.2.7/24", "")+`]}`)
	p := w.attached(0, "web", "rec")
	cached, err := filepath.Glob(filepath.Join(p.Node.StateDir, "results/results/*"))
	w.must(err)
	w.must(os.Truncate(cached[0], 40))
	w.must(p.Check(w.ctx))
	equal(t, "calls", w.toldOf(log, p), []string{"ADD web net1", "CHECK web net1"})
	equal(t, "the result that CHECK is given", w.told(log)[1].prevAddress(), "192.0.2.7/24")
	w.end(p)
	w.asBefore()
}

// TestGCBesideADamagedEntry: a pod that lives, and whose entry cannot be read, loses nothing to the GC of others: its delegate
// gets no DEL, and is told to keep what it has for it.
// Conformance: F-4
func TestGCBesideADamagedEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	w.definition("rec", `{"cniVersion":"1.1.0","plugins":[`+addressed(log, "192.0.2.7/24", "")+`]}`)
	damaged, sound := w.attached(0, "damaged", "rec,blue"), w.attached(0, "sound", "rec,blue")
	w.must(os.Truncate(filepath.Join(damaged.Node.StateDir, "attached", damaged.Sandbox+"@eth0"), 40))
	w.must(w.Nodes[0].GC(w.ctx, []*lab.Pod{damaged, sound}, lab.OnlyOurs(nil), lab.WithoutCache()))
	equal(t, "calls", w.toldOf(log, damaged, sound), []string{"ADD damaged net1", "ADD sound net1", "GC"})
	kept := fmt.Sprint(w.told(log)[2].stdin["cni.dev/valid-attachments"])
	for _, p := range []*lab.Pod{damaged, sound} {
		if !strings.Contains(kept, fmt.Sprintf("containerID:%s ifname:net1", p.Sandbox)) {
			t.Errorf("the plugin is not told to keep %s: %s", p, kept)
		}
	}
	w.end(damaged, sound)
	w.asBefore()
}

// TestGCOfNetworksOfOneCNIName: what of one NAD is stale and would not go is not taken away by another one's plugins, only
// because the two configurations have one "name"; and each one's plugins are asked.
// Conformance: F-18
func TestGCOfNetworksOfOneCNIName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withGlobal("infra", withDelegates))
	dir := w.Nodes[0].Dir
	ours, theirs, stuck := filepath.Join(dir, "ours.log"), filepath.Join(dir, "theirs.log"), filepath.Join(dir, "stuck")
	w.must(os.WriteFile(stuck, nil, 0o600))
	w.inNamespace("shop", "lan", `{"cniVersion":"1.1.0","name":"lan","plugins":[`+
		addressed(ours, "192.0.2.1/24", fmt.Sprintf(`,"fail":{"DEL":{"code":77,"msg":"still busy"}},"while":"%s"`, stuck))+`]}`)
	w.inNamespace("infra", "lan", `{"cniVersion":"1.1.0","name":"lan","plugins":[`+addressed(theirs, "198.51.100.1/24", "")+`]}`)
	stale, live := w.attached(0, "stale", "lan"), w.attached(0, "live", "infra/lan")
	w.refused(w.Nodes[0].GC(w.ctx, []*lab.Pod{live}, lab.OnlyOurs(nil), lab.WithoutCache()), 77, "still busy")
	equal(t, "calls of the stale one's plugin", w.toldOf(ours, stale, live), []string{"ADD stale net1", "DEL stale net1", "GC"})
	equal(t, "calls of the live one's plugin", w.toldOf(theirs, stale, live), []string{"ADD live net1", "GC"})
	keep := any([]any{map[string]any{"containerID": live.Sandbox, "ifname": "net1"}})
	for _, log := range []string{ours, theirs} {
		calls := w.told(log)
		equal(t, "what is to be kept of the name", calls[len(calls)-1].stdin["cni.dev/valid-attachments"], keep)
	}

	w.must(os.Remove(stuck))
	w.must(w.Nodes[0].GC(w.ctx, nil, lab.OnlyOurs(nil), lab.WithoutCache()))
	calls := w.told(ours)
	equal(t, "the retry", calls[3].of(stale, live), "DEL stale net1")
	equal(t, "the result that it is given", calls[3].prevAddress(), "192.0.2.1/24")
	equal(t, "calls of the live one's plugin, after its end", w.toldOf(theirs, stale, live)[2:], []string{"DEL live net1", "GC"})
	equal(t, "an empty list is a list", w.told(theirs)[3].stdin["cni.dev/valid-attachments"], any([]any{}))
	w.end(stale, live)
	w.asBefore()
}

// TestNADsThatCannotBeRead: a source that does not answer, or is not understood, is no defect of ours, and no final word on
// the pod either.
// Conformance: F-20
func TestNADsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.recorderOn("good", "")
	w.must(w.WriteManifest("broken.yaml", "kind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: [\n"))
	p := w.pod(0, "web", "good,blue,broken")
	_, err := p.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "interface net3", "shop/broken", "broken.yaml, which is not understood")
	equal(t, "calls of the good network's plugin", w.toldOf(log, p), nil)
	w.end(p)
	w.asBefore()
}
