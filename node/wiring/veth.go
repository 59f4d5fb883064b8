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
	"strings"
	"unsafe"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
		return shareRoutes(p)
	})
}

func createVeth(pod ns.NetNS, s *agentapi.Sandbox, i *agentapi.Interface) error {
	mac, err := net.ParseMAC(i.MAC)
	if err != nil {
		return err
	}
	request := vethRequest(agentapi.HostVeth(s.ContainerID, i.Name), linkGroup(s), i, mac, pod.Fd())
	_, err = request.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EEXIST) {
		return conf.Errorf(conf.CodeInvalidConfig, "choose another name in the pod's annotation "+conf.NetworksAnnotation,
			"interface %s: the pod already has an interface of that name", i.Name)
	}
	if err == nil {
		err = withoutIPv6(agentapi.HostVeth(s.ContainerID, i.Name))
	}
	if err != nil {
		return fmt.Errorf("interface %s: create veth: %w", i.Name, err)
	}
	return nil
}

// withoutIPv6 disables IPv6 on a host-side veth, which Open vSwitch alone uses. The kernel would give it an address and
// three routes as soon as the pod's side is up. ovs-vswitchd reads all routes of the node again after each change of a
// route or a link, and searches the list of all addresses for each: in a herd of pods, this is most of its work.
func withoutIPv6(hostVeth string) error {
	err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", hostVeth, "disable_ipv6"), []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without IPv6
	}
	return err
}

// vethRequest is `ip link add HOST-VETH up group GROUP type veth peer NAME netns FD`. The netlink library would ask for
// the new link after each creation, under the kernel's networking lock. Each end has one queue: the kernel makes one
// for each CPU otherwise, uses the first one, and waits for a grace period after it has disabled the others.
func vethRequest(
	hostVeth string, group uint32, i *agentapi.Interface, mac net.HardwareAddr, netns uintptr,
) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Flags, info.Change = unix.IFF_UP, unix.IFF_UP
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(hostVeth)))
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	kind := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	kind.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := kind.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(i.Name))
	peer.AddRtAttr(unix.IFLA_ADDRESS, mac)
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(netns)))
	both := func(attribute int, value uint32) {
		request.AddData(nl.NewRtAttr(attribute, nl.Uint32Attr(value)))
		peer.AddRtAttr(attribute, nl.Uint32Attr(value))
	}
	both(unix.IFLA_MTU, uint32(i.MTU))
	both(unix.IFLA_NUM_TX_QUEUES, 1)
	both(unix.IFLA_NUM_RX_QUEUES, 1)
	request.AddData(kind)
	return request
}

// configure configures a pod-side veth. It runs in the pod's network namespace.
func configure(i *agentapi.Interface, checksumOff bool) error {
	index, err := linkIndex(i.Name)
	if err != nil {
		return err
	}
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: i.Name, Index: index}}
	wants6 := slices.ContainsFunc(i.Addresses, func(a netip.Prefix) bool { return a.Addr().Is6() })
	enabled6, err := setIPv6(i.Name, wants6)
	if err != nil {
		return err
	}
	// With this and ndisc_notify, the kernel announces the addresses of a link: see Announce.
	notify := filepath.Join("/proc/sys/net/ipv4/conf", i.Name, "arp_notify")
	if err := os.WriteFile(notify, []byte("1"), 0); err != nil {
		return err
	}
	if checksumOff {
		if err := checksumToSoftware(i.Name); err != nil {
			return fmt.Errorf("tx checksum offload: %w", err)
		}
	}
	addresses, err := addressesOf(i, enabled6)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if err := netlink.AddrAdd(link, address(a)); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	for _, r := range i.Routes {
		if err := netlink.RouteAdd(kernelRoute(r, index, unix.RT_TABLE_UNSPEC)); err != nil {
			return fmt.Errorf("route %s: %w", r, err)
		}
	}
	return addRules(i, index)
}

// addressesOf are the addresses of the plan, and with IPv6 the link-local one, which the kernel does not make here.
func addressesOf(i *agentapi.Interface, enabled6 bool) ([]netip.Prefix, error) {
	if !enabled6 {
		return i.Addresses, nil
	}
	mac, err := net.ParseMAC(i.MAC)
	if err != nil {
		return nil, err
	}
	own := netip.PrefixFrom(conf.LinkLocal(mac), 64)
	if slices.Contains(i.Addresses, own) {
		return i.Addresses, nil
	}
	return append(slices.Clip(i.Addresses), own), nil
}

// address is an address as the plugin adds it.
func address(a netip.Prefix) *netlink.Addr {
	addr := &netlink.Addr{IPNet: ipNet(a)}
	if a.Addr().Is6() {
		// The lease excludes duplicates, so duplicate address detection (RFC 4862, section 5.4) is not needed and the
		// address is usable at once.
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

// linkIndex asks for the index of a link without the kernel's networking lock, which a request by netlink takes.
func linkIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	}
	if err != nil {
		return 0, fmt.Errorf("index: %w", err)
	}
	return int(request.Uint32()), nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// setIPv6 sets the sysctls of an interface, and reports whether the interface has IPv6. The interface accepts no
// router advertisements: its address is a lease, and its routes are the routes of the network. Duplicate address
// detection is off. The kernel makes no link-local address: for a moment, a queue of the kernel would hold that
// address as tentative, and the node's sysctls could give it a form that OVN's port security does not let through.
func setIPv6(name string, wanted bool) (enabled bool, err error) {
	dir := filepath.Join("/proc/sys/net/ipv6/conf", name)
	disabled, err := os.ReadFile(filepath.Join(dir, "disable_ipv6"))
	if errors.Is(err, os.ErrNotExist) && !wanted {
		return false, nil // a kernel without IPv6
	}
	set := [][2]string{{"accept_ra", "0"}, {"accept_dad", "0"}, {"addr_gen_mode", "1"}, {"ndisc_notify", "1"}}
	if wanted {
		set = append(set, [2]string{"disable_ipv6", "0"})
	}
	for _, kv := range set {
		if err := os.WriteFile(filepath.Join(dir, kv[0]), []byte(kv[1]), 0); err != nil {
			return false, err
		}
	}
	return wanted || strings.TrimSpace(string(disabled)) == "0", err
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
