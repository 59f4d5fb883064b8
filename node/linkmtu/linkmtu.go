// Package linkmtu owns the reading of an interface's MTU from the kernel. It changes nothing: the agent, which imports
// it, has no other access to the node's interfaces.
package linkmtu

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoInterface says that no interface has the address.
var ErrNoInterface = errors.New("no interface has the address")

// OfAddress returns the MTU, in bytes, of the interface that has an address of this node. The error is ErrNoInterface
// if no interface has the address.
func OfAddress(ip netip.Addr) (int, error) {
	index, err := indexOf(ip)
	if err != nil {
		return 0, err
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0, fmt.Errorf("the interface with the address %s: %w", ip, err)
	}
	return link.Attrs().MTU, nil
}

// indexOf returns the index of the interface that has the address. It asks the kernel for the route to the address,
// because the entry of the local table names the interface: a list of all interfaces would have two for each pod. Only
// the address of a VRF, and of an interface that is down, needs the list of addresses.
func indexOf(ip netip.Addr) (int, error) {
	routes, err := netlink.RouteGetWithOptions(ip.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
		return routes[0].LinkIndex, nil
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return 0, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if a.IP.Equal(ip.AsSlice()) {
			return a.LinkIndex, nil
		}
	}
	return 0, ErrNoInterface
}

// OfInterface returns the MTU, in bytes, of the interface with that name.
func OfInterface(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().MTU, nil
}
