package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// reconciling has the agents look every second for what no DEL came for.
func reconciling(l *lab.Lab) {
	withDelegates(l)
	for _, n := range l.Nodes {
		n.AgentArgs = append(n.AgentArgs, "--reconcile-period", "1s")
	}
}

// rowsOf lists the ports in NB and the interfaces in Open vSwitch that are a sandbox's.
func (w *world) rowsOf(p *lab.Pod) (names []string) {
	w.t.Helper()
	ports, err := w.NBCtl(w.ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port", "external_ids:ovn-multinet/sandbox="+p.Sandbox)
	w.must(err)
	plugs, err := p.Node.VSCtl(w.ctx, "--bare", "--columns=name", "find", "Interface", "external_ids:sandbox="+p.Sandbox)
	w.must(err)
	return append(strings.Fields(ports), strings.Fields(plugs)...)
}

func (w *world) noRows(p *lab.Pod) {
	w.t.Helper()
	w.eventually(func() error {
		if left := w.rowsOf(p); len(left) > 0 {
			return fmt.Errorf("%s has %q still", p, left)
		}
		return nil
	})
}

// onHost lists what else the node has of a sandbox: host ends, and files of the plugin's.
func (w *world) onHost(p *lab.Pod) []string {
	w.t.Helper()
	found := w.linksOf(p.Node, agentapi.HostVeth(p.Sandbox, "net1"), agentapi.HostVeth(p.Sandbox, "net2"))
	return append(found, slices.DeleteFunc(w.files(p.Node.StateDir), func(name string) bool { return !strings.Contains(name, p.Sandbox) })...)
}

func (w *world) journalOf(p *lab.Pod) string {
	return filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0")
}

// untilUndone has other pods come and go until the plugin has undone, on the way, what the node had of a sandbox.
func (w *world) untilUndone(p *lab.Pod) {
	w.t.Helper()
	w.eventually(func() error {
		w.end(w.attached(0, "passes-by", "blue"))
		if left := w.onHost(p); len(left) > 0 {
			return fmt.Errorf("the node has %q of %s still", left, p)
		}
		return nil
	})
}

// losses are what happens to a pod that no DEL comes for.
var losses = []struct {
	name   string
	do     func(w *world, p *lab.Pod)
	reason string // that the agent says
	lost   bool   // the journal, so that the agent warns
}{
	{"namespace", func(w *world, p *lab.Pod) { w.must(p.RemoveNetNS()) }, "its network namespace is gone", false},
	{"pod", func(w *world, p *lab.Pod) { w.must(p.RemoveManifest()) }, "pod shop/goes is gone", false},
	{"pod, for another one of its name", func(w *world, p *lab.Pod) {
		next := *p
		next.UID = "11111111-2222-3333-4444-555555555555"
		w.must(next.WriteManifest())
	}, "pod shop/goes with UID {uid} is gone", false},
	{"pod and namespace", func(w *world, p *lab.Pod) { w.must(errors.Join(p.RemoveManifest(), p.RemoveNetNS())) }, "pod shop/goes is gone", false},
	{"namespace and journal", func(w *world, p *lab.Pod) { w.must(errors.Join(os.Remove(w.journalOf(p)), p.RemoveNetNS())) }, "its network namespace is gone", true},
	{"pod and journal", func(w *world, p *lab.Pod) { w.must(errors.Join(os.Remove(w.journalOf(p)), p.RemoveManifest())) }, "pod shop/goes is gone", true},
	{"pod, its journal damaged", func(w *world, p *lab.Pod) {
		w.must(errors.Join(os.WriteFile(w.journalOf(p), []byte(`{"version":1,"sandb`), 0o600), p.RemoveManifest()))
	}, "pod shop/goes is gone", false},
	{"namespace and a row of NB", func(w *world, p *lab.Pod) {
		_, err := w.NBCtl(w.ctx, "lsp-del", p.String()+"/net1")
		w.must(errors.Join(err, p.RemoveNetNS()))
	}, "its network namespace is gone", false},
	{"namespace and a row of Open vSwitch", func(w *world, p *lab.Pod) {
		_, err := p.Node.VSCtl(w.ctx, "del-port", agentapi.HostVeth(p.Sandbox, "net1"))
		w.must(errors.Join(err, p.RemoveNetNS()))
	}, "its network namespace is gone", false},
	{"all but leases", func(w *world, p *lab.Pod) {
		for _, name := range []string{"net1", "net2"} {
			_, err := p.Node.VSCtl(w.ctx, "del-port", agentapi.HostVeth(p.Sandbox, name))
			w.must(err)
		}
		w.must(errors.Join(os.Remove(w.journalOf(p)), p.RemoveNetNS()))
	}, "its network namespace is gone", true},
	{"all but the journal", func(w *world, p *lab.Pod) {
		// A claim without its port stays, until somebody wants its address.
		claim, err := w.NBCtl(w.ctx, "--bare", "--columns=_uuid", "find", "Copp", "external_ids:ovn-multinet/port-name="+p.String()+"/net2")
		w.must(err)
		_, err = w.NBCtl(w.ctx, "destroy", "Copp", claim)
		w.must(err)
		for _, name := range []string{"net1", "net2"} {
			_, err := p.Node.VSCtl(w.ctx, "del-port", agentapi.HostVeth(p.Sandbox, name))
			w.must(err)
			_, err = w.NBCtl(w.ctx, "lsp-del", p.String()+"/"+name)
			w.must(err)
		}
		w.must(p.RemoveNetNS())
	}, "", false},
	{"namespace, and the agent", func(w *world, p *lab.Pod) {
		w.must(errors.Join(p.Node.KillAgent(), p.RemoveNetNS()))
		w.must(p.Node.StartAgent(w.ctx))
	}, "its network namespace is gone", false},
	{"pod, and the agent", func(w *world, p *lab.Pod) {
		w.must(p.RemoveManifest())
		w.must(errors.Join(p.Node.KillAgent(), p.Node.StartAgent(w.ctx)))
	}, "pod shop/goes is gone", false},
}

// TestNoDEL: whatever is lost of a pod that no DEL comes for, the agent takes its rows away and the plugin the rest, and nobody
// else's.
func TestNoDEL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, reconciling)
	stays, peer := w.attached(0, "stays", "blue,green"), w.attached(1, "peer", "green")
	row, ping := w.portRow(stays, "net2"), w.pinging(peer, w.links(stays)["net2"].IPs()[0])
	base := w.base
	w.base = w.snapshot()
	for _, c := range losses {
		t.Run(c.name, func(t *testing.T) {
			w := w.sub(t)
			p := w.attached(0, "goes", "blue,green")
			uid := p.UID
			c.do(w, p)
			w.noRows(p)
			if c.reason != "" {
				w.tookAway(p, strings.ReplaceAll(c.reason, "{uid}", uid), c.lost)
			}
			w.untilUndone(p)
			w.end(p) // whose DEL comes after all
			w.asBefore()
			equal(t, "port of a pod that is there", w.portRow(stays, "net2"), row)
		})
	}
	ping.stop()
	w.consistent(stays, []string{"net1", "net2"})
	w.end(stays, peer)
	w.base = base
	w.asBefore()
}

// tookAway waits until the agent's log says that it took away what a pod had, and holds against it what is said of why.
func (w *world) tookAway(p *lab.Pod, reason string, lost bool) {
	w.t.Helper()
	said := ""
	w.eventually(func() error {
		for line := range strings.Lines(read(w.t, p.Node.Agent.LogPath())) {
			if strings.Contains(line, "deleted the ports of a stale sandbox") && strings.Contains(line, p.Sandbox) && strings.HasSuffix(line, "\n") {
				said = line
				return nil
			}
		}
		return fmt.Errorf("the agent's log does not say that it took away what %s had", p)
	})
	if !strings.Contains(said, `reason="`+reason+`"`) || strings.Contains(said, "the plugin's journal has lost this container") != lost || strings.Contains(said, "level=WARN") != lost {
		w.t.Errorf("the agent's log says %s, want reason %q and a journal that is lost: %t", said, reason, lost)
	}
}

// TestListWithGaps: as long as the agent cannot read all that it needs, it takes nothing away, and does when it can.
func TestListWithGaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, reconciling)
	for _, c := range []struct {
		name           string
		away, comeBack func(w *world, n *lab.Node) error
		says           string
	}{
		{"NB", func(w *world, _ *lab.Node) error { return w.NB.Kill() }, func(w *world, _ *lab.Node) error { return w.NB.Restart(w.ctx) }, "this node's ports"},
		{"a manifest that is broken", func(w *world, _ *lab.Node) error {
			return w.WriteManifest("broken.yaml", "kind: Pod\nmetadata: {name: half-wri")
		}, func(w *world, _ *lab.Node) error { return w.RemoveManifest("broken.yaml") }, "pod shop/goes"},
		{"a journal that cannot be listed", func(_ *world, n *lab.Node) error {
			dir := filepath.Join(n.StateDir, "attached")
			return errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600))
		}, func(_ *world, n *lab.Node) error {
			dir := filepath.Join(n.StateDir, "attached")
			return errors.Join(os.Remove(dir), os.Rename(dir+".away", dir))
		}, "the plugin's journal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.sub(t)
			p := w.attached(0, "goes", "blue,green")
			plugs, err := p.Node.VSCtl(w.ctx, "--columns=_uuid,name", "find", "Interface", "external_ids:sandbox="+p.Sandbox)
			w.must(err)
			rows := w.rowsOf(p)
			w.must(c.away(w, p.Node))
			w.must(p.RemoveManifest())
			for range 2 {
				w.looksWithGaps(p.Node, c.says)
			}
			left, err := p.Node.VSCtl(w.ctx, "--columns=_uuid,name", "find", "Interface", "external_ids:sandbox="+p.Sandbox)
			w.must(err)
			equal(t, "interfaces while a part of the list is away", left, plugs)
			w.must(c.comeBack(w, p.Node))
			if len(rows) != 4 {
				t.Errorf("the pod had %q, want two ports and two interfaces", rows)
			}
			w.noRows(p)
			w.untilUndone(p)
			w.end(p)
			w.asBefore()
		})
	}
}

// looksWithGaps waits until the agent has looked once more, in vain and for that reason.
func (w *world) looksWithGaps(n *lab.Node, reason string) {
	w.t.Helper()
	count := func() (lines int) {
		for line := range strings.Lines(read(w.t, n.Agent.LogPath())) {
			if strings.Contains(line, "delete what is stale") && strings.Contains(line, reason) {
				lines++
			}
		}
		return lines
	}
	before := count()
	w.eventually(func() error {
		if count() <= before {
			return fmt.Errorf("the agent has not looked in vain for %q", reason)
		}
		return nil
	})
}
