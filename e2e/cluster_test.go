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
)

// folder is a second folder of manifests beside the lab's.
func (w *world) folder(name string) string {
	w.t.Helper()
	dir := filepath.Join(w.Dir, name)
	w.must(os.Mkdir(dir, 0o755))
	return dir
}

// copyManifests puts files of the lab's folder into another.
func (w *world) copyManifests(dir, pattern string) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.Manifests, pattern))
	w.must(err)
	for _, f := range files {
		w.must(os.WriteFile(filepath.Join(dir, filepath.Base(f)), []byte(read(w.t, f)), 0o644))
	}
}

func (w *world) identity(dir string) string {
	w.t.Helper()
	return strings.TrimSpace(read(w.t, filepath.Join(dir, ".cluster-id")))
}

// exchangeAgent has another agent in the place of a node's, with those arguments beside the lab's own.
func (w *world) exchangeAgent(n *lab.Node, args ...string) {
	w.t.Helper()
	w.must(n.StopAgent(w.ctx))
	n.Agent, n.AgentArgs = nil, args
	w.must(n.StartAgent(w.ctx))
}

// owns waits until NB belongs to a cluster.
func (w *world) owns(id string) {
	w.t.Helper()
	w.eventually(func() error {
		out, err := w.NBCtl(w.ctx, "--bare", "--columns=external_ids", "find", "Copp", "name=\"ovn-multinet cluster\"")
		if err == nil && !slices.Contains(strings.Fields(out), "ovn-multinet/cluster="+id) {
			err = fmt.Errorf("the owner of NB is %s, want %s", out, id)
		}
		return err
	})
}

// TestBoundaryTwoFoldersOnOneNB: the controller and an agent of a second folder of manifests, which knows no pod of the
// first, on the first one's NB. They touch nothing, and say why; after an adoption they work.
func TestBoundaryTwoFoldersOnOneNB(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	stays, peer := w.attached(0, "stays", "green,blue"), w.attached(1, "peer", "green")
	rows := [2]portRow{w.portRow(stays, "net1"), w.portRow(peer, "net1")}
	ping := w.pinging(peer, w.links(stays)["net1"].IPs()[0])
	w.owns(w.identity(w.Manifests))
	late := w.pod(1, "late", "green")

	other := w.folder("other")
	before := w.snapshot()
	args := w.ControllerArgs
	w.ControllerArgs = []string{"--manifests", other, quick}
	second, err := w.RunController(w.ctx, "second")
	w.must(err)
	one, two := w.identity(w.Manifests), w.identity(other)
	w.says(second, "NB belongs to cluster "+one+", this controller is of cluster "+two)
	w.says(second, "--adopt-cluster="+one)
	w.copyManifests(other, "*.yaml")
	w.exchangeAgent(w.Nodes[1], "--manifests", other)
	_, err = late.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "NB belongs to cluster "+one+", this agent is of cluster "+two)
	w.del(late)
	equal(t, "what the others have done", before.Diff(w.snapshot()), "")
	ping.goesOn()

	// The second takes the place of the first, which is no more.
	w.must(second.Stop(w.ctx))
	w.must(w.StopController(w.ctx))
	for _, name := range []string{"pod.shop.stays.yaml", "pod.shop.peer.yaml"} {
		w.must(os.Remove(filepath.Join(other, name)))
	}
	w.ControllerArgs = []string{"--manifests", other, quick, "--adopt-cluster", one}
	second, err = w.RunController(w.ctx, "second-adopts")
	w.must(err)
	w.owns(two)
	w.add(late)
	w.mustReach(late, w.links(stays)["net1"].IPs()[0])
	equal(t, "whose port it is", w.portRow(late, "net1").ExternalIDs["ovn-multinet/cluster"], two)
	gone := w.pod(1, "gone", "green")
	w.copyManifests(other, "pod.shop.gone.yaml")
	w.add(gone)
	w.must(w.Nodes[1].KillAgent()) // so that the controller has to look for what it leaves
	w.must(os.Remove(filepath.Join(other, "pod.shop.gone.yaml")))
	w.noPorts(gone)
	equal(t, "ports of the first one's pods", [2]portRow{w.portRow(stays, "net1"), w.portRow(peer, "net1")}, rows)
	ping.goesOn()

	// And back.
	w.must(second.Stop(w.ctx))
	w.ControllerArgs = append(args, "--adopt-cluster", two)
	w.Controller = nil
	w.must(w.StartController(w.ctx))
	w.owns(one)
	w.exchangeAgent(w.Nodes[1])
	w.must(w.Announced(w.ctx))
	ping.stop()
	w.end(stays, peer, late, gone)
	w.asBefore()
}
