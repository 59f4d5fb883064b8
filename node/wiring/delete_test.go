package wiring

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// addVeth makes a veth pair in this namespace.
func addVeth(t *testing.T, name string, group uint32) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group = name, group
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "p" + name[1:]
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func hasLink(t *testing.T, name string) bool {
	t.Helper()
	_, err := netlink.LinkByName(name)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); err != nil && !absent {
		t.Fatal(err)
	}
	return err == nil
}

// The kernel announces that links are gone before it answers the request, and then none of them is left.
func TestGoneIsAnnounced(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	const group = 1<<30 + 1
	links := []netlink.Link{addVeth(t, "mn1", group), addVeth(t, "mn2", group), addVeth(t, "mn3", group)}
	told := make(chan int, len(links))
	err := announce(links, func() {
		left := 0
		for _, l := range links {
			if hasLink(t, l.Attrs().Name) {
				left++
			}
		}
		told <- left
	}, func() error {
		err := deleteGroup(group)
		select {
		case left := <-told:
			if left > 0 {
				t.Errorf("%d links are left", left)
			}
		case <-time.After(time.Minute):
			t.Error("nothing was announced while the request ran")
		}
		return err
	})
	if err != nil || len(told) > 0 {
		t.Errorf("%v; announced again: %t", err, len(told) > 0)
	}
}

// TestOtherLinksWakeNobody: the socket that listens for the end of some links receives nothing of other links, and the
// end of each of its own.
func TestOtherLinksWakeNobody(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	ours := []netlink.Link{addVeth(t, "mn1", 0), addVeth(t, "mn2", 0)}
	other := addVeth(t, "mn3", 0)
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := hearOnly(socket.GetFd(), []int{ours[0].Attrs().Index, ours[1].Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{netlink.LinkSetUp(other), netlink.LinkSetUp(ours[0]), netlink.LinkDel(other),
		netlink.LinkDel(ours[1]), netlink.LinkDel(ours[0])} {
		if step != nil {
			t.Fatal(step)
		}
	}
	for _, want := range []netlink.Link{ours[1], ours[0]} {
		messages, _, err := socket.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if got := nl.DeserializeIfInfomsg(m.Data); m.Header.Type != unix.RTM_DELLINK || int(got.Index) != want.Attrs().Index {
				t.Errorf("message %d of link %d, want the end of %d", m.Header.Type, got.Index, want.Attrs().Index)
			}
		}
	}
}

// As long as one link is left, nothing is announced: a request that fails, a link that leaves a bridge.
func TestGoneIsAllLinks(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	links := []netlink.Link{addVeth(t, "mn1", 0), addVeth(t, "mn2", 0)}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	failure := errors.New("the second link stays")
	err := announce(links, func() { t.Error("a link is left") }, func() error {
		return errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetMaster(links[1], bridge), netlink.LinkDel(links[0]),
			netlink.LinkSetNoMaster(links[1]), netlink.LinkDel(bridge), failure)
	})
	if !errors.Is(err, failure) || err.Error() != failure.Error() {
		t.Error(err)
	}
}

// Delete deletes the links of a plan and no other, and says once that they are gone.
func TestDelete(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	s := &agentapi.Sandbox{ContainerID: "c1", Interface: "eth0"}
	group := linkGroup(s)
	names := []string{"net1", "net2", "net3"}
	for _, tt := range []struct {
		name     string
		made     []string // the links that the kernel has
		planned  []string
		noPlan   bool
		stranger bool // another link is in the group
	}{
		{name: "no interface"},
		{name: "one", made: names[:1], planned: names[:1]},
		{name: "one that is gone", planned: names[:1]},
		{name: "three", made: names, planned: names},
		{name: "three, one is gone", made: names[1:], planned: names},
		{name: "three that are gone", planned: names},
		{name: "a stranger in the group", made: names, planned: names, stranger: true},
		{name: "without a plan", made: names, noPlan: true},
		{name: "without a plan, a stranger in the group", made: names, noPlan: true, stranger: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range tt.made {
				addVeth(t, agentapi.HostVeth(s.ContainerID, name), group)
			}
			if tt.stranger {
				addVeth(t, "stranger", group)
			}
			other := agentapi.HostVeth("c2", "net1")
			addVeth(t, other, linkGroup(&agentapi.Sandbox{ContainerID: "c2", Interface: "eth0"}))
			addVeth(t, "moved", deletedGroup)
			plan := &agentapi.Plan{}
			for _, name := range tt.planned {
				plan.Interfaces = append(plan.Interfaces, agentapi.Interface{Name: name})
			}
			if tt.noPlan {
				plan = nil
			}
			told := 0
			if err := Delete(s, plan, func() {
				told++
				if slices.ContainsFunc(names, func(name string) bool { return hasLink(t, agentapi.HostVeth("c1", name)) }) {
					t.Error("a link is left")
				}
			}); err != nil || told != 1 {
				t.Errorf("%v; told %d times", err, told)
			}
			if !hasLink(t, other) || !hasLink(t, "moved") || hasLink(t, "stranger") != tt.stranger {
				t.Error("a link of another owner is gone")
			}
			for _, name := range []string{other, "moved", "stranger"} {
				if !hasLink(t, name) {
					continue
				}
				link, err := netlink.LinkByName(name)
				if err = errors.Join(err, netlink.LinkDel(link)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
