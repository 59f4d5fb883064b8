package kube

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// volatile are the node's own folders that are in a machine's memory.
var volatile = []string{"/run", "/tmp"}

// PowerOff is a node's loss of its power, as a machine's: all its processes are gone at once, pods' too, and with them its
// mounts, its network with all links, routes and rules, its control groups and what is below /run and /tmp. Its disk stays:
// the other folders of its own, and the OVS database.
func (n *Node) PowerOff(ctx context.Context) error {
	// The holder goes with all its children before the folders that they write to.
	for _, step := range []func(context.Context) error{n.Node.PowerOff, n.Node.LoseNetNS, n.loseMemory} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) loseMemory(context.Context) error {
	errs := []error{n.groups.remove()}
	for _, folder := range volatile {
		errs = append(errs, os.RemoveAll(n.OwnFolder(folder)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("empty the memory of %s: %w", n.Name, err)
	}
	return nil
}

// PowerOn boots a node after PowerOff, and returns when its daemons have been started, in no order but what each needs
// itself: Open vSwitch with ovn-controller on the one side, containerd and then kubelet, flanneld and kube-proxy on the
// other. kubelet has not looked at its pods by then.
func (n *Node) PowerOn(ctx context.Context) error {
	if err := n.MakeNetNS(ctx); err != nil {
		return err
	}
	var all errgroup.Group
	all.Go(func() error { return n.Node.PowerOn(ctx) })
	all.Go(func() error { return n.bootSystem(ctx) })
	return all.Wait()
}

func (n *Node) bootSystem(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		n.addDefaultRoute,
		func(context.Context) error { return errors.Join(n.groups.make(), n.makeOwnFolders()) },
		n.Holder.Restart, n.Containerd.Restart,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("boot %s: %w", n.Name, err)
		}
	}
	var all errgroup.Group
	for _, p := range []*lab.Process{n.Kubelet, n.KubeProxy, n.Flanneld} {
		all.Go(func() error { return p.Restart(ctx) })
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("boot %s: %w", n.Name, err)
	}
	return nil
}

// RebootOptions say what a reboot takes beside what every one does.
type RebootOptions struct {
	WipeOVS  bool              // the OVS database too; the boot sets Open vSwitch up anew
	WhileOff func(*Node) error // what happens to the disk of a node that is off; nil: nothing
}

// Reboot takes a node's power away and gives it back.
func (n *Node) Reboot(ctx context.Context, o RebootOptions) error {
	return n.cluster.Reboot(ctx, o, n)
}

// Reboot reboots nodes at once: all are off before the first is on again. The control plane and OVN's databases, which
// are on none of them, go on.
func (c *Cluster) Reboot(ctx context.Context, o RebootOptions, nodes ...*Node) error {
	var off, on errgroup.Group
	for _, n := range nodes {
		off.Go(func() error {
			err := n.PowerOff(ctx)
			if err == nil && o.WipeOVS {
				err = n.WipeOVS()
			}
			if err == nil && o.WhileOff != nil {
				err = o.WhileOff(n)
			}
			return err
		})
	}
	if err := off.Wait(); err != nil {
		return err
	}
	for _, n := range nodes {
		on.Go(func() error { return n.PowerOn(ctx) })
	}
	return on.Wait()
}
