package wiring

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// SetRoutes adds the routes that need all interfaces of the pod. It returns the gateways of the default routes that
// it moved off the primary interface, at most one of each family.
func SetRoutes(netns, primary string, p *agentapi.Plan) (moved []netip.Addr, err error) {
	if p.Default == nil && len(p.Routes) == 0 && len(p.Delegates) == 0 {
		return nil, nil
	}
	err = ns.WithNetNSPath(netns, func(ns.NetNS) error {
		if err := deleteDefaults(p); err != nil {
			return err
		}
		if p.Default != nil {
			var err error
			if moved, err = moveDefaults(primary, p.Default); err != nil {
				return fmt.Errorf("interface %s: default-route: %w", p.Default.Interface, err)
			}
		}
		for _, r := range p.Routes {
			if err := addRoute(r); err != nil {
				return conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation "+conf.RoutesAnnotation,
					"interface %s: route %s: %w", r.Interface, r.Route, err)
			}
		}
		return nil
	})
	return moved, err
}

func addRoute(r agentapi.Route) error {
	link, err := netlinksafe.LinkByName(r.Interface)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(kernelRoute(r.Route, link.Attrs().Index, unix.RT_TABLE_UNSPEC))
}

// kernelRoute is a route by an interface. Without a gateway its destination is on the link.
func kernelRoute(r conf.Route, index, table int) *netlink.Route {
	route := &netlink.Route{LinkIndex: index, Dst: ipNet(r.Dst), Gw: r.GW.AsSlice(), Table: table}
	if !r.GW.IsValid() {
		route.Scope = netlink.SCOPE_LINK
	}
	return route
}

// deleteDefaults deletes the default routes that delegates made and nobody requested. With several default routes,
// the kernel would use an arbitrary one.
func deleteDefaults(p *agentapi.Plan) error {
	for _, d := range p.Delegates {
		if p.Default != nil && p.Default.Interface == d.Name {
			continue
		}
		if err := deleteDefaultsOf(d.Name); err != nil {
			return err
		}
	}
	return nil
}

// deleteDefaultsOf deletes the default routes of an interface. It is no error if the attachment has no interface.
func deleteDefaultsOf(name string) error {
	link, err := netlinksafe.LinkByName(name)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return nil
	}
	if err != nil {
		return err
	}
	routes, err := defaultRoutes(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	if err := deleteRoutes(routes); err != nil {
		return fmt.Errorf("interface %s: its default route: %w", name, err)
	}
	return nil
}

// defaultRoutes lists a link's default routes in the main table.
func defaultRoutes(link netlink.Link, family int) ([]netlink.Route, error) {
	routes, err := netlinksafe.RouteListFiltered(family,
		&netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN},
		netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(routes, func(r netlink.Route) bool {
		if r.Dst == nil {
			return false
		}
		ones, _ := r.Dst.Mask.Size()
		return ones != 0 || !r.Dst.IP.IsUnspecified()
	}), nil
}

func deleteRoutes(routes []netlink.Route) error {
	for i := range routes {
		if err := netlink.RouteDel(&routes[i]); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// moveDefaults moves the default routes of the families that have a gateway.
func moveDefaults(primary string, d *agentapi.Default) (moved []netip.Addr, err error) {
	link, err := netlinksafe.LinkByName(d.Interface)
	if err != nil {
		return nil, err
	}
	first, err := netlinksafe.LinkByName(primary)
	if err != nil {
		return nil, err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		own, err := defaultRoutes(link, family)
		if err != nil {
			return nil, err
		}
		gateway, given := gatewayOf(d, family, own)
		if given || !gateway.IsValid() { // the plugins' own default route is not the requested one
			if err := deleteRoutes(own); err != nil {
				return nil, err
			}
		}
		if !gateway.IsValid() {
			continue
		}
		if err := deletePrimaryDefaults(first, family, d.Keep); err != nil {
			return nil, err
		}
		if given {
			route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(anywhere(gateway)), Gw: gateway.AsSlice()}
			if err := netlink.RouteAdd(route); err != nil {
				return nil, conf.Errorf(conf.CodeInvalidConfig, "the gateway must be on the network of the interface",
					"via %s: %w", gateway, err)
			}
		}
		moved = append(moved, gateway)
	}
	if len(moved) == 0 {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "name the gateway in the pod's annotation "+conf.NetworksAnnotation,
			"[] asks for the network's own gateway, and its plugins made no default route by one")
	}
	return moved, nil
}

// gatewayOf is the requested gateway, or, without one, the gateway of the route that the interface's own plugins
// made.
func gatewayOf(d *agentapi.Default, family int, own []netlink.Route) (gateway netip.Addr, given bool) {
	for _, g := range d.Gateways {
		if g.Is4() == (family == netlink.FAMILY_V4) {
			return g, true
		}
	}
	if len(d.Gateways) == 0 {
		for _, r := range own {
			if g, ok := netip.AddrFromSlice(r.Gw); ok {
				return g.Unmap(), false
			}
		}
	}
	return netip.Addr{}, false
}

// anywhere is the destination of a default route.
func anywhere(gateway netip.Addr) netip.Prefix {
	if gateway.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// deletePrimaryDefaults deletes the default routes of a family from the primary interface. The networks in keep stay
// reachable by the same gateways.
func deletePrimaryDefaults(first netlink.Link, family int, keep []netip.Prefix) error {
	routes, err := defaultRoutes(first, family)
	if err != nil {
		return err
	}
	for _, old := range routes {
		for _, k := range keep {
			if k.Addr().Is4() != (family == netlink.FAMILY_V4) {
				continue
			}
			kept := old // with its metric, MTU and source: two default routes of different metrics stay distinct
			kept.Dst = ipNet(k)
			kept.Flags &= int(netlink.FLAG_ONLINK) // the other flags report the state of a route
			if err := netlink.RouteReplace(&kept); err != nil {
				return fmt.Errorf("keep %s on %s: %w", k, first.Attrs().Name, err)
			}
		}
	}
	return deleteRoutes(routes)
}
