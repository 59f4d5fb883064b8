package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/plan"
)

// PowerOff is a node's loss of its power: its NICs lose their carrier and all that ran on it is gone at once, without
// a word to anybody. Its files stay, but for what is below /run on a real node: the agent's socket and its ready file.
// Of what a kernel loses the bridges' links go; namespaces of pods and machines stay, and so do the addresses and routes of
// the NICs, which a boot brings back anyway.
func (n *Node) PowerOff(context.Context) error {
	err := n.setCarrier(false)
	n.agentRan = n.agentRan || n.Agent != nil && n.Agent.Running()
	var all errgroup.Group
	for _, p := range n.processes() {
		all.Go(p.Kill)
	}
	errs := []error{err, all.Wait(), n.Do(deleteTaps)}
	for _, path := range []string{n.AgentSocket, plan.ReadyMarker(n.AgentSocket)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("power %s off: %w", n.Name, err)
	}
	return nil
}

// deleteTaps deletes the links of OVS's bridges, which outlive ovs-vswitchd, but no kernel.
func deleteTaps() error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range links {
		if link.Type() == "tuntap" {
			errs = append(errs, netlink.LinkDel(link))
		}
	}
	return errors.Join(errs...)
}

// PowerOn boots a node after PowerOff: its NICs, its OVS with the database as it was, ovn-controller until it is
// connected to SB, and the agent if it ran.
func (n *Node) PowerOn(ctx context.Context) error {
	steps := []func(context.Context) error{
		func(context.Context) error { return n.setCarrier(true) },
		n.OVSDB.start, n.VSwitchd.start, n.addTunnelEndpoint, n.OVNController.start,
		func(ctx context.Context) error {
			return Eventually(ctx, func() error { return n.OVNController.connectedTo(sbPort) })
		},
	}
	if n.agentRan {
		steps = append(steps, func(ctx context.Context) error { return n.StartAgent(ctx) })
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return fmt.Errorf("power %s on: %w", n.Name, err)
		}
	}
	n.agentRan = false
	return nil
}

// processes are all that were started on the node, also in its pods and machines: they log into its folder.
func (n *Node) processes() []*Process {
	n.lab.mu.Lock()
	defer n.lab.mu.Unlock()
	var ours []*Process
	for _, p := range n.lab.procs {
		if strings.HasPrefix(p.log, n.Dir+string(os.PathSeparator)) {
			ours = append(ours, p)
		}
	}
	return ours
}

// setCarrier takes the other ends of the node's cables down or up.
func (n *Node) setCarrier(up bool) error {
	set := netlink.LinkSetDown
	if up {
		set = netlink.LinkSetUp
	}
	ends := map[string]string{nodesPort(n.Index): n.lab.fabric, underlayPort(n.Index): n.lab.fabric}
	if n.lab.tor != nil {
		ends[n.trunk()] = n.lab.tor.netns
	}
	var errs []error
	for name, netns := range ends {
		errs = append(errs, inNetNS(netns, func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return fmt.Errorf("find link %s: %w", name, err)
			}
			return set(link)
		}))
	}
	return errors.Join(errs...)
}
