package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// Machine is an endpoint on a node's integration bridge that is nobody's pod: a VM, as others plug it. Its logical
// port is its owner's to make.
type Machine struct {
	Name  string // of its logical port, and of its host end
	Node  *Node
	NetNS string // path
}

// NewMachine plugs one, with an interface eth0 that has these addresses, written like 10.1.255.9/16.
func (n *Node) NewMachine(ctx context.Context, name, mac string, addrs ...string) (*Machine, error) {
	netns, err := n.lab.makeNetNS("machine-" + name)
	if err != nil {
		return nil, err
	}
	m := &Machine{Name: name, Node: n, NetNS: netns}
	if err := m.plug(ctx, mac, addrs); err != nil {
		return nil, errors.Join(fmt.Errorf("plug machine %s: %w", name, err), m.Close(ctx))
	}
	return m, nil
}

func (m *Machine) plug(ctx context.Context, mac string, addrs []string) error {
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	target, err := ns.GetNS(m.NetNS)
	if err != nil {
		return err
	}
	defer target.Close()
	err = m.Node.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = m.Name
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: hardware, PeerNamespace: netlink.NsFd(target.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return setUp(m.Name, nodeNetMTU)
	})
	if err != nil {
		return err
	}
	err = target.Do(func(ns.NetNS) error {
		errs := []error{setUp("eth0", nodeNetMTU)}
		for _, text := range addrs {
			addr, err := netlink.ParseIPNet(text)
			if err == nil {
				err = addAddr("eth0", addr)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	if err := checksumsOff(m.NetNS, "eth0"); err != nil {
		return err
	}
	_, err = m.Node.VSCtl(ctx, "add-port", integrationBridge, m.Name, "--", "set", "Interface", m.Name, "external_ids:iface-id="+m.Name)
	return err
}

// String is the machine's name as the tests' errors write it.
func (m *Machine) String() string { return "machine " + m.Name }

// Exec runs a command in the machine and returns what it wrote to both its streams.
func (m *Machine) Exec(ctx context.Context, command ...string) (string, error) {
	out, err := runIn(m.NetNS, exec.CommandContext(ctx, command[0], command[1:]...))
	if err != nil {
		return out, fmt.Errorf("in %s: %v: %w: %s", m, command, err, out)
	}
	return out, nil
}

// Start runs a command in the machine until it is stopped or the lab is closed.
func (m *Machine) Start(ctx context.Context, command ...string) (*Process, error) {
	name := filepath.Base(command[0])
	return m.Node.lab.run(ctx, &Process{
		Name: m.Name + "/" + name, netns: m.NetNS, args: command,
		log: filepath.Join(m.Node.Dir, "machines", m.Name+"."+name+".log"),
	})
}

// Close unplugs the machine. Its logical port stays.
func (m *Machine) Close(ctx context.Context) error {
	_, err := m.Node.VSCtl(ctx, "--if-exists", "del-port", integrationBridge, m.Name)
	return errors.Join(err, m.Node.Do(func() error {
		link, err := netlink.LinkByName(m.Name)
		if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
			return nil
		}
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	}), m.Node.lab.removeNetNS(m.NetNS))
}
