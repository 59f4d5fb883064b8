package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		pods[i] = w.pod(i%2, fmt.Sprintf("web-%d", i), "blue,green,six")
	}
	var all errgroup.Group
	for _, p := range pods {
		all.Go(func() error {
			_, err := p.Add(w.ctx)
			return err
		})
	}
	w.must(all.Wait())
	holder := map[string]string{}
	for _, p := range pods {
		w.consistent(p, []string{"net1", "net2", "net3"})
		for _, l := range w.links(p) {
			for _, ip := range l.IPs() {
				if other := holder[ip]; other != "" {
					t.Errorf("%s and %s both have %s", p, other, ip)
				}
				holder[ip] = p.String()
			}
		}
	}
	for i, p := range pods[1:] {
		w.mustReach(p, w.links(pods[i])["net2"].IPs()...)
	}
	for _, p := range pods {
		all.Go(func() error { return p.Close(w.ctx) })
	}
	w.must(all.Wait())
	w.asBefore()
}

// TestAddAndDelAtOnce: a runtime that gives up an ADD deletes the sandbox while the ADD still runs. Whatever the
// order, the world is as before once both have ended and a last DEL has come.
// Conformance: N-144 C-78
func TestAddAndDelAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	for i := range 8 {
		p := w.pod(0, fmt.Sprintf("web-%d", i), "blue,green")
		prev, err := w.pod(0, fmt.Sprintf("plain-%d", i), "").Add(w.ctx)
		w.must(err)
		var all errgroup.Group
		all.Go(func() error {
			_, err := p.Add(w.ctx, lab.OnlyOurs(prev))
			return err
		})
		all.Go(func() error {
			// As early as there is something to delete.
			intent := filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0")
			if err := lab.Eventually(w.ctx, func() error { _, err := os.Stat(intent); return err }); err != nil {
				return err
			}
			return p.Del(w.ctx, lab.OnlyOurs(prev))
		})
		w.must(all.Wait())
		equal(t, "links after a DEL that waited for its ADD", len(w.links(p)), 0)
		w.must(p.RemoveNetNS())
		w.must(p.RemoveManifest())
	}
	for _, n := range w.Nodes {
		if left, err := os.ReadDir(filepath.Join(n.StateDir, "attached")); err != nil || len(left) > 0 {
			t.Errorf("journal of %s: %v, %v", n.Name, left, err)
		}
	}
	out, err := w.NBCtl(w.ctx, "--bare", "--columns=name", "list", "Logical_Switch_Port")
	w.must(err)
	equal(t, "ports in NB", out, "")
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
			w.must(c.stop(w).Pause())
			p := w.pod(0, "web", "blue")
			_, err := p.Add(w.ctx)
			w.refused(err, conf.CodeNoFlows, "shop/web/net1", c.says)
			w.must(errors.Join(c.stop(w).Resume(), p.Close(w.ctx)))
			w.asBefore()
		})
	}
}

// TestNoFlowsForAPodThatIsGone: who deletes a pod that waits for its flows waits no longer for them. Its ports are
// gone, too, while ovn-controller still hangs.
func TestNoFlowsForAPodThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	for name, gone := range map[string]func(*lab.Pod) error{
		"deleted": (*lab.Pod).RemoveManifest,
		"replaced": func(p *lab.Pod) error {
			other := *p
			other.UID = "another-pod-of-the-name"
			return other.WriteManifest()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.sub(t)
			controller := w.Nodes[0].OVNController
			w.must(controller.Pause())
			p := w.pod(0, "web", "blue,green")
			added := make(chan error, 1)
			go func() {
				_, err := p.Add(w.ctx)
				added <- err
			}()
			plugged := func() (string, error) {
				return p.Node.VSCtl(w.ctx, "get", "Interface", agentapi.HostVeth(p.Sandbox, "net2"), "external_ids:iface-id")
			}
			w.eventually(func() error {
				_, err := plugged()
				return err
			})
			w.must(gone(p))
			w.refused(<-added, conf.CodePodGone, "pod shop/web is")
			w.noPorts(p)
			w.eventually(func() error {
				if _, err := plugged(); err == nil {
					return errors.New("its host end is in Open vSwitch still")
				}
				return nil
			})
			w.must(errors.Join(controller.Resume(), p.Close(w.ctx)))
			w.asBefore()
		})
	}
}
