package wiring

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Where two interfaces of a pod reach the same networks, the main table sends everything by one of them. OVN's port
// security drops there what has an address of the other one. So each of them has a table of its own, and a rule for
// each of its addresses.

// rulePriority is the priority of the rules. They come before the main table (32766), and after the rule for devices in
// a VRF (1000).
const rulePriority = 31000

// addRules adds the table of an interface, and the rules that lead to it.
func addRules(i *agentapi.Interface, index int) error {
	if i.Table == 0 {
		return nil
	}
	for _, r := range tableRoutes(i) {
		if err := netlink.RouteAdd(kernelRoute(r, index, i.Table)); err != nil {
			return fmt.Errorf("table %d: route %s: %w", i.Table, r, err)
		}
	}
	for _, a := range i.Addresses {
		if err := netlink.RuleAdd(ruleFor(a.Addr(), i.Table)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("table %d: rule for %s: %w", i.Table, a.Addr(), err)
		}
	}
	return nil
}

// tableRoutes are the routes of the interface's table. Those to its own subnets have no gateway.
func tableRoutes(i *agentapi.Interface) (routes []conf.Route) {
	for _, a := range i.Addresses {
		own := conf.Route{Dst: a.Masked()}
		if !slices.Contains(routes, own) {
			routes = append(routes, own)
		}
	}
	return append(routes, i.TableRoutes...)
}

func ruleFor(a netip.Addr, table int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Table = familyOf(a), rulePriority, table
	rule.Src = ipNet(netip.PrefixFrom(a, a.BitLen()))
	return rule
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// DeleteRules deletes the rules of a plan. The kernel deletes the tables with their interfaces.
func DeleteRules(netns string, p *agentapi.Plan) error {
	if !slices.ContainsFunc(p.Interfaces, func(i agentapi.Interface) bool { return i.Table != 0 }) {
		return nil
	}
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		var errs []error
		for _, i := range p.Interfaces {
			for _, a := range i.Addresses {
				if i.Table == 0 {
					continue
				}
				if err := netlink.RuleDel(ruleFor(a.Addr(), i.Table)); err != nil && !errors.Is(err, unix.ENOENT) {
					errs = append(errs, fmt.Errorf("rule for %s: %w", a.Addr(), err))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// inVRF reports whether the pod has put an interface into a VRF. The kernel then deletes its routes, and the routes of
// the VRF are the pod's own.
func inVRF(link netlink.Link) (bool, error) {
	if link.Attrs().MasterIndex == 0 {
		return false, nil
	}
	master, err := netlink.LinkByIndex(link.Attrs().MasterIndex)
	if err != nil {
		return false, err
	}
	return master.Type() == "vrf", nil
}

// checkRoutes compares the interface's routes and rules with the plan.
func checkRoutes(p *agentapi.Plan, i *agentapi.Interface, link netlink.Link) error {
	if in, err := inVRF(link); in || err != nil {
		return err
	}
	one := inspection{plan: p, i: i, link: link}
	if err := one.tables(); err != nil {
		return err
	}
	return one.first()
}

// hasRule reports whether what the pod sends from an address follows the table.
func hasRule(rules []netlink.Rule, a netip.Addr, table int) bool {
	source := ipNet(netip.PrefixFrom(a, a.BitLen())).String()
	return slices.ContainsFunc(rules, func(r netlink.Rule) bool {
		return r.Table == table && r.Src != nil && r.Src.String() == source
	})
}

// isRoute reports whether a route of the kernel is a route of the plan by that link.
func isRoute(present netlink.Route, route conf.Route, link int) bool {
	hops := present.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: present.LinkIndex, Gw: present.Gw}}
	}
	byLink := slices.ContainsFunc(hops, func(h *netlink.NexthopInfo) bool {
		gw, _ := netip.AddrFromSlice(h.Gw)
		return h.LinkIndex == link && gw.Unmap() == route.GW
	})
	if !byLink {
		return false
	}
	if present.Dst == nil { // the default route
		return route.Dst.Bits() == 0
	}
	return present.Dst.String() == ipNet(route.Dst).String()
}
