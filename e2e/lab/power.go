package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
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
	for _, path := range []string{n.AgentSocket, agentapi.ReadyMarker(n.AgentSocket)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("power %s off: %w", n.Name, err)
	}
	return nil
}

// LoseNetNS takes away, of a node without power, what a kernel and /run lose beside what PowerOff does: the network
// namespace with all links, addresses, routes and rules, and the sockets of OVS's folder. It is for a node whose pods are
// not the lab's, without an outside world; MakeNetNS has to follow before PowerOn.
func (n *Node) LoseNetNS(ctx context.Context) error {
	// Deleted by their other ends, the NICs are gone at once: the kernel takes its time with a namespace.
	errs := []error{inNetNS(n.lab.fabric, func() error {
		return errors.Join(deleteLink(nodesPort(n.Index)), deleteLink(underlayPort(n.Index)))
	})}
	if n.lab.tor != nil {
		errs = append(errs, n.lab.tor.unplug(ctx, n.trunk()))
	}
	errs = append(errs, n.lab.removeNetNS(n.NetNS))
	dir := filepath.Dir(n.OVSSocket)
	entries, err := os.ReadDir(dir)
	errs = append(errs, err)
	for _, e := range entries {
		if e.Name() != ovsDB {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take the network of %s away: %w", n.Name, err)
	}
	return nil
}

// MakeNetNS gives a node that has lost its network namespace a new one, by the same path and with the same NICs.
func (n *Node) MakeNetNS(ctx context.Context) error {
	_, err := n.lab.makeNetNS(n.Name)
	for _, step := range []func(context.Context) error{n.plugNICs, n.forward} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("make a network for %s: %w", n.Name, err)
	}
	return nil
}

// WipeOVS deletes the OVS database of a node without power. Absent is fine.
func (n *Node) WipeOVS() error {
	err := os.Remove(filepath.Join(filepath.Dir(n.OVSSocket), ovsDB))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("wipe the OVS database of %s: %w", n.Name, err)
	}
	return nil
}

// bootOVSDB starts the database; one that was wiped is made and filled as at the node's first boot.
func (n *Node) bootOVSDB(ctx context.Context) error {
	dir := filepath.Dir(n.OVSSocket)
	_, err := os.Stat(filepath.Join(dir, ovsDB))
	if err == nil {
		return n.OVSDB.start(ctx)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return createOVSDB(ctx, dir) }, n.OVSDB.start, n.configureOVS,
	} {
		if err := step(ctx); err != nil {
			return err
		}
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

// PowerOn boots a node after PowerOff: its NICs, its OVS with the database as it was or, after WipeOVS, with a new one,
// ovn-controller until it is connected to SB, and the agent if it ran.
func (n *Node) PowerOn(ctx context.Context) error {
	steps := []func(context.Context) error{
		func(context.Context) error { return n.setCarrier(true) },
		n.bootOVSDB, n.VSwitchd.start, n.addTunnelEndpoint, n.OVNController.start,
		func(ctx context.Context) error {
			return Eventually(ctx, func() error { return n.OVNController.connectedTo(sbPort) })
		},
	}
	if n.lab.withoutOVN {
		steps = append(steps[:1], n.addTunnelAddress)
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
