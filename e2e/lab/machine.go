package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"
)

// Machine is an endpoint on a node's integration bridge that is nobody's pod: a VM, as others plug it. Its logical
// port is its owner's to make.
type Machine struct {
	Name string // of its logical port, and of its host-side veth
	Node *Node
	host
}

// NewMachine plugs one, with an interface eth0 that has these addresses, written like 10.1.255.9/16.
func (n *Node) NewMachine(ctx context.Context, name, mac string, addrs ...string) (*Machine, error) {
	h, err := n.lab.newHost("machine-"+name, name, filepath.Join(n.Dir, "machines"))
	if err != nil {
		return nil, err
	}
	m := &Machine{Name: name, Node: n, host: h}
	if err := m.plug(ctx, mac, addrs); err != nil {
		return nil, errors.Join(fmt.Errorf("plug machine %s: %w", name, err), m.Close(ctx))
	}
	return m, nil
}

func (m *Machine) plug(ctx context.Context, mac string, addrs []string) (err error) {
	defer try.Handle(&err)
	hardware := try.E1(net.ParseMAC(mac))
	target := try.E1(ns.GetNS(m.NetNS))
	defer target.Close()
	try.E(m.Node.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = m.Name
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: hardware, PeerNamespace: netlink.NsFd(target.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return setUp(m.Name, nodeNetMTU)
	}))
	try.E(target.Do(func(ns.NetNS) error {
		errs := []error{setUp("eth0", nodeNetMTU)}
		for _, text := range addrs {
			addr, err := netlink.ParseIPNet(text)
			if err == nil {
				err = addAddr("eth0", addr)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}))
	try.E(checksumsOff(m.NetNS, "eth0"))
	_, err = m.Node.VSCtl(ctx, "add-port", integrationBridge, m.Name, "--", "set", "Interface", m.Name, "external_ids:iface-id="+m.Name)
	return err
}

// String is the machine's name as the tests' errors write it.
func (m *Machine) String() string { return "machine " + m.Name }

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
