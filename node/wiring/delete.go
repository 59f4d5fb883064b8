package wiring

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// Delete deletes the veths of a sandbox. p is nil if the plan is not known.
//
// Delete calls gone once, as soon as the pod can send nothing any more by these veths, and does not call gone if Delete
// fails. As a rule that is long before Delete returns: see announce.
func Delete(s *agentapi.Sandbox, p *agentapi.Plan, gone func()) error {
	links, err := hostVeths(s, p)
	if err != nil {
		return err
	}
	return announce(links, gone, func() error { return deleteLinks(links) })
}

// hostVeths finds the host-side veths of a sandbox by their names. Only without a plan it lists all links of the node,
// and finds the veths by their link group.
func hostVeths(s *agentapi.Sandbox, p *agentapi.Plan) (ours []netlink.Link, err error) {
	if p != nil {
		var names []string
		for _, i := range p.Interfaces {
			names = append(names, agentapi.HostVeth(s.ContainerID, i.Name))
		}
		return linksByName(names)
	}
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Group == linkGroup(s) && l.Type() == "veth" && strings.HasPrefix(a.Name, agentapi.HostVethPrefix) {
			ours = append(ours, l)
		}
	}
	return ours, nil
}

// Lost are the interfaces of a plan whose host-side veths are gone: somebody has deleted them, or the pod its ends.
func Lost(s *agentapi.Sandbox, p *agentapi.Plan) (names []string, err error) {
	for _, i := range p.Interfaces {
		there, err := linksByName([]string{agentapi.HostVeth(s.ContainerID, i.Name)})
		if err != nil {
			return nil, err
		}
		if len(there) == 0 {
			names = append(names, i.Name)
		}
	}
	return names, nil
}

// announce deletes links, and calls gone once when the kernel says that they are deleted. The kernel says so to the
// listeners when it has stopped the links and taken them off its list. Only after another grace period for all of its
// CPUs it answers the request, ten times later.
func announce(links []netlink.Link, gone func(), deletion func() error) error {
	gone = sync.OnceFunc(gone)
	stop := whenDeleted(links, gone)
	err := deletion()
	stop()
	if err == nil {
		gone() // no listener, or the kernel dropped messages to it
	}
	return err
}

// whenDeleted calls gone when the kernel has told its listeners that it has deleted all links. stop ends the listening.
func whenDeleted(links []netlink.Link, gone func()) (stop func()) {
	if len(links) == 0 {
		return func() {}
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return func() {}
	}
	present := map[int]bool{}
	for _, l := range links {
		present[l.Attrs().Index] = true
	}
	if hearOnly(socket.GetFd(), slices.Collect(maps.Keys(present))) != nil {
		socket.Close()
		return func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for len(present) > 0 {
			messages, _, err := socket.Receive()
			if err != nil {
				return // the socket is closed, or has lost messages
			}
			for _, m := range messages {
				if m.Header.Type != unix.RTM_DELLINK || len(m.Data) < unix.SizeofIfInfomsg {
					continue
				}
				// A link that leaves a bridge is announced with the bridge's family.
				if info := nl.DeserializeIfInfomsg(m.Data); info.Family == unix.AF_UNSPEC {
					delete(present, int(info.Index))
				}
			}
		}
		gone()
	}()
	return func() {
		socket.Close()
		<-ended
	}
}

// hearOnly has a socket of the link group receive the deletions of these links and nothing else. When a herd of pods
// ends, each of their plugins would be woken by the links of all others.
func hearOnly(fd int, links []int) error {
	const mostJumps = 200 // a jump has 8 bits
	if len(links) > mostJumps {
		return nil
	}
	// Offsets in struct nlmsghdr and the struct ifinfomsg behind it. The filter reads numbers in network order.
	filter := []unix.SockFilter{
		{Code: loadHalf, K: 4},
		{Code: ifEqual, K: uint32(networkOrder(unix.RTM_DELLINK)), Jf: uint8(len(links)) + 1},
		{Code: loadWord, K: unix.SizeofNlMsghdr + 4},
	}
	for i, index := range links {
		number := binary.NativeEndian.AppendUint32(nil, uint32(index))
		filter = append(filter, unix.SockFilter{
			Code: ifEqual, K: binary.BigEndian.Uint32(number), Jt: uint8(len(links) - i),
		})
	}
	filter = append(filter, unix.SockFilter{Code: accept, K: 0}, unix.SockFilter{Code: accept, K: 1 << 16})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
}

// DeleteVeths deletes host-side veths by their names. Their sandboxes are no longer in the journal.
func DeleteVeths(names []string) error {
	var ours []string
	for _, name := range names {
		if strings.HasPrefix(name, agentapi.HostVethPrefix) {
			ours = append(ours, name)
		}
	}
	links, err := linksByName(ours)
	return errors.Join(err, deleteLinks(links))
}

// linksByName finds links. A link that is absent is no error: the kernel deletes it with the pod's namespace.
func linksByName(names []string) (links []netlink.Link, err error) {
	var errs []error
	for _, name := range names {
		link, err := netlinksafe.LinkByName(name)
		if err == nil {
			links = append(links, link)
		} else if _, absent := errors.AsType[netlink.LinkNotFoundError](err); !absent && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("find link %s: %w", name, err))
		}
	}
	return links, errors.Join(errs...)
}

// deleteLinks deletes links. It puts several links into a group of their own, and deletes the group by one request,
// because each request costs a grace period. The number of the group contains the index of one of the links, so no
// other call uses this group.
func deleteLinks(links []netlink.Link) error {
	if len(links) > 1 && links[0].Attrs().Index < deletedGroup {
		group := deletedGroup | links[0].Attrs().Index
		var errs []error
		for _, link := range links {
			if err := netlink.LinkSetGroup(link, group); err != nil && !errors.Is(err, unix.ENODEV) {
				errs = append(errs, fmt.Errorf("group of link %s: %w", link.Attrs().Name, err))
			}
		}
		return errors.Join(append(errs, deleteGroup(uint32(group)))...)
	}
	var errs []error
	for _, link := range links {
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("delete link %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// deletedGroup is the first of the groups of links that are being deleted. These groups are below those of linkGroup.
const deletedGroup = 1 << 29

// deleteGroup is `ip link del group N`, which the netlink library does not have: RTM_DELLINK with IFLA_GROUP, and
// with neither an index nor a name.
func deleteGroup(group uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete links of group %d: %w", group, err)
	}
	return nil
}

// linkGroup is the group of a sandbox's host-side veths: without a plan, Delete finds the veths by their group. The
// group avoids the small numbers that people use, and the sign bit.
func linkGroup(s *agentapi.Sandbox) uint32 {
	sum := sha256.Sum256([]byte(s.ID()))
	return binary.BigEndian.Uint32(sum[:])&0x3fffffff | 0x40000000
}
