package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestHerd attaches many pods at once on two nodes, and takes them away at once: every one is whole, no address is
// given twice, nothing is left.
// Conformance: C-82 C-83
func TestHerd(t *testing.T) {
	t.Parallel()
	const herd = 24
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	pods := make([]*lab.Pod, herd)
	for i := range pods {
		pods[i] = w.Pod(i%2, fmt.Sprintf("web-%d", i), "blue,green,six")
	}
	var all errgroup.Group
	for _, p := range pods {
		all.Go(func() error {
			_, err := p.Add(w.Ctx)
			return err
		})
	}
	w.Must(all.Wait())
	holder := map[string]string{}
	for _, p := range pods {
		w.consistent(p, []string{"net1", "net2", "net3"})
		for _, l := range w.Links(p) {
			for _, ip := range l.IPs() {
				if other := holder[ip]; other != "" {
					t.Errorf("%s and %s both have %s", p, other, ip)
				}
				holder[ip] = p.String()
			}
		}
	}
	for i, p := range pods[1:] {
		w.MustReach(p, w.Links(pods[i])["net2"].IPs()...)
	}
	for _, p := range pods {
		all.Go(func() error { return p.Close(w.Ctx) })
	}
	w.Must(all.Wait())
	w.AsBefore()
}

// TestAddAndDelAtOnce: a runtime that gives up an ADD deletes the sandbox while the ADD still runs. Whatever the
// order, the world is as before once both have ended and a last DEL has come.
// Conformance: N-144 C-78
func TestAddAndDelAtOnce(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	for i := range 8 {
		p := w.Pod(0, fmt.Sprintf("web-%d", i), "blue,green")
		prev, err := w.Pod(0, fmt.Sprintf("plain-%d", i), "").Add(w.Ctx)
		w.Must(err)
		var all errgroup.Group
		all.Go(func() error {
			_, err := p.Add(w.Ctx, lab.OnlyOurs(prev))
			return err
		})
		all.Go(func() error {
			// As early as there is something to delete.
			intent := filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0")
			if err := lab.Eventually(w.Ctx, func() error { _, err := os.Stat(intent); return err }); err != nil {
				return err
			}
			return p.Del(w.Ctx, lab.OnlyOurs(prev))
		})
		w.Must(all.Wait())
		equal(t, "links after a DEL that waited for its ADD", len(w.Links(p)), 0)
		w.Must(p.RemoveNetNS())
		w.Must(p.RemoveManifest())
	}
	for _, n := range w.Nodes {
		if left, err := os.ReadDir(filepath.Join(n.StateDir, "attached")); err != nil || len(left) > 0 {
			t.Errorf("journal of %s: %v, %v", n.Name, left, err)
		}
	}
	out := w.NBCtl("--bare", "--columns=name", "list", "Logical_Switch_Port")
	equal(t, "ports in NB", out, "")
}

// TestHerdWithoutOVNController: ovn-controller is stopped while more pods come than may wait for flows at a time. All
// of them succeed when it goes on.
func TestHerdWithoutOVNController(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	const herd = 20 // more than the agent's 16
	controller := w.Nodes[0].OVNController
	w.Must(controller.Pause())
	var all errgroup.Group
	pods := make([]*lab.Pod, herd)
	for i := range pods {
		pods[i] = w.Pod(0, fmt.Sprintf("web-%d", i), "blue")
	}
	for _, p := range pods { // after all sandboxes, because a pod's 30 s for flows begin with its OVS port
		all.Go(func() error {
			_, err := p.Add(w.Ctx)
			return err
		})
	}
	w.Eventually(func() error {
		names, err := w.Nodes[0].VSCtl(w.Ctx, "--bare", "--columns=name", "list", "Interface")
		if err != nil {
			return err
		}
		ports, added := len(strings.Fields(w.NBCtl("--bare", "--columns=_uuid", "list", "Logical_Switch_Port"))), 0
		for _, name := range strings.Fields(names) {
			if strings.HasPrefix(name, "mn") {
				added++
			}
		}
		if added > 16 {
			t.Errorf("%d pods have OVS ports without flows, want 16 at most", added)
		}
		if ports < herd || added < 16 {
			return fmt.Errorf("%d ports in NB and %d in Open vSwitch", ports, added)
		}
		return nil
	})
	w.Must(controller.Resume())
	w.Must(all.Wait())
	for _, p := range pods {
		w.consistent(p, []string{"net1"})
		all.Go(func() error { return p.Close(w.Ctx) })
	}
	w.Must(all.Wait())
	w.AsBefore()
}

// TestFlowsNotInstalled names who of OVN is behind.
// Conformance: C-50
func TestFlowsNotInstalled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		stop func(w *world) *lab.Process
		says string
	}{
		{"northd", func(w *world) *lab.Process { return w.Northd }, "ovn-northd is behind"},
		{"ovn-controller", func(w *world) *lab.Process { return w.Nodes[0].OVNController }, "ovn-controller of this node is behind"},
		{"ovs-vswitchd", func(w *world) *lab.Process { return w.Nodes[0].VSwitchd }, "Open vSwitch is behind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			impatient := func(_ *lab.Node, entry map[string]any) { entry["timeout"] = "4s" }
			w := newWorld(t, lab.Options{PluginConf: impatient}, nil)
			w.Must(c.stop(w).Pause())
			p := w.Pod(0, "web", "blue")
			w.refused(w.TryAdd(p), conf.CodeNoFlows, "shop/web/net1", c.says)
			if _, err := os.Stat(filepath.Join(w.Manifests, p.UID+".status.json")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pod has a network-status still: %v", err)
			}
			w.Must(errors.Join(c.stop(w).Resume(), p.Close(w.Ctx)))
			w.AsBefore()
		})
	}
}

// TestNoFlowsForAPodThatIsGone: who deletes a pod that waits for its flows waits no longer for them. Its ports are
// gone, too, while ovn-controller still hangs.
func TestNoFlowsForAPodThatIsGone(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	for name, gone := range map[string]func(*lab.Pod) error{
		"deleted": (*lab.Pod).RemoveManifest,
		"replaced": func(p *lab.Pod) error {
			other := *p
			other.UID = "another-pod-of-the-name"
			return other.WriteManifest()
		},
	} {
		w.part(name, func(t *testing.T, w *world) {
			controller := w.Nodes[0].OVNController
			w.Must(controller.Pause())
			p := w.Pod(0, "web", "blue,green")
			added := make(chan error, 1)
			go func() {
				_, err := p.Add(w.Ctx)
				added <- err
			}()
			plugged := func() (string, error) {
				return p.Node.VSCtl(w.Ctx, "get", "Interface", agentapi.HostVeth(p.Sandbox, "net2"), "external_ids:iface-id")
			}
			w.Eventually(func() error {
				_, err := plugged()
				return err
			})
			w.Must(gone(p))
			w.refused(<-added, conf.CodePodGone, "pod shop/web is")
			w.noPorts(p)
			w.Eventually(func() error {
				if _, err := plugged(); err == nil {
					return errors.New("its host end is in Open vSwitch still")
				}
				return nil
			})
			w.Must(errors.Join(controller.Resume(), p.Close(w.Ctx)))
			w.AsBefore()
		})
	}
}
