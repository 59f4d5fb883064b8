package wiring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Several interfaces on one network share its routes: each has a next hop by each interface, and the kernel chooses one
// for each flow. It then takes a source address of the chosen interface, and the rule of this address keeps the flow
// there.

// shareRoutes adds the next hops of the interfaces that share routes. It runs in the pod's network namespace, when all
// interfaces have their routes.
func shareRoutes(p *agentapi.Plan) error {
	var shared []conf.Route
	for i := range p.Interfaces {
		for _, r := range p.Interfaces[i].SharedRoutes {
			if !slices.Contains(shared, r) {
				shared = append(shared, r)
			}
		}
	}
	if len(shared) == 0 {
		return nil
	}
	if err := hashPorts(); err != nil {
		return err
	}
	for _, r := range shared {
		route := &netlink.Route{Dst: ipNet(r.Dst)}
		for i := range p.Interfaces {
			n := &p.Interfaces[i]
			if !slices.Contains(n.Routes, r) && !slices.Contains(n.SharedRoutes, r) {
				continue
			}
			index, err := linkIndex(n.Name)
			if err == nil {
				err = ignoreLinkDown(n.Name)
			}
			if err != nil {
				return fmt.Errorf("interface %s: %w", n.Name, err)
			}
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: index, Gw: r.GW.AsSlice()})
		}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route %s by %d interfaces: %w", r, len(route.MultiPath), err)
		}
	}
	return nil
}

// hashPorts has the kernel choose a next hop by addresses and ports. By default it chooses by addresses alone, so all
// flows to one host would have the same.
func hashPorts() error {
	for _, family := range []string{"ipv4", "ipv6"} {
		if err := setIfThere(filepath.Join("/proc/sys/net", family, "fib_multipath_hash_policy")); err != nil {
			return err
		}
	}
	return nil
}

// ignoreLinkDown has the kernel choose no next hop by an interface whose other end is down.
func ignoreLinkDown(name string) error {
	for _, family := range []string{"ipv4", "ipv6"} {
		path := filepath.Join("/proc/sys/net", family, "conf", name, "ignore_routes_with_linkdown")
		if err := setIfThere(path); err != nil {
			return err
		}
	}
	return nil
}

// setIfThere sets a sysctl to 1. A kernel without IPv6, or without multipath routes, has no such file.
func setIfThere(path string) error {
	if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
