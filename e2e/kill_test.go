package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// The points at which plugin and agent can be killed, in the order in which an ADD, or a DEL, passes them.
var (
	pluginAdd = []string{"intent-written", "plan-received", "plan-written", "veth-made", "wired", "bound"}
	pluginDel = []string{"unwired", "handed-over"}
	agentAdd  = []string{"nb-committed", "plan-made", "ovs-committed", "flows-installed", "status-written"}
	agentDel  = []string{"unplugged", "released"}
)

// TestPluginKilled kills the plugin with SIGKILL at each point. The runtime then deletes the sandbox, as it does
// after each failed ADD, and gives up, or tries the pod anew in another sandbox or in the same: nothing of the first
// attempt is left.
func TestPluginKilled(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	for _, point := range pluginAdd {
		w.part("ADD at "+point, func(t *testing.T, w *world) {
			p := w.Pod(0, "web", "blue,green,blue")
			w.killed(w.TryAdd(p, lab.WithEnv(failpoint.Env+"="+point)))
			retry := w.NewSandbox(p)
			w.Add(retry)
			w.Must(p.Del(w.Ctx)) // late: the second sandbox has the ports
			w.Must(p.RemoveNetNS())
			w.consistent(retry, []string{"net1", "net2", "net3"})
			w.Over(retry)
		})
		w.part("ADD at "+point+", given up", func(t *testing.T, w *world) {
			p := w.Pod(0, "web", "blue,green,blue")
			w.killed(w.TryAdd(p, lab.WithEnv(failpoint.Env+"="+point)))
			w.Over(p)
		})
		w.part("ADD at "+point+", again in the same sandbox", func(t *testing.T, w *world) {
			p := w.Pod(0, "web", "blue,green,blue")
			w.killed(w.TryAdd(p, lab.WithEnv(failpoint.Env+"="+point)))
			w.Del(p)
			w.Add(p)
			w.consistent(p, []string{"net1", "net2", "net3"})
			w.Over(p)
		})
	}
	for _, point := range append([]string{"release-answered"}, pluginDel...) { // which the version before does not have
		w.part("DEL at "+point, func(t *testing.T, w *world) {
			p := w.Attached(0, "web", "blue,green,blue")
			w.killed(p.Del(w.Ctx, lab.WithEnv(failpoint.Env+"="+point)))
			w.End(p)
			w.AsBefore()
		})
		w.part("DEL at "+point+", again in the same sandbox", func(t *testing.T, w *world) {
			p := w.Attached(0, "web", "blue,green,blue")
			w.killed(p.Del(w.Ctx, lab.WithEnv(failpoint.Env+"="+point)))
			w.Del(p)
			w.Add(p)
			w.consistent(p, []string{"net1", "net2", "net3"})
			w.Over(p)
		})
	}
	for _, point := range append([]string{"release-answered", "release-put"}, pluginDel...) {
		w.part("DEL at "+point+" without the agent", func(t *testing.T, w *world) {
			p := w.Attached(0, "web", "blue,green,blue")
			w.Must(p.Node.StopAgent(w.Ctx))
			w.killed(p.Del(w.Ctx, lab.WithEnv(failpoint.Env+"="+point)))
			w.End(p)
			w.Must(p.Node.StartAgent(w.Ctx)) // which finds what nobody could tell it
			w.AsBefore()
		})
	}
}

func (w *world) killed(err error) {
	if err == nil || !strings.Contains(err.Error(), "killed") {
		w.T.Fatalf("not killed at its failpoint: %v", err)
	}
}

// addAndDel is all of a pod's life.
func (w *world) addAndDel(p *lab.Pod) error {
	_, err := p.Add(w.Ctx)
	if err == nil {
		err = p.Del(w.Ctx)
	}
	return err
}

// TestAgentKilled kills the agent with SIGKILL at each point; it is started again without the failpoint, as its
// DaemonSet would. The plugin's call waits for it and succeeds.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	for _, point := range append(agentAdd, agentDel...) {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, lab.Options{}, nil)
			n := w.Nodes[0]
			p := w.Pod(0, "web", "blue,green,blue")
			ended, err := n.AcrossKill(w.Ctx, point, func() error { return w.addAndDel(p) })
			w.killed(ended)
			w.Must(err)
			w.Over(p)
		})
	}
}

// onSmallDisk gives the first node a small disk of its own for the plugin's state, and lets its delegates run.
func onSmallDisk(t *testing.T) *world {
	t.Helper()
	return newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		withDelegates(l)
		dir := l.Nodes[0].StateDir
		if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	})
}

// fill uses up the node's disk, and returns what frees it.
func (w *world) fill() (free func()) {
	path := filepath.Join(w.Nodes[0].StateDir, "filler")
	f, err := os.Create(path)
	w.Must(err)
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	w.Must(f.Close())
	if !errors.Is(err, unix.ENOSPC) {
		w.T.Fatalf("the disk is not full: %v", err)
	}
	return func() { w.Must(os.Remove(path)) }
}

// TestBoundaryFullDisk: on a full disk pods end, with the agent and without it and when the plugin is killed on the way, and
// new ones are refused before anything is made.
func TestBoundaryFullDisk(t *testing.T) {
	t.Parallel()
	w := onSmallDisk(t)
	log := w.recorderOn("rec", "")
	first, second := w.Attached(0, "first", "blue,rec,green"), w.Attached(0, "second", "blue,rec,green")
	third := w.Attached(0, "third", "blue,rec,green")
	late := w.Pod(0, "late", "blue,rec")
	free := w.fill()
	before := w.Snapshot()
	w.refused(w.TryAdd(late), conf.CodeTryAgain, "no space left on device", w.Nodes[0].StateDir)
	w.Must(late.Del(w.Ctx))
	if diff := before.Diff(w.Snapshot()); diff != "" {
		t.Errorf("the ADD that was refused left:\n%s", diff)
	}
	w.Must(first.Del(w.Ctx))
	w.noPorts(first)
	w.Must(w.Nodes[0].KillAgent())
	w.Must(second.Del(w.Ctx))
	for _, point := range []string{"unwired", "release-put"} {
		w.killed(third.Del(w.Ctx, lab.WithEnv(failpoint.Env+"="+point)))
	}
	w.Must(third.Del(w.Ctx))
	equal(t, "the journal", w.journalled(w.Nodes[0]), nil)
	w.Must(w.Nodes[0].StartAgent(w.Ctx))
	w.noPorts(second)
	w.noPorts(third)
	free()
	w.Add(late)
	w.End(late, first, second, third)
	commands, _ := w.calls(log)
	// Four ADDs and four DELs, and the one that is repeated after the first kill.
	equal(t, "calls of the other plugin", len(commands), 9)
	w.AsBefore()
}

// TestBoundaryRefusedBeforeLitter: a tenant's network whose plugin always fails leaves what the limit of a pod allows, and
// pods without such networks are not refused.
func TestBoundaryRefusedBeforeLitter(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	w.recorderOn("bad", `,"fail":{"ADD":{"code":119,"msg":"no"},"DEL":{"code":119,"msg":"no"}}`)
	p := w.Pod(0, "web", "blue,bad")
	for range 20 {
		_, err := p.Add(w.Ctx)
		if err == nil {
			t.Fatal("it is attached")
		}
		_ = p.Del(w.Ctx)
		w.Must(p.RemoveNetNS())
		next := w.NewSandbox(p)
		p = next
	}
	entries := 0
	for _, name := range w.journalled(w.Nodes[0]) {
		if _, ok := journal.ParseID(name); ok {
			entries++
		}
	}
	equal(t, "entries", entries, journal.MaxFailedOfPod)
	w.refused(w.TryAdd(p), conf.CodeDelegateFailed, "pod shop/web has 4 earlier sandboxes with a failed delegate DEL; a pod may have at most 4")
	w.noPorts(p)
	w.End(p, w.Attached(0, "other", "blue"))
}

// TestPower: a node of the lab loses what a machine without power loses, and a boot brings back what a boot brings back:
// Open vSwitch with its database, and the agent only if the agent ran.
func TestPower(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	n := w.Nodes[0]
	vm, err := n.NewMachine(w.Ctx, "vm", "02:00:00:00:00:01")
	w.Must(err)
	guest, err := vm.Start(w.Ctx, "sleep", "1000")
	w.Must(err)
	w.VSCtl(n, "set", "Bridge", "br-int", "external_ids:mark=kept")
	for round := range 3 {
		agent := round < 2
		if !agent {
			w.Must(n.StopAgent(w.Ctx))
		}
		daemons := []*lab.Process{n.OVSDB, n.VSwitchd, n.OVNController}
		w.losesPower(n, append(daemons, n.Agent, guest))
		var old []int
		for _, p := range daemons {
			old = append(old, p.Pid())
		}
		w.Must(n.PowerOn(w.Ctx))
		for i, p := range daemons {
			if !p.Running() || p.Pid() == old[i] {
				t.Errorf("%s after the boot: running %t, pid %d, had %d", p.Name, p.Running(), p.Pid(), old[i])
			}
		}
		equal(t, "agent and guest after the boot", []bool{n.Agent.Running(), guest.Running()}, []bool{agent, false})
		equal(t, "NICs with a carrier after the boot", w.carriers(n), []string{"eth0", "eth1"})
		equal(t, "mark in the OVS database", w.VSCtl(n, "get", "Bridge", "br-int", "external_ids:mark"), "kept")
		if out := w.Exec(n, "ip", "addr", "show", "dev", "br-phy"); !strings.Contains(out, n.EncapIP.String()+"/") {
			t.Errorf("br-phy lacks %s: %s", n.EncapIP, out)
		}
		w.NBCtl("--timeout=120", "--wait=hv", "ls-add", fmt.Sprintf("after%d", round)) // ovn-controller works
	}
	if err := n.PowerOn(w.Ctx); err == nil || !strings.Contains(err.Error(), "power node1 on: start node1/ovsdb-server: it runs already") {
		t.Errorf("power for a node that runs: %v", err)
	}
}

// losesPower powers a node off, and finds none of its processes, carriers, bridges and sockets.
func (w *world) losesPower(n *lab.Node, processes []*lab.Process) {
	ready := agentapi.ReadyMarker(n.AgentSocket)
	w.Must(os.WriteFile(ready, nil, 0o644))
	w.Must(n.PowerOff(w.Ctx))
	for _, p := range processes {
		if p.Running() {
			w.T.Errorf("%s runs without power", p.Name)
		}
	}
	equal(w.T, "NICs with a carrier without power", w.carriers(n), nil)
	equal(w.T, "bridges without power", w.linksOf(n, "br-phy"), nil)
	for _, path := range []string{n.AgentSocket, ready} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			w.T.Errorf("%s outlived the loss of power: %v", path, err)
		}
	}
}

// carriers are the node's NICs that have one.
func (w *world) carriers(n *lab.Node) (names []string) {
	for _, name := range []string{"eth0", "eth1"} {
		if strings.Contains(w.Exec(n, "ip", "link", "show", "dev", name), "LOWER_UP") {
			names = append(names, name)
		}
	}
	return names
}
