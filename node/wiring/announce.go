package wiring

import (
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// Announce has the kernel announce the addresses of the interfaces to their networks: a gratuitous ARP request for each
// IPv4 address (RFC 5227, section 3), an unsolicited neighbour advertisement for each IPv6 address (RFC 4861, section
// 7.2.6). Neighbours that know another MAC for an address, that of a former pod, follow at once. Call it when OVN's
// flows forward the packets: what the kernel sent when the links came up is lost. The sysctls that configure sets stay,
// so the kernel announces the addresses again whenever the pod sets a link up.
func Announce(netns string, p *agentapi.Plan) error {
	if len(p.Interfaces) == 0 {
		return nil
	}
	pod, err := ns.GetNS(netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	return pod.Do(func(ns.NetNS) error {
		var errs []error
		for i := range p.Interfaces {
			if err := announceLink(&p.Interfaces[i]); err != nil {
				errs = append(errs, fmt.Errorf("interface %s: %w", p.Interfaces[i].Name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// announceLink sets the MAC that the link has. The kernel announces all addresses of a link that gets a MAC. A socket
// for packets of our own would cost an RCU grace period when it is closed.
func announceLink(i *agentapi.Interface) error {
	mac, err := net.ParseMAC(i.MAC)
	if err != nil {
		return err
	}
	index, err := linkIndex(i.Name)
	if err != nil {
		return err
	}
	return netlink.LinkSetHardwareAddr(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: i.Name, Index: index}}, mac)
}
