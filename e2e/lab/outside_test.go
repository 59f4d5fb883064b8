package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// execer is a machine, inside or outside.
type execer interface {
	fmt.Stringer
	Exec(ctx context.Context, command ...string) (string, error)
}

func run(t *testing.T, m execer, command string) {
	t.Helper()
	if _, err := m.Exec(t.Context(), strings.Fields(command)...); err != nil {
		t.Fatal(err)
	}
}

// newMachine plugs the i-th machine of a switch, with its logical port.
func newMachine(t *testing.T, n *Node, ls string, i int, addrs ...string) *Machine {
	t.Helper()
	name, mac := fmt.Sprintf("%s-%d", ls, i), fmt.Sprintf("02:00:00:00:00:%02x", i)
	known := []string{mac}
	for _, addr := range addrs {
		known = append(known, netip.MustParsePrefix(addr).Addr().String())
	}
	_, err := n.lab.NBCtl(t.Context(), "lsp-add", ls, name, "--", "lsp-set-addresses", name, strings.Join(known, " "))
	if err != nil {
		t.Fatal(err)
	}
	m, err := n.NewMachine(t.Context(), name, mac, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newOutside(t *testing.T, l *Lab, name string, vlan int, addrs ...string) *Outside {
	t.Helper()
	o, err := l.Outside(t.Context(), name, vlan, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newCapture(t *testing.T, start func() (*Capture, error)) *Capture {
	t.Helper()
	c, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// reach tries for a while: neighbours and flows come when they come.
func reach(t *testing.T, m execer, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		err := Eventually(t.Context(), func() error {
			_, err := m.Exec(t.Context(), "ping", "-c1", "-W1", addr)
			return err
		})
		if err != nil {
			t.Errorf("%s does not reach %s: %v", m, addr, err)
		}
	}
}

// sources wants of a capture that requests came from these addresses alone.
func sources(t *testing.T, c *Capture, want ...string) {
	t.Helper()
	got, err := c.Sources()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("requests came from %v, want %v", got, want)
	}
}

// tags are the VLANs of the requests, each once.
func tags(t *testing.T, c *Capture) (vlans []int) {
	t.Helper()
	echoes, err := c.Echoes()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range echoes {
		vlans = append(vlans, e.VLAN)
	}
	slices.Sort(vlans)
	return slices.Compact(vlans)
}

// localnet is a switch on the provider's network; tag "" for an untagged one.
func localnet(t *testing.T, l *Lab, name, tag string) {
	t.Helper()
	nbctl(t, l, fmt.Sprintf(`
		ls-add %[1]s
		lsp-add %[1]s %[1]s-phys
		lsp-set-type %[1]s-phys localnet
		lsp-set-addresses %[1]s-phys unknown
		lsp-set-options %[1]s-phys network_name=provider`, name))
	if tag != "" {
		nbctl(t, l, "set Logical_Switch_Port "+name+"-phys tag_request="+tag)
	}
}

// TestOutside: two provider networks, untagged and VLAN 42, of the same subnets, so that nothing but the VLAN tells them
// apart.
func TestOutside(t *testing.T) {
	ctx, world := t.Context(), worldOf(t)
	l, err := New(ctx, Options{Nodes: 2, PrimaryOnly: true, Physical: "provider"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, err := l.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	localnet(t, l, "plain", "")
	localnet(t, l, "tagged", "42")
	plain := newMachine(t, l.Nodes[0], "plain", 1, "10.30.0.1/24", "fd30::1/64")
	tagged := newMachine(t, l.Nodes[1], "tagged", 2, "10.30.0.2/24", "fd30::2/64")
	host := map[int]*Outside{}
	for _, vlan := range []int{0, 42, 43} {
		host[vlan] = newOutside(t, l, fmt.Sprintf("host%d", vlan), vlan,
			fmt.Sprintf("10.30.0.%d/24", 100+vlan), fmt.Sprintf("fd30::%d/64", 100+vlan))
	}
	at := map[string]*Capture{
		"host0": newCapture(t, host[0].Capture), "host42": newCapture(t, host[42].Capture),
		"host43": newCapture(t, host[43].Capture),
		"trunk1": newCapture(t, l.Nodes[0].CaptureTrunk), "trunk2": newCapture(t, l.Nodes[1].CaptureTrunk),
	}
	reach(t, plain, "10.30.0.100", "fd30::100")
	reach(t, tagged, "10.30.0.142", "fd30::142")
	reach(t, host[0], "10.30.0.1", "fd30::1")
	reach(t, host[42], "10.30.0.2", "fd30::2")
	notReached(t, map[execer][]string{
		plain:    {"10.30.0.2", "10.30.0.142", "10.30.0.143", "fd30::142"},
		tagged:   {"10.30.0.1", "10.30.0.100", "10.30.0.143", "fd30::100"},
		host[43]: {"10.30.0.1", "10.30.0.2", "10.30.0.100", "10.30.0.142", "fd30::1", "fd30::2"},
		host[0]:  {"10.30.0.2", "10.30.0.142", "fd30::142"},
	})
	reach(t, host[42], "ff02::1%eth0") // to all in its VLAN, and nobody else
	sources(t, at["host0"], "10.30.0.1", "fd30::1")
	sources(t, at["host42"], "10.30.0.2", "fd30::2")
	sources(t, at["host43"])
	for name, want := range map[string][]int{"host0": {0}, "host42": {0}, "trunk1": {0}, "trunk2": {42}} {
		if got := tags(t, at[name]); !slices.Equal(got, want) {
			t.Errorf("requests at %s have VLANs %v, want %v", name, got, want)
		}
	}
	t.Run("Route", func(t *testing.T) { testOutsideRoute(t, l, plain, host[0]) })
	testSnapshotOfPatches(t, l, before, plain, tagged)
	if err := host[43].Close(); err != nil {
		t.Error(err)
	}
	newOutside(t, l, "host43", 42, "10.30.0.143/24") // the name is free again
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	assertGone(t, world)
}

// testOutsideRoute has a machine inside forward to an address of its own that is on no common subnet.
func testOutsideRoute(t *testing.T, l *Lab, inside *Machine, host *Outside) {
	nbctl(t, l, "set Logical_Switch_Port "+inside.Name+` addresses="unknown"`)
	run(t, inside, "ip addr add 198.51.100.1/32 dev lo")
	run(t, inside, "ip addr add 2001:db8:1::1/128 dev lo")
	for _, via := range []struct{ four, six string }{{"10.30.0.250", "fd30::250"}, {"10.30.0.1", "fd30::1"}} {
		if err := errors.Join(host.Route(t.Context(), "198.51.100.0/24", via.four),
			host.Route(t.Context(), "default", via.six)); err != nil {
			t.Fatal(err)
		}
	}
	reach(t, host, "198.51.100.1", "2001:db8:1::1")
}

// testSnapshotOfPatches looks whether the ports that ovn-controller makes for a localnet port are seen, and their end.
func testSnapshotOfPatches(t *testing.T, l *Lab, before Snapshot, machines ...*Machine) {
	t.Helper()
	ctx := t.Context()
	during, err := l.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`+ node1 ovs Port name="patch-plain-phys-to-br-int"`, `+ node2 ovs Port name="patch-tagged-phys-to-br-int"`} {
		if diff := before.Diff(during); !strings.Contains(diff, want) {
			t.Errorf("snapshot's difference lacks %q:\n%s", want, diff)
		}
	}
	for _, m := range machines {
		if err := m.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	nbctl(t, l, "ls-del plain\nls-del tagged")
	// ovn-controller spares patch ports for some seconds after its start, and looks again only when something happens.
	err = Eventually(ctx, func() error {
		if _, err := l.NBCtl(ctx, timeoutArg(ctx), "--wait=hv", "sync"); err != nil {
			return err
		}
		after, err := l.Snapshot(ctx)
		if diff := before.Diff(after); err == nil && diff != "" {
			err = errors.New(diff)
		}
		return err
	})
	if err != nil {
		t.Errorf("the switches' end left: %v", err)
	}
}

// notReached tries all at once, since each waits for an answer that must not come.
func notReached(t *testing.T, pairs map[execer][]string) {
	t.Helper()
	var all errgroup.Group
	for m, addrs := range pairs {
		for _, addr := range addrs {
			all.Go(func() error {
				if out, err := m.Exec(t.Context(), "ping", "-c1", "-W1", addr); err == nil {
					return fmt.Errorf("%s reaches %s in another VLAN: %s", m, addr, out)
				}
				return nil
			})
		}
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

func TestNoOutside(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	_, machine := l.Outside(t.Context(), "host", 0)
	_, trunk := l.Nodes[0].CaptureTrunk()
	for name, err := range map[string]error{"machine": machine, "trunk": trunk} {
		if !errors.Is(err, errNoOutside) {
			t.Errorf("%s: got %v, want %v", name, err, errNoOutside)
		}
	}
	if out, err := l.Nodes[0].VSCtl(t.Context(), "list-br"); err != nil || strings.Contains(out, providerBridge) {
		t.Errorf("bridges without an outside world: %q, %v", out, err)
	}
}
