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

// OfAddress returns the MTU, in bytes, of the interface that has an address of this node. It asks the kernel for the
// route to the address, because the entry of the local table names the interface: a list of all interfaces would have
// two for each pod. The error is ErrNoInterface if the address is not one of this node, or its interface is down.
func OfAddress(ip netip.Addr) (int, error) {
	routes, err := netlink.RouteGetWithOptions(ip.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
		return 0, ErrNoInterface
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return 0, fmt.Errorf("the interface with the address %s: %w", ip, err)
	}
	return link.Attrs().MTU, nil
}

// OfInterface returns the MTU, in bytes, of the interface with that name.
func OfInterface(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().MTU, nil
}
