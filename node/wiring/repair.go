package wiring

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// maxMissing bounds what is said of one interface.
const maxMissing = 4

// Inspect says what the interfaces of a running pod lack of what the plan has: a text for each of them. With repair it
// also makes that again. An interface that the pod has wired by itself is left alone: the pod has moved or renamed it,
// or has put it into a bridge, a bond or a VRF. KubeVirt does so.
func Inspect(netns string, s *agentapi.Sandbox, p *agentapi.Plan, repair bool) (found []string, err error) {
	if err := ns.WithNetNSPath(netns, func(ns.NetNS) error { return fewEntries(maxEntries) }); err != nil {
		return nil, err
	}
	all := map[string]*inspection{}
	err = inPod(netns, s, p, func(i *agentapi.Interface, link netlink.Link) error {
		all[i.Name] = &inspection{plan: p, i: i, link: link, repair: repair}
		return all[i.Name].linkAndAddresses()
	})
	if err == nil { // a route with several next hops needs all of their links
		err = inPod(netns, s, p, func(i *agentapi.Interface, _ netlink.Link) error {
			if one := all[i.Name]; one != nil {
				return one.allRoutes()
			}
			return nil
		})
	}
	for _, i := range p.Interfaces {
		if one := all[i.Name]; one != nil && len(one.missing) > 0 {
			found = append(found, "interface "+i.Name+": "+firstOf(one.missing))
		}
	}
	return found, err
}

// maxEntries is how many addresses, how many routes and how many rules a network namespace may have to be inspected. A
// pod with CAP_NET_ADMIN can make millions, and the lists of the library would have all of them in memory.
const maxEntries = 20_000

// fewEntries counts what the lists would have, message by message.
func fewEntries(most int) error {
	lists := map[string]int{"addresses": unix.RTM_GETADDR, "routes": unix.RTM_GETROUTE, "rules": unix.RTM_GETRULE}
	for what, kind := range lists {
		n := 0
		request := nl.NewNetlinkRequest(kind, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		err := request.ExecuteIter(unix.NETLINK_ROUTE, 0, func([]byte) bool { n++; return n <= most })
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // by a change
			return fmt.Errorf("count the %s: %w", what, err)
		}
		if n > most {
			return fmt.Errorf("the pod has over %d %s, too many to be inspected", most, what)
		}
	}
	return nil
}

// KeepRoutes gives interfaces the routes of the plan that the main table lacks. The kernel deletes a route with several
// next hops when the interface of one of them goes.
func KeepRoutes(netns string, s *agentapi.Sandbox, p *agentapi.Plan, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if err := ns.WithNetNSPath(netns, func(ns.NetNS) error { return fewEntries(maxEntries) }); err != nil {
		return err
	}
	return inPod(netns, s, p, func(i *agentapi.Interface, link netlink.Link) error {
		if !slices.Contains(names, i.Name) || link.Attrs().Flags&net.FlagUp == 0 {
			return nil
		}
		one := inspection{plan: p, i: i, link: link, repair: true}
		return one.routes(unix.RT_TABLE_MAIN, i.Routes, i.SharedRoutes)
	})
}

// inPod visits those pod-side veths that are as they were made, in the pod's network namespace. The index of the
// host-side veth's peer identifies each: a name may be another link's by now.
func inPod(
	netns string, s *agentapi.Sandbox, p *agentapi.Plan, visit func(*agentapi.Interface, netlink.Link) error,
) error {
	indexes := make([]int, len(p.Interfaces))
	for k, i := range p.Interfaces {
		host, err := netlinksafe.LinkByName(agentapi.HostVeth(s.ContainerID, i.Name))
		if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
			continue
		}
		if err != nil {
			return err
		}
		indexes[k] = host.Attrs().ParentIndex
	}
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		for k := range p.Interfaces {
			i := &p.Interfaces[k]
			if indexes[k] == 0 {
				continue
			}
			link, err := netlink.LinkByIndex(indexes[k])
			if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
				continue
			}
			if err != nil {
				return err
			}
			if link.Attrs().Name != i.Name || link.Attrs().MasterIndex != 0 {
				continue
			}
			if err := visit(i, link); err != nil {
				return fmt.Errorf("interface %s: %w", i.Name, err)
			}
		}
		return nil
	})
}

// inspection compares one interface with its plan.
type inspection struct {
	plan    *agentapi.Plan
	i       *agentapi.Interface
	link    netlink.Link
	repair  bool
	missing []string
}

// lacks notes what the interface lacks, and has it made again.
func (n *inspection) lacks(what string, again func() error) error {
	n.missing = append(n.missing, what)
	if !n.repair {
		return nil
	}
	if err := again(); err != nil {
		return fmt.Errorf("%s, and cannot get it again: %w", what, err)
	}
	return nil
}

// first is the first thing that is missing, as an error; nil: nothing is.
func (n *inspection) first() error {
	if len(n.missing) == 0 {
		return nil
	}
	return errors.New(n.missing[0])
}

func (n *inspection) linkAndAddresses() error {
	if n.link.Attrs().Flags&net.FlagUp == 0 {
		if err := n.lacks("it is down", func() error { return netlink.LinkSetUp(n.link) }); err != nil {
			return err
		}
	}
	if err := n.mac(); err != nil {
		return err
	}
	has6 := slices.ContainsFunc(n.i.Addresses, func(a netip.Prefix) bool { return a.Addr().Is6() })
	disabled, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", n.i.Name, "disable_ipv6"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	wanted, err := addressesOf(n.i, has6 || strings.TrimSpace(string(disabled)) == "0")
	if err != nil {
		return err
	}
	return n.addresses(wanted)
}

func (n *inspection) mac() error {
	mac := n.link.Attrs().HardwareAddr.String()
	if mac == n.i.MAC {
		return nil
	}
	wanted, err := net.ParseMAC(n.i.MAC)
	if err != nil {
		return err
	}
	set := func() error { return netlink.LinkSetHardwareAddr(n.link, wanted) }
	return n.lacks(fmt.Sprintf("its MAC is %s, not %s", mac, n.i.MAC), set)
}

func (n *inspection) allRoutes() error {
	own, moved := n.podRoutes()
	return n.tables(slices.Concat(own, moved)...)
}

// tables compares the routes of the main table, with further ones, and of the interface's own table, and its rules.
func (n *inspection) tables(further ...conf.Route) error {
	if n.plan.HasChained(n.i.Name) { // such plugins may have moved the routes, and check them
		return nil
	}
	if err := n.routes(unix.RT_TABLE_MAIN, slices.Concat(n.i.Routes, further), n.i.SharedRoutes); err != nil {
		return err
	}
	if n.i.Table == 0 {
		return nil
	}
	if err := n.routes(n.i.Table, tableRoutes(n.i), nil); err != nil {
		return err
	}
	return n.rules()
}

func (n *inspection) addresses(wanted []netip.Prefix) error {
	addrs, err := netlinksafe.AddrList(n.link, 0)
	if err != nil {
		return err
	}
	present := map[netip.Addr]bool{}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			present[ip.Unmap()] = true
		}
	}
	for _, a := range wanted {
		if present[a.Addr()] {
			continue
		}
		add := func() error {
			if a.Addr().Is6() {
				if _, err := setIPv6(n.i.Name, true); err != nil {
					return err
				}
			}
			return netlink.AddrReplace(n.link, address(a))
		}
		if err := n.lacks(fmt.Sprintf("it lacks address %s", a), add); err != nil {
			return err
		}
	}
	return nil
}

// podRoutes are the routes by the interface that the pod asks for itself, and its default routes if they were moved to
// the interface.
func (n *inspection) podRoutes() (own, moved []conf.Route) {
	for _, r := range n.plan.Routes {
		if r.Interface == n.i.Name {
			own = append(own, r.Route)
		}
	}
	if d := n.plan.Default; d != nil && d.Interface == n.i.Name {
		for _, g := range d.Gateways {
			moved = append(moved, conf.Route{Dst: anywhere(g), GW: g})
		}
	}
	return own, moved
}

// routes compares a table with routes by the interface alone, and with those that have further next hops.
func (n *inspection) routes(table int, alone, shared []conf.Route) error {
	if len(alone)+len(shared) == 0 {
		return nil
	}
	present, err := netlinksafe.RouteListFiltered(netlink.FAMILY_ALL,
		&netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	index := n.link.Attrs().Index
	again := len(shared) > 0
	for _, r := range slices.Concat(alone, shared) {
		if slices.ContainsFunc(present, func(route netlink.Route) bool { return isRoute(route, r, index) }) {
			continue
		}
		again = again || n.isShared(r)
		replace := func() error { return netlink.RouteReplace(kernelRoute(r, index, table)) }
		if slices.Contains(shared, r) {
			replace = func() error { return nil } // shareRoutes does it
		}
		if err := n.lacks(fmt.Sprintf("it lacks the route to %s", r.Dst), replace); err != nil {
			return err
		}
	}
	if again && n.repair && len(n.missing) > 0 {
		return shareRoutes(n.plan)
	}
	return nil
}

// isShared reports whether another interface has a next hop of the route.
func (n *inspection) isShared(r conf.Route) bool {
	return slices.ContainsFunc(n.plan.Interfaces, func(i agentapi.Interface) bool {
		return slices.Contains(i.SharedRoutes, r)
	})
}

func (n *inspection) rules() error {
	rules, err := netlinksafe.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range n.i.Addresses {
		if hasRule(rules, a.Addr(), n.i.Table) {
			continue
		}
		add := func() error { return netlink.RuleAdd(ruleFor(a.Addr(), n.i.Table)) }
		if err := n.lacks(fmt.Sprintf("it lacks the rule for %s", a.Addr()), add); err != nil {
			return err
		}
	}
	return nil
}

// firstOf joins the first words of a list, and counts the others.
func firstOf(all []string) string {
	if len(all) <= maxMissing {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s, and %d things more", strings.Join(all[:maxMissing], ", "), len(all)-maxMissing)
}
