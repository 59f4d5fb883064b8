package wiring

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// Delete deletes the veths of a sandbox. If their link group has no other link, Delete deletes all of them by one
// request for the group, which is much faster than single requests. p is nil if the plan is not known.
//
// Delete calls gone once, as soon as the pod can send nothing any more by these veths, and does not call gone if Delete
// fails. As a rule that is long before Delete returns: see announce.
func Delete(s *agentapi.Sandbox, p *agentapi.Plan, gone func()) error {
	links, alone, err := hostVeths(s, p)
	if err != nil {
		return err
	}
	return announce(links, gone, func() error {
		if alone && len(links) > 1 {
			return deleteGroup(linkGroup(s))
		}
		return deleteLinks(links)
	})
}

// hostVeths finds the host-side veths of a sandbox. alone tells whether their link group has no other link.
func hostVeths(s *agentapi.Sandbox, p *agentapi.Plan) (ours []netlink.Link, alone bool, err error) {
	if p != nil && len(p.Interfaces) <= 1 {
		var names []string
		for _, i := range p.Interfaces {
			names = append(names, agentapi.HostVeth(s.ContainerID, i.Name))
		}
		ours, err = linksByName(names)
		return ours, false, err
	}
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, false, fmt.Errorf("list links: %w", err)
	}
	group := linkGroup(s)
	alone = true
	for _, l := range links {
		a := l.Attrs()
		if a.Group != group {
			continue
		}
		if l.Type() == "veth" && strings.HasPrefix(a.Name, agentapi.HostVethPrefix) && isHostVeth(s, p, a.Name) {
			ours = append(ours, l)
		} else {
			alone = false
		}
	}
	return ours, alone, nil
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

// isHostVeth tells whether a host-side veth belongs to the plan. Without a plan, the answer is yes: the link group
// and the prefix of the name have decided.
func isHostVeth(s *agentapi.Sandbox, p *agentapi.Plan, name string) bool {
	return p == nil || slices.ContainsFunc(p.Interfaces, func(i agentapi.Interface) bool {
		return agentapi.HostVeth(s.ContainerID, i.Name) == name
	})
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

func deleteLinks(links []netlink.Link) error {
	var errs []error
	for _, link := range links {
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("delete link %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

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

// linkGroup is the group of a sandbox's host-side veths, so that one request can delete them. It avoids the small
// numbers that people use, and the sign bit.
func linkGroup(s *agentapi.Sandbox) uint32 {
	sum := sha256.Sum256([]byte(s.ID()))
	return binary.BigEndian.Uint32(sum[:])&0x3fffffff | 0x40000000
}
