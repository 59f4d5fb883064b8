package wiring

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// SaveRoutes returns the routes of the primary interface that SetRoutes may change. Each route is a netlink message
// from the kernel. The same message, sent to the kernel, adds the same route, even with attributes that this program
// does not know. Nil: SetRoutes will change no route.
func SaveRoutes(netns, primary string, p *agentapi.Plan) (saved [][]byte, err error) {
	changed := changedOn(primary, p)
	if len(changed) == 0 {
		return nil, nil
	}
	err = ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := netlinksafe.LinkByName(primary)
		if err != nil {
			return err
		}
		saved, err = routesTo(changed, link)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("interface %s: list its routes: %w", primary, err)
	}
	return saved, nil
}

// RestoreRoutes restores the routes of the primary interface that SaveRoutes returned. First it deletes the default
// routes of the interface that got them, because this interface stays if the DEL of its delegate fails.
func RestoreRoutes(netns, primary string, p *agentapi.Plan, saved [][]byte) error {
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := netlinksafe.LinkByName(primary)
		if err != nil {
			return err
		}
		var errs []error
		if p.Default != nil {
			errs = append(errs, deleteDefaultsOf(p.Default.Interface))
		}
		changed := changedOn(primary, p)
		delete(changed, anywhere(netip.IPv4Unspecified())) // SetRoutes adds no default route to this interface
		delete(changed, anywhere(netip.IPv6Unspecified()))
		now, err := routesTo(changed, link)
		errs = append(errs, err)
		for _, route := range now {
			if !slices.ContainsFunc(saved, func(s []byte) bool { return bytes.Equal(s, route) }) {
				errs = append(errs, sendRoute(unix.RTM_DELROUTE, 0, route))
			}
		}
		for _, route := range saved {
			// With NLM_F_APPEND, routes with the same destination and metric keep their order.
			if err := sendRoute(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, route); !errors.Is(err, unix.EEXIST) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// changedOn returns the destinations whose routes on the primary interface SetRoutes may change: the destinations of
// the pod's own routes, and, if default routes move, the default routes and the networks to keep.
func changedOn(primary string, p *agentapi.Plan) map[netip.Prefix]bool {
	changed := map[netip.Prefix]bool{}
	for _, r := range p.Routes {
		if r.Interface == primary {
			changed[r.Dst] = true
		}
	}
	if p.Default != nil {
		changed[anywhere(netip.IPv4Unspecified())], changed[anywhere(netip.IPv6Unspecified())] = true, true
		for _, k := range p.Default.Keep {
			changed[k] = true
		}
	}
	return changed
}

// routesTo lists a link's routes to these destinations in the main table, as the kernel's messages.
func routesTo(dsts map[netip.Prefix]bool, link netlink.Link) ([][]byte, error) {
	messages, err := dumpRoutes()
	if err != nil {
		return nil, err
	}
	routes := [][]byte{}
	for _, m := range messages {
		dst, index, err := parseRoute(m)
		if err != nil {
			return nil, err
		}
		if index == link.Attrs().Index && dsts[dst] {
			routes = append(routes, m)
		}
	}
	return routes, nil
}

// dumpTries limits the attempts to list routes that change during the dump.
const dumpTries = 5

func dumpRoutes() (messages [][]byte, err error) {
	for range dumpTries {
		request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
		request.AddData(&nl.RtMsg{}) // of all families
		messages, err = request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	return messages, err
}

// parseRoute reads the destination and the interface of an IP route in the main table. For other routes, and for
// routes with several next hops, the interface is 0.
func parseRoute(message []byte) (dst netip.Prefix, index int, err error) {
	header := nl.DeserializeRtMsg(message)
	addr := netip.IPv4Unspecified()
	switch header.Family {
	case unix.AF_INET:
	case unix.AF_INET6:
		addr = netip.IPv6Unspecified()
	default:
		return netip.Prefix{}, 0, nil
	}
	attrs, err := nl.ParseRouteAttr(message[header.Len():])
	if err != nil || header.Table != unix.RT_TABLE_MAIN {
		return netip.Prefix{}, 0, err
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_DST:
			addr, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_OIF:
			index = int(nl.NativeEndian().Uint32(a.Value))
		}
	}
	return netip.PrefixFrom(addr, int(header.Dst_len)), index, nil
}

// sendRoute sends a route to the kernel, to add or delete the route. It clears the flags that report the state of a
// route, because the kernel does not accept them.
func sendRoute(what, flags int, message []byte) error {
	header := nl.DeserializeRtMsg(slices.Clone(message))
	header.Flags &= unix.RTNH_F_ONLINK | unix.RTNH_F_PERVASIVE
	request := nl.NewNetlinkRequest(what, flags|unix.NLM_F_ACK)
	request.AddData(header)
	request.AddRawData(message[header.Len():])
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
