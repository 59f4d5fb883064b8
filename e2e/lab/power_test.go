package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// carriers are the node's NICs that have one.
func carriers(t *testing.T, n *Node) (names []string) {
	t.Helper()
	err := n.Do(func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			a := link.Attrs()
			if nic := a.Name == "eth0" || a.Name == "eth1" || a.Name == providerNIC; nic && a.RawFlags&unix.IFF_LOWER_UP != 0 {
				names = append(names, a.Name)
			}
		}
		slices.Sort(names)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPower takes a node's power away three times, the last time with its agent stopped before.
func TestPower(t *testing.T) {
	l, n := withStandIns(t)
	ctx, ready := t.Context(), agentapi.ReadyMarker(n.AgentSocket)
	if err := n.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	vm, err := n.NewMachine(ctx, "vm", "02:00:00:00:00:01")
	if err != nil {
		t.Fatal(err)
	}
	guest, err := vm.Start(ctx, "sleep", "1000")
	if err == nil {
		_, err = n.VSCtl(ctx, "set", "Bridge", integrationBridge, "external_ids:mark=kept")
	}
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		agent := round < 2
		if !agent {
			if err := n.StopAgent(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(ready, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		daemons := []*Process{n.OVSDB, n.VSwitchd, n.OVNController}
		old := []int{}
		for _, p := range daemons {
			old = append(old, p.Pid())
		}
		if err := n.PowerOff(ctx); err != nil {
			t.Fatal(err)
		}
		for _, p := range append(daemons, n.Agent, guest) {
			if p.Running() {
				t.Errorf("%s runs without power", p.Name)
			}
		}
		if got := carriers(t, n); got != nil {
			t.Errorf("without power %v have a carrier", got)
		}
		if err := hasLink(n.NetNS, underlayBridge)(ctx); err == nil {
			t.Errorf("%s is there without power", underlayBridge)
		}
		for _, path := range []string{n.AgentSocket, ready} {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s outlived the loss of power: %v", path, err)
			}
		}

		if err := n.PowerOn(ctx); err != nil {
			t.Fatal(err)
		}
		for i, p := range daemons {
			if !p.Running() || p.Pid() == old[i] {
				t.Errorf("%s after the boot: running %t, pid %d, had %d", p.Name, p.Running(), p.Pid(), old[i])
			}
		}
		if n.Agent.Running() != agent || guest.Running() {
			t.Errorf("after the boot the agent runs: %t, want %t; the machine's process: %t, want false", n.Agent.Running(), agent, guest.Running())
		}
		if got := carriers(t, n); !slices.Equal(got, []string{"eth0", "eth1"}) {
			t.Errorf("after the boot %v have a carrier", got)
		}
		if got, err := n.VSCtl(ctx, "get", "Bridge", integrationBridge, "external_ids:mark"); err != nil || got != "kept" {
			t.Errorf("the OVS database has lost its mark: %q, %v", got, err)
		}
		if err := n.has(underlayBridge, n.EncapIP); err != nil {
			t.Error(err)
		}
		if _, err := l.NBCtl(ctx, timeoutArg(ctx), "--wait=hv", "ls-add", fmt.Sprintf("after%d", round)); err != nil {
			t.Errorf("ovn-controller after the boot: %v", err)
		}
	}
}

// has tells whether a link of the node has the address.
func (n *Node) has(name string, ip net.IP) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err == nil && !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(ip) }) {
			err = fmt.Errorf("%s has addresses %v, not %s", name, addrs, ip)
		}
		return err
	})
}

func TestPowerOnOfARunningNode(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	err := l.Nodes[0].PowerOn(t.Context())
	if err == nil || !strings.Contains(err.Error(), "power node1 on: start node1/ovsdb-server: it runs already") {
		t.Errorf("got %v, want that it runs already", err)
	}
}
