package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// folder is a second folder of manifests beside the lab's.
func (w *world) folder(name string) string {
	dir := filepath.Join(w.Dir, name)
	w.Must(os.Mkdir(dir, 0o755))
	return dir
}

// copyManifests puts files of the lab's folder into another.
func (w *world) copyManifests(dir, pattern string) {
	files := w.Glob(filepath.Join(w.Manifests, pattern))
	for _, f := range files {
		w.Must(os.WriteFile(filepath.Join(dir, filepath.Base(f)), []byte(read(w.T, f)), 0o644))
	}
}

func (w *world) identity(dir string) string {
	return strings.TrimSpace(read(w.T, filepath.Join(dir, ".cluster-id")))
}

// exchangeAgent has another agent in the place of a node's, with those arguments beside the lab's own.
func (w *world) exchangeAgent(n *lab.Node, args ...string) {
	w.Must(n.StopAgent(w.Ctx))
	n.Agent, n.AgentArgs = nil, args
	w.Must(n.StartAgent(w.Ctx))
}

// owns waits until NB belongs to a cluster.
func (w *world) owns(id string) {
	w.Eventually(func() error {
		out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=external_ids", "find", "Copp", "name=\"ovn-multinet cluster\"")
		if err == nil && !slices.Contains(strings.Fields(out), "ovn-multinet/cluster="+id) {
			err = fmt.Errorf("the owner of NB is %s, want %s", out, id)
		}
		return err
	})
}

// TestBoundaryTwoFoldersOnOneNB: the controller and an agent of a second folder of manifests, which knows no pod of the
// first, on the first one's NB. They touch nothing, and say why; after an adoption they work.
func TestBoundaryTwoFoldersOnOneNB(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	stays, peer := w.Attached(0, "stays", "green,blue"), w.Attached(1, "peer", "green")
	rows := [2]portRow{w.portRow(stays, "net1"), w.portRow(peer, "net1")}
	ping := w.pinging(peer, w.Links(stays)["net1"].IPs()[0])
	w.owns(w.identity(w.Manifests))
	late := w.Pod(1, "late", "green")

	other := w.folder("other")
	before := w.Snapshot()
	args := w.ControllerArgs
	w.ControllerArgs = []string{"--manifests", other, quick}
	second, err := w.RunController(w.Ctx, "second")
	w.Must(err)
	one, two := w.identity(w.Manifests), w.identity(other)
	w.says(second, "NB belongs to cluster "+one+", this controller is of cluster "+two)
	w.says(second, "--adopt-cluster="+one)
	w.copyManifests(other, "*.yaml")
	w.exchangeAgent(w.Nodes[1], "--manifests", other)
	w.refused(w.TryAdd(late), conf.CodeTryAgain, "NB belongs to cluster "+one+", this agent is of cluster "+two)
	w.Del(late)
	equal(t, "what the others have done", before.Diff(w.Snapshot()), "")
	ping.goesOn()

	// The second takes the place of the first, which is no more.
	w.Must(second.Stop(w.Ctx))
	w.Must(w.StopController(w.Ctx))
	for _, name := range []string{"pod.shop.stays.yaml", "pod.shop.peer.yaml"} {
		w.Must(os.Remove(filepath.Join(other, name)))
	}
	w.ControllerArgs = []string{"--manifests", other, quick, "--adopt-cluster", one}
	second, err = w.RunController(w.Ctx, "second-adopts")
	w.Must(err)
	w.owns(two)
	w.Add(late)
	w.MustReach(late, w.Links(stays)["net1"].IPs()[0])
	equal(t, "whose port it is", w.portRow(late, "net1").ExternalIDs["ovn-multinet/cluster"], two)
	gone := w.Pod(1, "gone", "green")
	w.copyManifests(other, "pod.shop.gone.yaml")
	w.Add(gone)
	w.Must(w.Nodes[1].KillAgent()) // so that the controller has to look for what it leaves
	w.Must(os.Remove(filepath.Join(other, "pod.shop.gone.yaml")))
	w.noPorts(gone)
	equal(t, "ports of the first one's pods", [2]portRow{w.portRow(stays, "net1"), w.portRow(peer, "net1")}, rows)
	ping.goesOn()

	// And back.
	w.Must(second.Stop(w.Ctx))
	w.ControllerArgs = append(args, "--adopt-cluster", two)
	w.Controller = nil
	w.Must(w.StartController(w.Ctx))
	w.owns(one)
	w.exchangeAgent(w.Nodes[1])
	w.Must(w.Announced(w.Ctx))
	ping.stop()
	w.Over(stays, peer, late, gone)
}

// TestTwoControllers: of two on one folder one leads, and the other takes over when it is killed.
func TestTwoControllers(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	second, err := w.RunController(w.Ctx, "second")
	w.Must(err)
	w.says(second, "waiting")
	leads := func(p *lab.Process) bool { return strings.Contains(read(t, p.LogPath()), "msg=leading") }
	equal(t, "who leads: the first, the second", []bool{leads(w.Controller), leads(second)}, []bool{true, false})

	w.network("one", `{"type":"ovn-multinet","subnets":"10.20.1.0/24","router":"main","routes":[{"dst":"10.20.2.0/24"}]}`)
	p := w.Attached(0, "web", "one")
	before := w.written()
	w.Must(w.KillController())
	w.network("two", `{"type":"ovn-multinet","subnets":"10.20.2.0/24","router":"main"}`)
	equal(t, "the second leads", leads(second), true)
	if made := strings.Join(w.written()[len(before):], "\n"); !strings.Contains(made, "shop/two") || strings.Contains(made, "shop/one") {
		t.Errorf("the second controller should have written network shop/two alone:\n%s", made)
	}
	w.MustReach(p, "10.20.1.1", "10.20.2.1")

	// The one that comes back waits; what goes on is the second's work.
	w.Must(w.StartController(w.Ctx))
	w.says(w.Controller, "msg=waiting")
	w.End(p)
	w.endNetworks("one", "two")
	equal(t, "times that the first led", strings.Count(read(t, w.Controller.LogPath()), "msg=leading"), 1)
	w.AsBefore()
}

// TestManyNetworks makes 500 networks at once, of which 200 have both families and hang on four routers, and then has
// another controller look at them all: it writes nothing.
func TestManyNetworks(t *testing.T) {
	t.Parallel()
	const all, routers = 500, 4
	w := newWorld(t, lab.Options{}, nil)
	names, configs, file := make([]string, all), make([]string, all), strings.Builder{}
	for i := range all {
		names[i] = fmt.Sprintf("many-%d", i)
		configs[i] = fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.%d.%d.0/24"}`, 32+i/256, i%256)
		if i < 200 {
			configs[i] = fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.%d.%d.0/24,fd00:%x::/64","router":"r%d","routes":[{"dst":"10.32.0.0/14"}]}`,
				32+i/256, i%256, i+1, i%routers)
		}
		fmt.Fprintf(&file, "---\n%s", labtest.Manifest(names[i], configs[i]))
	}
	w.Must(w.WriteManifest("many.yaml", file.String()))
	w.Must(lab.Eventually(w.Ctx, func() error {
		for _, name := range names {
			if state, ok := w.state(name); !ok || !state.Ready {
				return fmt.Errorf("network %s is not ready: %+v", name, state)
			}
		}
		return nil
	}))
	rows, err := w.rows("list", "Copp")
	w.Must(err)
	for i, name := range names {
		n, err := netmodel.ParseNetwork("shop", name, []byte(configs[i]))
		w.Must(err)
		equal(t, "revision of "+n.ID(), rows[acceptedRow(n.ID())][ovndb.AcceptedPrefix+n.ID()], n.Revision())
	}
	out := w.NBCtl("--bare", "--columns=ports", "list", "Logical_Router")
	equal(t, "ports on the routers", len(strings.Fields(out)), 200)
	a, b := w.Attached(0, "a", names[0]), w.Attached(0, "b", names[196])
	w.MustReach(a, w.Links(b)["net1"].IPs()[0])
	w.End(a, b)

	w.settled()
	before := w.written()
	w.Must(w.KillController())
	w.Must(w.StartController(w.Ctx))
	w.settled()
	w.nothingWritten(before)

	w.Must(w.RemoveManifest("many.yaml"))
	w.AsBefore()
	for _, name := range names {
		if _, ok := w.state(name); ok {
			t.Errorf("the state of %s is left", name)
		}
	}
}
