package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// withAttach has the nodes change the networks of running pods.
func withAttach(l *lab.Lab) {
	withDelegates(l)
	for _, n := range l.Nodes {
		n.AgentArgs = append(n.AgentArgs, "--attach", "--reconcile-period=2s")
	}
}

// attachWorld is a world whose nodes change the networks of running pods.
func attachWorld(t *testing.T, nodes int) *world {
	w := parallelWorld(t, lab.Options{Nodes: nodes}, withAttach)
	for _, n := range w.Nodes {
		w.Must(n.StartAttach(w.Ctx))
	}
	return w
}

// edit writes a pod's annotation again; "-" removes it.
func (w *world) edit(p *lab.Pod, networks string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[labtest.NetworksAnnotation] = networks
	if networks == "-" {
		delete(p.Annotations, labtest.NetworksAnnotation)
	}
	w.Must(p.WriteManifest())
}

// changesTo waits until a pod's network-status names these interfaces, and holds everything else against it.
func (w *world) changesTo(p *lab.Pod, want ...string) {
	w.Eventually(func() error {
		var names []string
		text, err := os.ReadFile(filepath.Join(w.Manifests, p.UID+".status.json"))
		if err != nil {
			return err
		}
		var file struct {
			Status []struct{ Interface string } `json:"network-status"`
		}
		if err := json.Unmarshal(text, &file); err != nil {
			return err
		}
		for _, s := range file.Status {
			names = append(names, s.Interface)
		}
		if !slices.Equal(names, append([]string{"eth0"}, want...)) {
			return fmt.Errorf("%s has %q, not %q", p, names, want)
		}
		return nil
	})
	w.consistent(p, want)
}

// events are the lines of the node's agent about a pod that have the reason of an Event.
func (w *world) events(p *lab.Pod, reason string) (lines []string) {
	for line := range strings.Lines(string(w.Read(filepath.Join(p.Node.Dir, "agent.log")))) {
		if strings.Contains(line, "msg=event pod="+p.String()+" ") && strings.Contains(line, "reason="+reason+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// eventTold waits until the owner of a pod was told something for the n-th time.
func (w *world) eventTold(p *lab.Pod, reason string, n int, words ...string) {
	w.Eventually(func() error {
		if lines := w.events(p, reason); len(lines) < n {
			return fmt.Errorf("%d Events %s of %s, not %d", len(lines), reason, p, n)
		}
		return nil
	})
	lines := w.events(p, reason)
	equal(w.T, reason, len(lines), n)
	for _, word := range words {
		if !strings.Contains(lines[n-1], word) {
			w.T.Errorf("Event %s does not say %q: %s", reason, word, lines[n-1])
		}
	}
}

// untouched notes an interface that a pod keeps; the function that it returns says that it is the same link, with the same
// OVS port and the same rows, and that it reaches an address. Lost packets are not counted here: the userspace datapath
// loses some whenever a port comes or goes, of whatever pod.
func (w *world) untouched(p *lab.Pod, name, to string) func() {
	state := func() string {
		link, _, _ := strings.Cut(w.Exec(p, "ip", "-o", "link", "show", "dev", name), ":")
		return link + "\n" +
			w.VSCtl(p.Node, "--columns=_uuid,ofport", "find", "Interface", "name="+agentapi.HostVeth(p.Sandbox, name)) +
			w.NBCtl("--columns=_uuid,addresses,port_security,options,external_ids", "find", "Logical_Switch_Port",
				fmt.Sprintf("name=%q", p.String()+"/"+name))
	}
	before := state()
	return func() {
		equal(w.T, name+" of "+p.String(), state(), before)
		w.MustReach(p, to)
	}
}

// TestAttachRunning: an edited annotation gives a running pod networks and takes them away. What the pod keeps is not
// touched, and an interface keeps its name whatever comes or goes before it in the list.
func TestAttachRunning(t *testing.T) {
	w := attachWorld(t, 2)
	peer := w.Attached(1, "peer", "blue@net1,green@net2")
	blue, green := w.Links(peer)["net1"].IPs()[0], w.Links(peer)["net2"].IPs()[0]
	empty := w.Base
	w.Base = w.Snapshot()
	w.part("add and remove", func(t *testing.T, w *world) {
		p := w.Attached(0, "web", "blue")
		stays := w.untouched(p, "net1", blue)
		w.edit(p, `[{"name":"blue"},{"name":"green","interface":"x1"}]`)
		w.changesTo(p, "net1", "x1")
		w.MustReach(p, green)
		w.Must(p.Check(w.Ctx))
		w.eventTold(p, "AddedInterface", 1, "x1", "shop/green")
		stays()
		also := w.untouched(p, "x1", green)
		w.edit(p, "green@x1")
		w.changesTo(p, "x1")
		w.Must(p.Check(w.Ctx))
		w.eventTold(p, "RemovedInterface", 1, "net1", "shop/blue")
		w.edit(p, "six,wire,green@x1")
		w.changesTo(p, "net1", "net2", "x1")
		also()
		w.edit(p, "-")
		w.changesTo(p)
		w.edit(p, "blue")
		w.changesTo(p, "net1")
		w.MustReach(p, blue)
		w.Over(p)
	})
	w.part("names by position", func(t *testing.T, w *world) {
		p := w.Attached(0, "web", "blue,green,six")
		stays := w.untouched(p, "net2", green)
		w.edit(p, "green,six")
		w.changesTo(p, "net2", "net3")
		w.edit(p, "wire,green,blue,six")
		w.changesTo(p, "net1", "net2", "net4", "net3")
		stays()
		w.Over(p)
	})
	w.part("a pod without networks gets its first", func(t *testing.T, w *world) {
		p := w.Pod(0, "plain", "")
		p.Phase = "Running"
		w.edit(p, "-")
		w.Add(p)
		for _, none := range []string{"-", "[]", ""} {
			w.edit(p, `[{"name":"blue","interface":"x1"}]`)
			w.changesTo(p, "x1")
			w.MustReach(p, blue)
			w.edit(p, none)
			w.changesTo(p)
		}
		w.eventTold(p, "AddedInterface", 3)
		w.eventTold(p, "RemovedInterface", 3)
		w.Over(p)
	})
	w.part("two interfaces on one network", func(t *testing.T, w *world) {
		p := w.Attached(0, "web", "blue")
		stays := w.untouched(p, "net1", blue)
		w.edit(p, "blue@second,blue@net1")
		w.changesTo(p, "second", "net1")
		w.MustReach(peer, append(w.Links(p)["second"].IPs(), w.Links(p)["net1"].IPs()...)...)
		stays()
		w.Must(p.Check(w.Ctx))
		w.Over(p)
	})
	w.Base = empty
	w.Over(peer)
}

// TestAttachRefused: an edit that would change an interface is refused whole, in one Event, and the pod keeps everything.
func TestAttachRefused(t *testing.T) {
	w := attachWorld(t, 1)
	peer := w.Attached(0, "peer", "blue")
	p := w.Attached(0, "web", `[{"name":"blue","interface":"x1","mac":"02:00:00:00:00:21"}]`)
	stays := w.untouched(p, "x1", w.Links(peer)["net1"].IPs()[0])
	refused := 0
	for _, edit := range []struct {
		networks string
		words    []string
	}{
		{`[{"name":"green","interface":"x1","mac":"02:00:00:00:00:21"},{"name":"six"}]`, []string{"x1", "shop/blue", "shop/green"}},
		{`[{"name":"blue","interface":"x1","mac":"02:00:00:00:00:22"}]`, []string{"x1", "shop/blue", "something else"}},
		{`[{"name":"blue","interface":"x1","mac":"02:00:00:00:00:21"},{"name":"blue","interface":"x1"}]`, []string{"asked for by entry 0"}},
		{`[{"name":"blue",`, []string{"not valid JSON"}},
		{`[{"name":"blue","interface":"x1","mac":"02:00:00:00:00:21"},{"name":"six","default-route":["fd06::1"]}]`, nil},
	} {
		reason := "InterfaceChangeRefused"
		if edit.words == nil {
			reason, refused = "FailedAddingInterface", 0
		}
		refused++
		w.edit(p, edit.networks)
		w.eventTold(p, reason, refused, edit.words...)
		w.consistent(p, []string{"x1"})
		w.edit(p, `[{"mac":"02:00:00:00:00:21", "interface":"x1", "name":"blue", "namespace":"shop"}]`)
	}
	stays()
	equal(t, "interfaces added or removed", len(w.events(p, "AddedInterface"))+len(w.events(p, "RemovedInterface")), 0)
	w.edit(p, "[]")
	w.changesTo(p)
	w.edit(p, `[{"name":"green","interface":"x1","mac":"02:00:00:00:00:21"}]`)
	w.changesTo(p, "x1")
	equal(t, "MAC", w.Links(p)["x1"].MAC, "02:00:00:00:00:21")
	w.Over(peer, p)
}

// TestAttachDelegates: networks of other plugins come and go at run time, and everything that they made goes with them.
func TestAttachDelegates(t *testing.T) {
	w := attachWorld(t, 1)
	w.NAD("mac", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1","capabilities":{"ips":true},"ipam":{"type":"static"}}`)
	w.NAD("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(filepath.Join(w.Nodes[0].Dir, "leases"), "10.71.0.0/24")))
	p := w.Attached(0, "web", `[{"name":"pair","interface":"p2p"}]`)
	w.edit(p, `[{"name":"mac","interface":"m1","ips":["192.0.2.7/24"]},{"name":"blue"},{"name":"pair","interface":"p2p"}]`)
	w.Eventually(func() error { return w.named(p, "m1", "net2", "p2p") })
	equal(t, "addresses of macvlan", w.Links(p)["m1"].Prefixes(), []string{"192.0.2.7/24"})
	equal(t, "addresses in the status", w.Status(p)[1].IPs, []string{"192.0.2.7"})
	w.Must(p.Check(w.Ctx))
	w.edit(p, `[{"name":"mac","interface":"m1","ips":["192.0.2.7/24"]}]`)
	w.Eventually(func() error { return w.named(p, "m1") })
	if files := w.Glob(filepath.Join(w.Nodes[0].Dir, "leases", "*", "10.71.*")); len(files) > 0 {
		t.Errorf("the lease of a network that the pod has no more is there: %q", files)
	}
	w.Must(p.Check(w.Ctx))
	w.Over(p)
}

// named reports whether a pod's network-status and links have these names.
func (w *world) named(p *lab.Pod, want ...string) error {
	var names []string
	for _, s := range w.Status(p)[1:] {
		names = append(names, s.Interface)
	}
	links, err := p.Links(w.Ctx)
	if err != nil {
		return err // a link has gone meanwhile
	}
	if !slices.Equal(names, want) || len(links) != len(want)+1 {
		return fmt.Errorf("%s has %q and %d links, not %q", p, names, len(links), want)
	}
	return nil
}

// TestAttachAway: edits that are made while the agent, NB or the program is away count by their last value.
func TestAttachAway(t *testing.T) {
	w := attachWorld(t, 1)
	n := w.Nodes[0]
	edits := func(p *lab.Pod) {
		w.edit(p, "blue,green@x1")
		w.edit(p, "blue,green@x1,six@x2")
		w.edit(p, "blue,six@x2")
	}
	w.part("agent", func(t *testing.T, w *world) {
		p := w.Attached(0, "late", "blue")
		w.Must(n.StopAgent(w.Ctx))
		edits(p)
		w.Must(n.StartAgent(w.Ctx))
		w.changesTo(p, "net1", "x2")
		w.eventTold(p, "AddedInterface", 1, "x2")
		w.Over(p)
	})
	w.part("program", func(t *testing.T, w *world) {
		p := w.Attached(0, "waits", "blue")
		w.Must(n.Attach.Stop(w.Ctx))
		edits(p)
		w.eventTold(p, "FailedAddingInterface", 1, "ovn-multinet-attach")
		w.Must(n.StartAttach(w.Ctx))
		w.changesTo(p, "net1", "x2")
		w.Over(p)
	})
	w.part("NB", func(t *testing.T, w *world) {
		p := w.Attached(0, "cut", "blue,green@x1")
		w.Must(w.NB.Stop(w.Ctx))
		w.edit(p, "blue,six@x2")
		w.eventTold(p, "FailedRemovingInterface", 1)
		w.Must(w.NB.Restart(w.Ctx))
		w.changesTo(p, "net1", "x2")
		w.Over(p)
	})
	w.part("until the pod is gone", func(t *testing.T, w *world) {
		p := w.Attached(0, "web", "blue")
		w.Must(n.Attach.Stop(w.Ctx))
		w.edit(p, "green")
		w.End(p)
		w.Must(n.StartAttach(w.Ctx))
		w.AsBefore()
	})
}

// TestAttachKilled: plugin, program and agent are killed at each point of a change. What the annotation says last is what
// is there, and nothing is left.
func TestAttachKilled(t *testing.T) {
	w := attachWorld(t, 1)
	n := w.Nodes[0]
	w.NAD("mac", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1","capabilities":{"ips":true},"ipam":{"type":"static"}}`)
	const before, after = `[{"name":"blue"},{"name":"six","interface":"x6"}]`,
		`[{"name":"blue"},{"name":"mac","interface":"m1","ips":["192.0.2.7/24"]},{"name":"green","interface":"x1"}]`
	for _, point := range []string{
		"removal-intended", "unwired", "release-answered", "removed", "change-received", "change-intended", "plan-received",
		"plan-written", "veth-made", "wired", "delegate-begun", "delegate-made", "bound", "changed",
	} {
		for _, last := range []string{after, before} {
			w.part(fmt.Sprintf("plugin at %s, then %.30s", point, last[18:]), func(t *testing.T, w *world) {
				p := w.Attached(0, "web", before)
				w.killedAt(p, point, after)
				w.Must(n.StartAttach(w.Ctx, failpoint.Env+"="))
				w.edit(p, last)
				names := []string{"net1", "m1", "x1"}
				if last == before {
					names = []string{"net1", "x6"}
				}
				w.Eventually(func() error { return errors.Join(w.named(p, names...), p.Check(w.Ctx)) })
				w.Over(p)
			})
		}
		w.part("plugin at "+point+", then DEL", func(t *testing.T, w *world) {
			p := w.Attached(0, "web", before)
			w.killedAt(p, point, after)
			w.Over(p)
			w.Must(n.StartAttach(w.Ctx, failpoint.Env+"="))
		})
	}
	for _, point := range []string{"nb-committed", "plan-made", "ovs-committed", "flows-installed", "unplugged", "released"} {
		w.part("agent at "+point, func(t *testing.T, w *world) {
			p := w.Attached(0, "web", before)
			ended, err := n.AcrossKill(w.Ctx, point, func() error { w.edit(p, after); return nil })
			if ended == nil {
				t.Error("the agent was not killed", err)
			}
			w.Eventually(func() error { return w.named(p, "net1", "m1", "x1") })
			w.Must(p.Check(w.Ctx))
			w.Over(p)
		})
	}
}

// killedAt edits a pod's annotation while the plugin is killed at a failpoint, and ends the program.
func (w *world) killedAt(p *lab.Pod, point, networks string) {
	n := p.Node
	log := filepath.Join(n.Dir, "attach.log")
	w.Must(n.Attach.Stop(w.Ctx))
	w.Must(n.StartAttach(w.Ctx, failpoint.Env+"="+point))
	w.edit(p, networks)
	w.Eventually(func() error {
		if !strings.Contains(string(w.Read(log)), "killed") {
			return errors.New("the plugin was not killed")
		}
		return nil
	})
	w.Must(n.Attach.Stop(w.Ctx))
	w.Must(os.Truncate(log, 0))
}

// TestAttachLost: an interface whose host-side veth somebody deleted is made again, with its address; one of a pod whose
// network namespace is gone is not.
func TestAttachLost(t *testing.T) {
	w := attachWorld(t, 1)
	peer := w.Attached(0, "peer", "blue")
	empty := w.Base
	w.Base = w.Snapshot()
	w.part("one of two", func(t *testing.T, w *world) {
		p := w.Attached(0, "two", "blue,six")
		stays := w.untouched(p, "net1", w.Links(peer)["net1"].IPs()[0])
		address := w.Links(p)["net2"].IPs()
		w.lose(p, "net2")
		w.eventTold(p, "InterfaceRestored", 1, "net2")
		w.changesTo(p, "net1", "net2")
		equal(t, "addresses of net2", w.Links(p)["net2"].IPs(), address)
		stays()
		w.Must(p.Check(w.Ctx))
		w.Over(p)
	})
	w.part("the only one", func(t *testing.T, w *world) {
		p := w.Attached(0, "only", "blue")
		w.lose(p, "net1")
		w.eventTold(p, "InterfaceRestored", 1, "net1")
		w.changesTo(p, "net1")
		w.MustReach(p, w.Links(peer)["net1"].IPs()...)
		w.Over(p)
	})
	w.part("the network namespace", func(t *testing.T, w *world) {
		p := w.Attached(0, "gone", "blue,six")
		w.Must(p.RemoveNetNS())
		w.untilUndone(p)
		w.Must(errors.Join(p.Del(w.Ctx), p.RemoveManifest()))
		w.AsBefore()
	})
	w.part("that of an older sandbox", func(t *testing.T, w *world) {
		p := w.Attached(0, "older", "blue,six")
		next := w.NewSandbox(p)
		w.Add(next)
		w.Must(p.RemoveNetNS())
		w.untilUndone(p)
		w.consistent(next, []string{"net1", "net2"})
		w.MustReach(next, w.Links(peer)["net1"].IPs()...)
		equal(t, "restored interfaces", len(w.events(p, "InterfaceRestored")), 0)
		w.edit(next, "blue")
		w.changesTo(next, "net1")
		w.Must(p.Del(w.Ctx))
		w.Over(next)
	})
	w.Base = empty
	w.Over(peer)
}

// lose deletes the host-side veth of an interface.
func (w *world) lose(p *lab.Pod, name string) {
	w.Exec(p.Node, "ip", "link", "del", agentapi.HostVeth(p.Sandbox, name))
}

// TestLostAndEdited: where running pods do not change, the owner is told of an edit, and of an interface that is lost.
func TestLostAndEdited(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, func(l *lab.Lab) {
		l.Nodes[0].AgentArgs = append(l.Nodes[0].AgentArgs, "--reconcile-period=2s")
	})
	p := w.Attached(0, "told", "blue,six")
	w.edit(p, "blue,six,green")
	w.eventTold(p, "NetworksNotChanged", 1, "delete the pod", "attach.enabled")
	w.edit(p, "blue,six")
	w.repair(p, "now")
	w.eventTold(p, "NetworksNotChanged", 2, "annotation ovn-multinet/repair", "attach.enabled")
	w.repair(p, "")
	w.lose(p, "net2")
	w.eventTold(p, "InterfaceLost", 1, "interface net2", "delete the pod")
	w.Over(p)
}
