package lab

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const netnsDir = "/run/netns"

// makeNetNS makes a network namespace with lo up, that lives until removeNetNS(path).
func makeNetNS(name string) (path string, err error) {
	path = filepath.Join(netnsDir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return "", fmt.Errorf("make netns: %w", err)
	}
	f.Close()
	err = OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		return unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
	})
	if err != nil {
		return "", errors.Join(fmt.Errorf("make netns %s: %w", path, err), os.Remove(path))
	}
	return path, nil
}

// OnOwnThread calls f on a thread that ends with it: f may enter other namespaces. It is never the program's first thread,
// which ends with the program alone: it would keep what it has entered, and be what /proc/self shows.
func OnOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- OnOwnThread(f) // on another one, as this one is taken
			return
		}
		done <- f() // and never unlocked
	}()
	return <-done
}

// nameNetNS gives a network namespace that is there a path, that lives until removeNetNS(path).
func nameNetNS(name, from string) (path string, err error) {
	path = filepath.Join(netnsDir, name)
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return "", fmt.Errorf("name netns: %w", err)
	}
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		return "", errors.Join(fmt.Errorf("name netns %s: %w", path, err), os.Remove(path))
	}
	return path, nil
}

// removeNetNS takes the name away; the namespace goes with its last process. Absent is fine.
func removeNetNS(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount netns %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// inNetNS calls f on a thread that is in the network namespace.
func inNetNS(path string, f func() error) error {
	return ns.WithNetNSPath(path, func(ns.NetNS) error { return f() })
}

// ifThere is inNetNS for one that may be gone: f is not called then.
func ifThere(path string, f func() error) error {
	err := inNetNS(path, f)
	if _, gone := errors.AsType[ns.NSPathNotExistErr](err); gone {
		return nil
	}
	return err
}

// startIn starts the command in the network namespace: a child begins in the namespace of the thread that
// forks it.
func startIn(netns string, cmd *exec.Cmd) error {
	return inNetNS(netns, cmd.Start)
}

// nic is one veth of a node: its end in the node's namespace, and the switch port it hangs on.
type nic struct {
	name string // in the node
	port string // in the fabric
	via  string // the fabric's bridge; "" for none
	mtu  int
	addr *net.IPNet // optional
}

// hardwareAddr is the MAC of the node's end, made of the switch's port: a machine has the same after each boot.
func (n nic) hardwareAddr() net.HardwareAddr {
	sum := fnv.New32a()
	sum.Write([]byte(n.port))
	return sum.Sum(net.HardwareAddr{0x02, 0})
}

// addNIC makes the veth with both ends where they belong; moving an end afterwards costs an RCU grace period.
func addNIC(fabric, node string, n nic) error {
	target, err := ns.GetNS(node)
	if err != nil {
		return err
	}
	defer target.Close()
	err = inNetNS(fabric, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = n.port, n.mtu
		if n.via != "" {
			bridge, err := netlink.LinkByName(n.via)
			if err != nil {
				return err
			}
			attrs.MasterIndex = bridge.Attrs().Index
		}
		veth := &netlink.Veth{
			LinkAttrs: attrs, PeerName: n.name, PeerHardwareAddr: n.hardwareAddr(), PeerNamespace: netlink.NsFd(target.Fd()),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return setUp(n.port, n.mtu)
	})
	if err == nil {
		err = target.Do(func(ns.NetNS) error { return errors.Join(setUp(n.name, n.mtu), addAddr(n.name, n.addr)) })
	}
	if err != nil {
		return fmt.Errorf("add NIC %s to %s: %w", n.name, node, err)
	}
	return nil
}

func addBridge(name string, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("add bridge %s: %w", name, err)
	}
	return setUp(name, mtu)
}

// deleteLink deletes a link of this thread's namespace. Absent is fine.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

// hasLink is a readiness check: the network namespace has the link.
func hasLink(netns, name string) func(context.Context) error {
	return func(context.Context) error {
		return inNetNS(netns, func() error {
			_, err := netlink.LinkByName(name)
			return err
		})
	}
}

func setUp(name string, mtu int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set the MTU of %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}

// addAddr leaves out IPv6's duplicate address detection: for a second or two the kernel would send from ::1 instead.
func addAddr(name string, addr *net.IPNet) error {
	if addr == nil {
		return nil
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: addr}
	if addr.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD
	}
	err = netlink.AddrAdd(link, a)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("add %s to %s: %w", addr, name, err)
	}
	return nil
}

// checksumsOff has the sender compute checksums: OVS's userspace datapath hands packets on as they are.
func checksumsOff(netns, link string) error {
	cmd := exec.Command("ethtool", "-K", link, "tx", "off")
	out, err := runIn(netns, cmd)
	if err != nil {
		return fmt.Errorf("turn checksum offload of %s off: %w: %s", link, err, out)
	}
	return nil
}

// arpOff has the kernel not answer on a NIC that is a bridge's port. With the userspace datapath its own stack hears what
// comes in as well, and answers for the bridge's address: the one who asks sees two answers, and sends to the one it saw last.
func arpOff(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetARPOff(link)
	}
	if err != nil {
		return fmt.Errorf("turn ARP of %s off: %w", name, err)
	}
	return nil
}

func ipNet(mask int, a, b, c, d byte) *net.IPNet {
	return &net.IPNet{IP: net.IPv4(a, b, c, d).To4(), Mask: net.CIDRMask(mask, 32)}
}
