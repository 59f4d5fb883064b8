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
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestNetworkDeletedUnderPods: a network that is deleted takes no new pods, serves those it has, can come back, and
// goes with the last of them.
func TestNetworkDeletedUnderPods(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	const config = `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd20::/64","router":"main"}`
	w.network("doomed", config)
	a, b := w.Attached(0, "a", "doomed"), w.Attached(1, "b", "doomed")
	ping := w.pinging(a, w.Links(b)["net1"].IPs()[0])
	late := w.Pod(0, "late", "doomed")
	for range 2 {
		w.removeNAD("doomed")
		w.fenced("shop/doomed")
		w.controllerSays("pod shop/a")
		w.controllerSays("pod shop/b")
		_, err := late.Add(w.Ctx)
		w.clean(err)
		w.Must(late.Del(w.Ctx))
		ping.goesOn()

		w.network("doomed", config)
		c := w.Attached(0, "c", "doomed")
		w.consistent(c, []string{"net1"})
		w.MustReach(c, w.Links(b)["net1"].IPs()...)
		w.End(c)
	}
	w.removeNAD("doomed")
	w.fenced("shop/doomed")
	ping.stop()
	w.End(late, a)
	w.settled()
	w.consistent(b, []string{"net1"})
	w.MustReach(b, "10.20.0.1", "fd20::1")
	w.End(b)
	w.endNetworks("doomed")
	w.AsBefore()
}

// fenced waits until a network that is there takes no new ports.
func (w *world) fenced(network string) {
	w.Eventually(func() error { return w.isFenced(network) })
}

func (w *world) isFenced(network string) error {
	accepted := w.accepted(network)
	if accepted == nil {
		return fmt.Errorf("network %s does not exist", network)
	}
	for key := range accepted {
		if strings.HasPrefix(key, ovndb.AcceptedPrefix) {
			return fmt.Errorf("network %s takes new ports still", network)
		}
	}
	return nil
}

func (w *world) isGone(network string) error {
	switches, err := w.rows("find", "Logical_Switch", "name="+network)
	if err != nil || switches[network] != nil {
		return errors.Join(err, fmt.Errorf("network %s has its logical switch still", network))
	}
	return nil
}

// TestNetworkDeletedBeforeItsPort deletes the network when the agent has decided on the port and not written it yet.
func TestNetworkDeletedBeforeItsPort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		inUse   bool
		deleted func(w *world, network string) error
	}{
		{"with the logical switch", false, (*world).isGone},
		{"with another pod on it", true, (*world).isFenced},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newCounted(t)
			w.network("doomed", `{"type":"ovn-multinet","subnets":"10.20.0.0/24"}`)
			var others []*lab.Pod
			if c.inUse {
				others = append(others, w.Attached(0, "other", "doomed"))
			}
			p := w.Pod(0, "web", "doomed")
			deleted := errors.New("the ADD wrote nothing")
			w.nb.Before(func(t ovndbtest.Transact) {
				if t.Writes && deleted != nil {
					deleted = errors.Join(w.RemoveManifest(labtest.NADFile("doomed")), lab.Eventually(w.Ctx, func() error { return c.deleted(w.world, "shop/doomed") }))
				}
			})
			_, err := p.Add(w.Ctx)
			w.nb.Before(nil)
			w.Must(deleted)
			w.clean(err)
			equal(t, "links of a pod that got no port", len(w.Links(p)), 1)
			w.End(append(others, p)...)
			w.endNetworks("doomed")
			w.AsBefore()
		})
	}
}

// TestNetworkDeletedDuringAdd deletes networks while pods are attached to them, at different moments: each attachment
// ends with a clean error or is whole, port and all.
func TestNetworkDeletedDuringAdd(t *testing.T) {
	t.Parallel()
	const races = 20
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	moments := []func(p *lab.Pod) error{
		func(*lab.Pod) error { return nil },
		func(p *lab.Pod) error { // the intent is written
			_, err := os.Stat(filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0"))
			return err
		},
		func(p *lab.Pod) error { // the port is written
			_, err := w.Lab.NBCtl(w.Ctx, "get", "Logical_Switch_Port", p.String()+"/net1", "_uuid")
			return err
		},
		func(p *lab.Pod) error { // the host end is plugged
			_, err := p.Node.VSCtl(w.Ctx, "get", "Interface", agentapi.HostVeth(p.Sandbox, "net1"), "_uuid")
			return err
		},
	}
	var networks []string
	for i := range races {
		networks = append(networks, fmt.Sprintf("race-%d", i))
		w.NAD(networks[i], fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.20.%d.0/24"}`, i))
	}
	for i, name := range networks {
		w.inForce(name, fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.20.%d.0/24"}`, i))
	}
	// One half of the networks has a pod already.
	peer := w.Attached(0, "peer", strings.Join(networks[:races/2], ","))
	pods, failed := make([]*lab.Pod, races), make([]error, races)
	var all errgroup.Group
	for i, name := range networks {
		pods[i] = w.Pod(i%2, "web-"+name, name)
		all.Go(func() error {
			_, failed[i] = pods[i].Add(w.Ctx)
			return nil
		})
		all.Go(func() error {
			err := lab.Eventually(w.Ctx, func() error { return moments[i%len(moments)](pods[i]) })
			return errors.Join(err, w.RemoveManifest(labtest.NADFile(name)))
		})
	}
	w.Must(all.Wait())
	for i, p := range pods {
		if failed[i] != nil {
			w.clean(failed[i])
			if i%len(moments) >= 2 {
				t.Errorf("%s had its port when the network was deleted: %v", p, failed[i])
			}
			continue
		}
		w.consistent(p, []string{"net1"})
		if i < races/2 {
			w.MustReach(p, w.Links(peer)[fmt.Sprintf("net%d", i+1)].IPs()...)
		}
	}
	w.End(append(pods, peer)...)
	w.endNetworks(networks...)
	w.AsBefore()
}
