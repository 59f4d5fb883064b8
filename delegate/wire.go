package delegate

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

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// wire makes a plan's interfaces: each veth with its pod end directly in the pod's namespace (creating it in the
// host and moving it costs an RCU grace period under the kernel's networking lock), then the pod ends' addresses
// and routes.
func wire(netns string, s *agentapi.Sandbox, p *agentapi.Plan) error {
	pod, err := ns.GetNS(netns)
	if err != nil {
		return conf.Errorf(conf.CodeEnvironment, "the runtime gave a network namespace that is not there", "CNI_NETNS %s: %w", netns, err)
	}
	defer pod.Close()
	for i := range p.Interfaces {
		if err := makeVeth(pod, s, &p.Interfaces[i]); err != nil {
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

func makeVeth(pod ns.NetNS, s *agentapi.Sandbox, i *agentapi.Interface) error {
	mac, err := net.ParseMAC(i.MAC)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = agentapi.HostVeth(s.ContainerID, i.Name)
	attrs.MTU = i.MTU
	attrs.Group = agentapi.LinkGroup(s)
	attrs.Flags = net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName = i.Name
	veth.PeerHardwareAddr = mac
	veth.PeerMTU = uint32(i.MTU)
	veth.PeerNamespace = netlink.NsFd(int(pod.Fd()))
	err = netlink.LinkAdd(veth)
	if errors.Is(err, unix.EEXIST) {
		return conf.Errorf(conf.CodeInvalidConfig, "choose another name in the pod's annotation "+conf.NetworksAnnotation,
			"interface %s: the pod has an interface of that name already", i.Name)
	}
	if err != nil {
		return fmt.Errorf("interface %s: make veth: %w", i.Name, err)
	}
	return nil
}

// configure runs in the pod's namespace.
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
			// OVN has seen to it that the address is nobody else's: no DAD (RFC 4862, section 5.4), usable at once.
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

// setIPv6 sets the sysctls of an interface: no router advertisement is accepted (the address is a lease and the
// routes are the network's), and duplicate address detection is off, also for the link-local address.
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

// checksumToSoftware is `ethtool -K name tx off`: a userspace datapath reads packets from the veth as they are,
// and the kernel has left the checksum for a hardware that is not there.
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

// unwire deletes an attachment's host ends, and their pod ends with them. All of them go with one request by their
// group, in a fraction of the time that one by one takes, when the group holds nothing but host ends of ours.
func unwire(s *agentapi.Sandbox, p *agentapi.Plan) error {
	if p != nil && len(p.Interfaces) == 1 {
		return deleteLink(agentapi.HostVeth(s.ContainerID, p.Interfaces[0].Name))
	}
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	group := agentapi.LinkGroup(s)
	var ours []string
	alone := true
	for _, l := range links {
		a := l.Attrs()
		if a.Group != group {
			continue
		}
		if l.Type() == "veth" && strings.HasPrefix(a.Name, agentapi.HostVethPrefix) && isHostEnd(s, p, a.Name) {
			ours = append(ours, a.Name)
		} else {
			alone = false
		}
	}
	if alone && len(ours) > 1 {
		return deleteGroup(group)
	}
	var errs []error
	for _, name := range ours {
		errs = append(errs, deleteLink(name))
	}
	return errors.Join(errs...)
}

// unwireLost deletes the host ends of a container that the journal has lost.
func unwireLost(d *agentapi.Garbage) error {
	var errs []error
	for _, name := range d.HostVeths {
		if strings.HasPrefix(name, agentapi.HostVethPrefix) {
			errs = append(errs, deleteLink(name))
		}
	}
	return errors.Join(errs...)
}

// isHostEnd tells whether the plan made the link. Without a plan its group and its prefix have to do.
func isHostEnd(s *agentapi.Sandbox, p *agentapi.Plan, name string) bool {
	return p == nil || slices.ContainsFunc(p.Interfaces, func(i agentapi.Interface) bool {
		return agentapi.HostVeth(s.ContainerID, i.Name) == name
	})
}

func deleteLink(name string) error {
	link, err := netlinksafe.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent || errors.Is(err, unix.ENODEV) {
		return nil // its peer went first, with the pod's namespace
	}
	if err != nil {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

// deleteGroup is `ip link del group N`, which the netlink library has not: RTM_DELLINK with IFLA_GROUP and neither
// index nor name.
func deleteGroup(group uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete links of group %d: %w", group, err)
	}
	return nil
}

// netnsGone tells whether a pod's network namespace does not exist any more, by the path that the ADD was given. If the
// path goes by a process, that process may be one of the node's by now.
func netnsGone(path string) bool {
	if path == "" {
		return false // nobody knows which it was
	}
	var at unix.Statfs_t
	err := unix.Statfs(path, &at)
	return errors.Is(err, os.ErrNotExist) || err == nil && (at.Type != unix.NSFS_MAGIC || isNodeNetns(path))
}

// isNodeNetns tells whether a path is of the network namespace that the plugin runs in, which is the node's.
func isNodeNetns(path string) bool {
	var own, at unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &own) == nil && unix.Stat(path, &at) == nil &&
		own.Dev == at.Dev && own.Ino == at.Ino
}

// checkNetns refuses a CNI_NETNS that is the node's: what is meant for a pod would change the node's interfaces and
// routes.
func checkNetns(path string) error {
	if !isNodeNetns(path) {
		return nil
	}
	return conf.Errorf(conf.CodeEnvironment, "the runtime must name the network namespace of the pod; "+
		"for a pod in the host's network it calls no CNI plugin", "CNI_NETNS %s is the network namespace of the node itself", path)
}
