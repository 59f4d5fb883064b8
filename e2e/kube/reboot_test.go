//go:build kube

package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestReboot reboots a node with its disk as it was, then with its OVS database wiped, then both nodes at once. A node
// comes back as it was after its first boot, and has of the time before what was on its disk.
func TestReboot(t *testing.T) {
	defer try.F(t.Fatal)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	before := worldOf(t)
	c := Start(t, Options{Nodes: 2})
	try.E(c.Apply(ctx, podYAML("a", "node1", false)+"---\n"+podYAML("b", "node2", false)))
	try.E(c.WaitReady(ctx, "default/a", "default/b"))
	for _, round := range []struct {
		name  string
		o     RebootOptions
		nodes []*Node
	}{
		{"disk as it was", RebootOptions{}, c.Nodes[:1]},
		{"OVS wiped", RebootOptions{WipeOVS: true}, c.Nodes[1:]},
		{"all nodes", RebootOptions{}, c.Nodes},
	} {
		t.Run(round.name, func(t *testing.T) {
			var machines []*machine
			for _, n := range round.nodes {
				machines = append(machines, mark(t, ctx, n))
			}
			began := time.Now()
			if err := c.Reboot(ctx, round.o, round.nodes...); err != nil {
				t.Fatal(err)
			}
			t.Logf("booted after %v", time.Since(began).Round(time.Millisecond))
			for _, m := range machines {
				m.isAnew(ctx, round.o.WipeOVS)
			}
			for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
				reachesByFlannel(t, ctx, c, pair[0], pair[1])
			}
			t.Logf("pods reach each other after %v", time.Since(began).Round(time.Millisecond))
			if _, err := c.NBCtl(ctx, "--timeout=60", "--wait=hv", "sync"); err != nil {
				t.Errorf("an ovn-controller does not follow: %v", err)
			}
		})
	}
	try.E(c.Nodes[0].PowerOff(ctx))
	isOff(t, c.Nodes[0])
	try.E(c.Close())
	assertGone(t, before)
}

// isOff finds nothing of a node without power but its disk.
func isOff(t *testing.T, n *Node) {
	t.Helper()
	for _, p := range []*lab.Process{n.Holder, n.Containerd, n.Kubelet, n.Flanneld, n.KubeProxy, n.OVSDB, n.VSwitchd, n.OVNController} {
		if p.Running() {
			t.Errorf("%s runs without power", p.Name)
		}
	}
	for _, path := range []string{n.NetNS, n.OwnFolder("/run"), n.OwnFolder("/tmp"), n.OVSSocket} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there without power: %v", path, err)
		}
	}
	for _, root := range n.groups.roots {
		if _, err := os.Stat(filepath.Join(root, n.groups.name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the control group of %s in %s is there without power: %v", n.Name, root, err)
		}
	}
	if _, err := os.Stat(n.OwnFolder("/etc/cni/net.d/10-flannel.conflist")); err != nil {
		t.Error(err)
	}
}

// machine is what a node was before its reboot, with marks in all that a reboot takes and in all that it leaves.
type machine struct {
	*Node
	t       *testing.T
	nics    map[string]string
	sandbox string
	process *lab.Process
	group   string
}

const markName = "before-reboot"

// kept and lost are files of a node, by where they are.
var (
	kept = []string{"/etc/cni/", "/opt/cni/bin/", "/var/lib/cni/", "/var/lib/containerd/", "/var/lib/kubelet/", "/var/log/", "/srv/"}
	lost = []string{"/run/", "/tmp/", "/run/openvswitch/"}
)

// pod of a node: the first has a, the second b.
func (m *machine) pod() string { return map[int]string{1: "default/a", 2: "default/b"}[m.Index] }

func mark(t *testing.T, ctx context.Context, n *Node) *machine {
	defer try.F(t.Fatal)
	t.Helper()
	m := &machine{Node: n, t: t, nics: nicsOf(t, n)}
	var err error
	m.sandbox = try.E1(n.SandboxID(ctx, m.pod()))
	m.process = try.E1(n.daemon(ctx, "sleep", nil, "sleep", "1000"))
	m.group = filepath.Join(n.groups.roots[0], n.groups.name, markName)
	errs := []error{os.Mkdir(m.group, 0o755)}
	for _, dir := range slices.Concat(kept, lost) {
		errs = append(errs, n.writeFile(dir+markName, markName))
	}
	for _, command := range [][]string{
		{"nft", "add", "table", "inet", markName},
		{"ip", "link", "add", "mark0", "type", "veth", "peer", "name", "mark1"},
		{"ip", "route", "add", "192.0.2.0/24", "dev", "lo"},
		{"mkdir", "/var/mounted"},
		{"mount", "-t", "tmpfs", "none", "/var/mounted"},
	} {
		_, err := n.Run(ctx, command...)
		errs = append(errs, err)
	}
	_, err = n.VSCtl(ctx, "set", "Bridge", "br-phy", "external_ids:mark=kept")
	try.E(errors.Join(append(errs, err)...))
	return m
}

// nicsOf are a node's NICs with what others know of them.
func nicsOf(t *testing.T, n *Node) map[string]string {
	t.Helper()
	nics := map[string]string{}
	err := n.Do(func() error {
		for _, name := range []string{"eth0", "eth1", "br-phy"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
			if err != nil {
				return err
			}
			nics[name] = fmt.Sprint(link.Attrs().HardwareAddr, link.Attrs().MTU, addrs)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("NICs of %s: %v", n.Name, err)
	}
	return nics
}

// isAnew holds a node that has booted against what it was, and waits for its pod.
func (m *machine) isAnew(ctx context.Context, wiped bool) {
	defer try.F(m.t.Fatal)
	m.t.Helper()
	if m.process.Running() {
		m.t.Errorf("%s: a process outlived the reboot", m.Name)
	}
	if _, err := os.Stat(m.group); !errors.Is(err, fs.ErrNotExist) {
		m.t.Errorf("%s: a control group outlived the reboot: %v", m.Name, err)
	}
	for _, dir := range kept {
		if b, err := os.ReadFile(m.Path(dir + markName)); err != nil || string(b) != markName {
			m.t.Errorf("%s: a file in %s did not stay: %q, %v", m.Name, dir, b, err)
		}
	}
	for _, dir := range lost {
		if _, err := os.Stat(m.Path(dir + markName)); !errors.Is(err, fs.ErrNotExist) {
			m.t.Errorf("%s: a file in %s stayed: %v", m.Name, dir, err)
		}
	}
	for _, command := range [][]string{
		{"nft", "list", "table", "inet", markName}, {"ip", "link", "show", "mark0"}, {"mountpoint", "/var/mounted"},
	} {
		if out, err := m.Run(ctx, command...); err == nil {
			m.t.Errorf("%s: %q answers %q after the reboot", m.Name, command, out)
		}
	}
	if out, err := m.Run(ctx, "ip", "route", "show", "192.0.2.0/24"); err != nil || out != "" {
		m.t.Errorf("%s: a route stayed: %q, %v", m.Name, out, err)
	}
	if now := nicsOf(m.t, m.Node); fmt.Sprint(now) != fmt.Sprint(m.nics) {
		m.t.Errorf("%s: NICs are %v, were %v", m.Name, now, m.nics)
	}
	m.hasOVS(ctx, wiped)
	err := lab.Eventually(ctx, func() error {
		id, err := m.SandboxID(ctx, m.pod())
		if err == nil && id == m.sandbox {
			err = fmt.Errorf("sandbox %s of %s outlived the reboot", id, m.pod())
		}
		return err
	})
	try.E(errors.Join(err, m.cluster.WaitReady(ctx, m.pod())))
	if _, err := m.Run(ctx, "sh", "-c", "rm "+strings.Join(kept, markName+" ")+markName+" && rmdir /var/mounted"); err != nil {
		m.t.Error(err)
	}
}

// hasOVS finds the same chassis with its tunnel, by the database of before or by a new one.
func (m *machine) hasOVS(ctx context.Context, wiped bool) {
	m.t.Helper()
	want := "kept"
	if wiped {
		want = ""
	}
	if got, err := m.VSCtl(ctx, "--if-exists", "get", "Bridge", "br-phy", "external_ids:mark"); err != nil || got != want {
		m.t.Errorf("%s: the mark in the OVS database is %q, want %q, %v", m.Name, got, want, err)
	}
	if got, err := m.VSCtl(ctx, "get", "Open_vSwitch", ".", "external_ids:system-id"); err != nil || strings.Trim(got, `"`) != m.SystemID {
		m.t.Errorf("%s: system-id %s, want %s, %v", m.Name, got, m.SystemID, err)
	}
	err := lab.Eventually(ctx, func() error {
		got, err := m.VSCtl(ctx, "--bare", "--columns=ofport", "find", "Interface", "type=geneve")
		if err == nil && (got == "" || got == "-1") {
			err = fmt.Errorf("%s has no tunnel: ofport %q", m.Name, got)
		}
		return err
	})
	if err != nil {
		m.t.Error(err)
	}
}

// reachesByFlannel pings until flanneld has told the other node of what is new here.
func reachesByFlannel(t *testing.T, ctx context.Context, c *Cluster, from, to string) {
	t.Helper()
	err := lab.Eventually(ctx, func() error {
		out, err := c.Exec(ctx, "default/"+from, "main", "/podtool", "ping", "-W", "1", podIP(t, c, "default/"+to))
		if err == nil && !strings.HasSuffix(out, "1 of 1 answered") {
			err = errors.New(out)
		}
		return err
	})
	if err != nil {
		t.Errorf("%s does not reach %s: %v", from, to, err)
	}
}
