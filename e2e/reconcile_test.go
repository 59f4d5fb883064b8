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
	ports := w.NBCtl("--bare", "--columns=name", "find", "Logical_Switch_Port", "external_ids:ovn-multinet/sandbox="+p.Sandbox)
	plugs := w.VSCtl(p.Node, "--bare", "--columns=name", "find", "Interface", "external_ids:sandbox="+p.Sandbox)
	return append(strings.Fields(ports), strings.Fields(plugs)...)
}

func (w *world) noRows(p *lab.Pod) {
	w.Eventually(func() error {
		if left := w.rowsOf(p); len(left) > 0 {
			return fmt.Errorf("%s has %q still", p, left)
		}
		return nil
	})
}

// onHost lists what else the node has of a sandbox: host ends, and files of the plugin's.
func (w *world) onHost(p *lab.Pod) []string {
	found := w.linksOf(p.Node, agentapi.HostVeth(p.Sandbox, "net1"), agentapi.HostVeth(p.Sandbox, "net2"))
	return append(found, slices.DeleteFunc(w.files(p.Node.StateDir), func(name string) bool { return !strings.Contains(name, p.Sandbox) })...)
}

func (w *world) journalOf(p *lab.Pod) string {
	return filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0")
}

// untilUndone has other pods come and go until the plugin has undone, on the way, what the node had of a sandbox.
func (w *world) untilUndone(p *lab.Pod) {
	w.Eventually(func() error {
		w.End(w.Attached(0, "passes-by", "blue"))
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
	{"namespace", func(w *world, p *lab.Pod) { w.Must(p.RemoveNetNS()) }, "its network namespace is gone", false},
	{"pod", func(w *world, p *lab.Pod) { w.Must(p.RemoveManifest()) }, "pod shop/goes is gone", false},
	{"pod, for another one of its name", func(w *world, p *lab.Pod) {
		next := *p
		next.UID = "11111111-2222-3333-4444-555555555555"
		w.Must(next.WriteManifest())
	}, "pod shop/goes with UID {uid} is gone", false},
	{"pod and namespace", func(w *world, p *lab.Pod) { w.Must(errors.Join(p.RemoveManifest(), p.RemoveNetNS())) }, "pod shop/goes is gone", false},
	{"namespace and journal", func(w *world, p *lab.Pod) { w.Must(errors.Join(os.Remove(w.journalOf(p)), p.RemoveNetNS())) }, "its network namespace is gone", true},
	{"pod and journal", func(w *world, p *lab.Pod) { w.Must(errors.Join(os.Remove(w.journalOf(p)), p.RemoveManifest())) }, "pod shop/goes is gone", true},
	{"pod, its journal damaged", func(w *world, p *lab.Pod) {
		w.Must(errors.Join(os.WriteFile(w.journalOf(p), []byte(`{"version":1,"sandb`), 0o600), p.RemoveManifest()))
	}, "pod shop/goes is gone", false},
	{"namespace and a row of NB", func(w *world, p *lab.Pod) {
		_, err := w.Lab.NBCtl(w.Ctx, "lsp-del", p.String()+"/net1")
		w.Must(errors.Join(err, p.RemoveNetNS()))
	}, "its network namespace is gone", false},
	{"namespace and a row of Open vSwitch", func(w *world, p *lab.Pod) {
		_, err := p.Node.VSCtl(w.Ctx, "del-port", agentapi.HostVeth(p.Sandbox, "net1"))
		w.Must(errors.Join(err, p.RemoveNetNS()))
	}, "its network namespace is gone", false},
	{"all but leases", func(w *world, p *lab.Pod) {
		for _, name := range []string{"net1", "net2"} {
			w.VSCtl(p.Node, "del-port", agentapi.HostVeth(p.Sandbox, name))
		}
		w.Must(errors.Join(os.Remove(w.journalOf(p)), p.RemoveNetNS()))
	}, "its network namespace is gone", true},
	{"all but the journal", func(w *world, p *lab.Pod) {
		// A claim without its port stays, until somebody wants its address.
		claim := w.NBCtl("--bare", "--columns=_uuid", "find", "Copp", "external_ids:ovn-multinet/port-name="+p.String()+"/net2")
		// In one transaction: between two of them the agent would write the claim of the port that is there again.
		w.NBCtl("--", "destroy", "Copp", claim, "--", "lsp-del", p.String()+"/net1", "--", "lsp-del", p.String()+"/net2")
		for _, name := range []string{"net1", "net2"} {
			w.VSCtl(p.Node, "del-port", agentapi.HostVeth(p.Sandbox, name))
		}
		w.Must(p.RemoveNetNS())
	}, "", false},
	{"namespace, and the agent", func(w *world, p *lab.Pod) {
		w.Must(errors.Join(p.Node.KillAgent(), p.RemoveNetNS()))
		w.Must(p.Node.StartAgent(w.Ctx))
	}, "its network namespace is gone", false},
	{"pod, and the agent", func(w *world, p *lab.Pod) {
		w.Must(p.RemoveManifest())
		w.Must(errors.Join(p.Node.KillAgent(), p.Node.StartAgent(w.Ctx)))
	}, "pod shop/goes is gone", false},
}

// TestNoDEL: whatever is lost of a pod that no DEL comes for, the agent takes its rows away and the plugin the rest, and nobody
// else's.
func TestNoDEL(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, reconciling)
	stays, peer := w.Attached(0, "stays", "blue,green"), w.Attached(1, "peer", "green")
	row, ping := w.portRow(stays, "net2"), w.pinging(peer, w.Links(stays)["net2"].IPs()[0])
	base := w.Base
	w.Base = w.Snapshot()
	for _, c := range losses {
		w.part(c.name, func(t *testing.T, w *world) {
			p := w.Attached(0, "goes", "blue,green")
			uid := p.UID
			c.do(w, p)
			w.noRows(p)
			if c.reason != "" {
				w.tookAway(p, strings.ReplaceAll(c.reason, "{uid}", uid), c.lost)
			}
			w.untilUndone(p)
			w.End(p) // whose DEL comes after all
			w.AsBefore()
			equal(t, "port of a pod that is there", w.portRow(stays, "net2"), row)
		})
	}
	ping.stop()
	w.consistent(stays, []string{"net1", "net2"})
	w.End(stays, peer)
	w.Base = base
	w.AsBefore()
}

// tookAway waits until the agent's log says that it took away what a pod had, and holds against it what is said of why.
func (w *world) tookAway(p *lab.Pod, reason string, lost bool) {
	said := ""
	w.Eventually(func() error {
		for line := range strings.Lines(read(w.T, p.Node.Agent.LogPath())) {
			if strings.Contains(line, "deleted the ports of a stale sandbox") && strings.Contains(line, p.Sandbox) && strings.HasSuffix(line, "\n") {
				said = line
				return nil
			}
		}
		return fmt.Errorf("the agent's log does not say that it took away what %s had", p)
	})
	if !strings.Contains(said, `reason="`+reason+`"`) || strings.Contains(said, "the plugin's journal has lost this sandbox") != lost || strings.Contains(said, "level=WARN") != lost {
		w.T.Errorf("the agent's log says %s, want reason %q and a journal that is lost: %t", said, reason, lost)
	}
}

// TestListWithGaps: as long as the agent cannot read all that it needs, it takes nothing away, and does when it can.
func TestListWithGaps(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, reconciling)
	for _, c := range []struct {
		name           string
		away, comeBack func(w *world, n *lab.Node) error
		says           string
	}{
		{"NB", func(w *world, _ *lab.Node) error { return w.NB.Kill() }, func(w *world, _ *lab.Node) error { return w.NB.Restart(w.Ctx) }, "this node's ports"},
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
		w.part(c.name, func(t *testing.T, w *world) {
			p := w.Attached(0, "goes", "blue,green")
			plugs := w.VSCtl(p.Node, "--columns=_uuid,name", "find", "Interface", "external_ids:sandbox="+p.Sandbox)
			rows := w.rowsOf(p)
			w.Must(c.away(w, p.Node))
			w.Must(p.RemoveManifest())
			for range 2 {
				w.looksWithGaps(p.Node, c.says)
			}
			left := w.VSCtl(p.Node, "--columns=_uuid,name", "find", "Interface", "external_ids:sandbox="+p.Sandbox)
			equal(t, "interfaces while a part of the list is away", left, plugs)
			w.Must(c.comeBack(w, p.Node))
			if len(rows) != 4 {
				t.Errorf("the pod had %q, want two ports and two interfaces", rows)
			}
			w.noRows(p)
			w.untilUndone(p)
			w.Over(p)
		})
	}
}

// looksWithGaps waits until the agent has looked once more, in vain and for that reason.
func (w *world) looksWithGaps(n *lab.Node, reason string) {
	count := func() (lines int) {
		for line := range strings.Lines(read(w.T, n.Agent.LogPath())) {
			if strings.Contains(line, "delete what is stale") && strings.Contains(line, reason) {
				lines++
			}
		}
		return lines
	}
	before := count()
	w.Eventually(func() error {
		if count() <= before {
			return fmt.Errorf("the agent has not looked in vain for %q", reason)
		}
		return nil
	})
}

// TestOrphans: the ports of a pod that went while its node's agent was dead are released by the controller, after it
// has looked twice, and not as long as it cannot read which pods there are.
func TestOrphans(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) { l.ControllerArgs = []string{quick} })
	stays, peer := w.Attached(0, "stays", "green"), w.Attached(1, "peer", "green")
	goes := w.Attached(0, "goes", "blue,green")
	row, held := w.portRow(stays, "net1"), w.portsOf(goes)
	if strings.Count(held, "shop/goes/") != 2 || !strings.Contains(held, "fd02::") {
		t.Fatalf("two ports and a claim are wanted to begin with: %q", held)
	}
	ping := w.pinging(peer, w.Links(stays)["net1"].IPs()[0])
	w.Must(goes.Node.KillAgent())

	w.Must(w.WriteManifest("broken.yaml", "kind: Pod\nmetadata: {name: half-wri"))
	w.looksInVain(1)
	w.Must(goes.RemoveManifest())
	w.looksInVain(3)
	equal(t, "ports while a manifest is broken", w.portsOf(goes), held)
	w.Must(w.RemoveManifest("broken.yaml"))
	w.noPorts(goes)

	log := read(t, w.Controller.LogPath())
	for _, port := range []string{"shop/goes/net1", "shop/goes/net2"} {
		seen, released := strings.Index(log, `"saw an orphan" port=`+port), strings.Index(log, `"released an orphan" port=`+port)
		if seen < 0 || released < seen || !strings.Contains(log[released:], "pod shop/goes is gone") {
			t.Errorf("port %s: seen at %d, released at %d of the log", port, seen, released)
		}
	}
	// Neither a dead agent nor another pod's end is an end of this one.
	equal(t, "port of a pod that is there", w.portRow(stays, "net1"), row)
	ping.stop()
	w.Must(goes.Del(w.Ctx))
	w.Must(goes.RemoveNetNS())
	w.Must(goes.Node.StartAgent(w.Ctx))
	w.Over(stays, peer)
}

// looksInVain waits until the controller has looked for orphans so many times more and has released nothing.
func (w *world) looksInVain(times int) {
	count := func() int {
		return strings.Count(read(w.T, w.Controller.LogPath()), `"garbage collection of ports" err=`)
	}
	before := count()
	w.Eventually(func() error {
		if count() < before+times {
			return errors.New("the controller has not looked for orphans yet")
		}
		return nil
	})
}
