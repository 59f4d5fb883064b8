package wiring

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"unsafe"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// Create creates the interfaces of a plan: the veths, then the addresses and routes of the pod-side veths. Each
// pod-side veth is created directly in the pod's network namespace. To create the veth on the node and then move it
// would cost an RCU grace period under the kernel's networking lock.
func Create(netns string, s *agentapi.Sandbox, p *agentapi.Plan) error {
	pod, err := ns.GetNS(netns)
	if err != nil {
		return conf.Errorf(conf.CodeEnvironment, "the runtime gave a network namespace that does not exist",
			"CNI_NETNS %s: %w", netns, err)
	}
	defer pod.Close()
	for i := range p.Interfaces {
		if err := createVeth(pod, s, &p.Interfaces[i]); err != nil {
			return err
		}
		failpoint.Hit("veth-made")
	}
	return pod.Do(func(ns.NetNS) error {
		for i := range p.Interfaces {
			if err := configure(&p.Interfaces[i], p.ChecksumOff); err != nil {
				return fmt.Errorf("interface %s: %w", p.Interfaces[i].Name, err)
			}
		}
		return nil
	})
}

func createVeth(pod ns.NetNS, s *agentapi.Sandbox, i *agentapi.Interface) error {
	mac, err := net.ParseMAC(i.MAC)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = agentapi.HostVeth(s.ContainerID, i.Name)
	attrs.MTU = i.MTU
	attrs.Group = linkGroup(s)
	attrs.Flags = net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName = i.Name
	veth.PeerHardwareAddr = mac
	veth.PeerMTU = uint32(i.MTU)
	veth.PeerNamespace = netlink.NsFd(int(pod.Fd()))
	err = netlink.LinkAdd(veth)
	if errors.Is(err, unix.EEXIST) {
		return conf.Errorf(conf.CodeInvalidConfig, "choose another name in the pod's annotation "+conf.NetworksAnnotation,
			"interface %s: the pod already has an interface of that name", i.Name)
	}
	if err != nil {
		return fmt.Errorf("interface %s: create veth: %w", i.Name, err)
	}
	return nil
}

// configure configures a pod-side veth. It runs in the pod's network namespace.
func configure(i *agentapi.Interface, checksumOff bool) error {
	link, err := netlinksafe.LinkByName(i.Name)
	if err != nil {
		return err
	}
	wants6 := slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if err := setIPv6(i.Name, wants6); err != nil {
		return err
	}
	if checksumOff {
		if err := checksumToSoftware(i.Name); err != nil {
			return fmt.Errorf("tx checksum offload: %w", err)
		}
	}
	for _, a := range i.Addresses {
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			// The lease excludes duplicates, so duplicate address detection (RFC 4862, section 5.4) is not needed
			// and the address is usable at once.
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	for _, r := range i.Routes {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.Dst), Gw: r.GW.AsSlice()}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route %s via %s: %w", r.Dst, r.GW, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// setIPv6 sets the sysctls of an interface. The interface accepts no router advertisements: its address is a lease,
// and its routes are the routes of the network. Duplicate address detection is off, also for the link-local address.
func setIPv6(name string, wanted bool) error {
	dir := filepath.Join("/proc/sys/net/ipv6/conf", name)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && !wanted {
		return nil // a kernel without IPv6
	}
	set := [][2]string{{"accept_ra", "0"}, {"accept_dad", "0"}}
	if wanted {
		set = append(set, [2]string{"disable_ipv6", "0"})
	}
	for _, kv := range set {
		if err := os.WriteFile(filepath.Join(dir, kv[0]), []byte(kv[1]), 0); err != nil {
			return err
		}
	}
	return nil
}

// checksumToSoftware is `ethtool -K name tx off`. The kernel otherwise expects hardware to complete the checksums. A
// veth has no such hardware, and a userspace datapath reads the packets without their checksums.
func checksumToSoftware(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{unix.ETHTOOL_STXCSUM, 0}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return errno
	}
	return nil
}
