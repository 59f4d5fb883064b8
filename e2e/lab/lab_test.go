package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
)

// The project's own binaries take no part: the lab has to stand without them.
func TestMain(m *testing.M) {
	standIn()
	if os.Getenv(holdEnv) != "" {
		fmt.Fprintln(os.Stderr, holdLab())
		os.Exit(1)
	}
	Main(m, WithoutOurs())
}

func TestTwoNodes(t *testing.T) {
	ctx := t.Context()
	before := worldOf(t)
	began := time.Now()
	l, err := New(ctx, Options{Nodes: 2, PrimaryOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Logf("two nodes up in %v", time.Since(began).Round(time.Millisecond))

	t.Run("Flannel", func(t *testing.T) { testFlannel(t, l) })
	t.Run("Geneve", func(t *testing.T) { testGeneve(t, l) })
	t.Run("ChassisIsNotNode", func(t *testing.T) {
		for _, n := range l.Nodes {
			if got, err := l.SBCtl(ctx, "get", "Chassis", n.SystemID, "hostname"); err != nil || got != n.Name {
				t.Errorf("hostname of chassis %s: got %s, %v, want %s", n.SystemID, got, err, n.Name)
			}
			if n.SystemID == n.Name {
				t.Errorf("chassis and node are both called %s", n.Name)
			}
		}
	})

	began = time.Now()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("down in %v", time.Since(began).Round(time.Millisecond))
	assertGone(t, before)
}

// When a sandbox's namespace is gone, so are its links in the host: the kernel takes them away some time after the name.
func TestRemoveNetNS(t *testing.T) {
	l := Start(t, Options{Nodes: 1, PrimaryOnly: true})
	for range 10 {
		p := newPod(t, l.Nodes[0], "web")
		if _, err := p.Add(t.Context()); err != nil {
			t.Fatal(err)
		}
		ends, err := p.hostEnds()
		if err != nil || len(ends) != 1 {
			t.Fatalf("host ends %q, %v, want one", ends, err)
		}
		if err := p.RemoveNetNS(); err != nil {
			t.Fatal(err)
		}
		if out, err := p.Node.Exec(t.Context(), "ip", "-brief", "link", "show", "dev", ends[0]); err == nil {
			t.Fatalf("it is still there: %s", out)
		}
		if err := p.RemoveNetNS(); err != nil {
			t.Errorf("absent: %v", err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func testFlannel(t *testing.T, l *Lab) {
	ctx := t.Context()
	pods := []*Pod{newPod(t, l.Nodes[0], "a"), newPod(t, l.Nodes[1], "b")}
	before, err := l.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for _, p := range pods {
		result, err := p.Add(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ip := result.IPs[0].Address.IP; !p.Node.PodCIDR.Contains(ip) {
			t.Errorf("%s on %s has address %s, want one of %s", p, p.Node.Name, ip, p.Node.PodCIDR)
		} else {
			addrs = append(addrs, ip.String())
		}
	}
	ping(t, pods[0], addrs[1])
	ping(t, pods[1], addrs[0])
	during, err := l.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+ node1 lease file cbr0/" + addrs[0], "+ node2 link veth veth"} {
		if diff := before.Diff(during); !strings.Contains(diff, want) {
			t.Errorf("snapshot's difference lacks %q:\n%s", want, diff)
		}
	}
	for _, p := range pods {
		if err := p.Del(ctx); err != nil {
			t.Error(err)
		}
	}
	after, err := l.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := before.Diff(after); diff != "" {
		t.Errorf("Add and Del left:\n%s", diff)
	}
}

func testGeneve(t *testing.T, l *Lab) {
	ctx := t.Context()
	if _, err := l.NBCtl(ctx, "ls-add", "blue"); err != nil {
		t.Fatal(err)
	}
	var pods []*Pod
	for i, n := range l.Nodes {
		p := newPod(t, n, fmt.Sprintf("g%d", i))
		plugOVNPort(t, l, p, i+1)
		pods = append(pods, p)
	}
	ping(t, pods[0], "10.9.0.2")
	// The tunnel carries a full Ethernet payload.
	if _, err := pods[1].Exec(ctx, "ping", "-c1", "-W2", "-Mdo", "-s1472", "10.9.0.1"); err != nil {
		t.Error(err)
	}
	// Were it not for the underlay, nothing would pass: this shows that the ping can fail.
	setUnderlay(t, l.Nodes[1], netlink.LinkSetDown)
	if _, err := pods[0].Exec(ctx, "ping", "-c1", "-W1", "10.9.0.2"); err == nil {
		t.Error("the ping passed without the underlay")
	}
	setUnderlay(t, l.Nodes[1], netlink.LinkSetUp)
	ping(t, pods[0], "10.9.0.2")
	if _, err := l.NBCtl(ctx, "ls-del", "blue"); err != nil {
		t.Error(err)
	}
}

// plugOVNPort makes the i-th port of switch blue and gives it to the pod as net1, with address 10.9.0.i.
func plugOVNPort(t *testing.T, l *Lab, p *Pod, i int) {
	t.Helper()
	ctx := t.Context()
	port, mac := fmt.Sprintf("blue%d", i), fmt.Sprintf("0a:58:0a:09:00:%02x", i)
	if _, err := l.NBCtl(ctx, "lsp-add", "blue", port, "--", "lsp-set-addresses", port, mac); err != nil {
		t.Fatal(err)
	}
	target, err := ns.GetNS(p.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	err = p.Node.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = port
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "net1", PeerNamespace: netlink.NsFd(target.Fd())}
		return errors.Join(netlink.LinkAdd(veth), setUp(port, 1500))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"ip link set net1 address " + mac, "ip link set net1 up", fmt.Sprintf("ip addr add 10.9.0.%d/24 dev net1", i),
		"ethtool -K net1 tx off",
	} {
		if _, err := p.Exec(ctx, strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	_, err = p.Node.VSCtl(ctx, "add-port", "br-int", port, "--", "set", "Interface", port, "external_ids:iface-id="+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := p.Node.VSCtl(context.Background(), "del-port", "br-int", port); err != nil && !l.closed {
			t.Error(err)
		}
	})
	_, err = p.Node.VSCtl(ctx, timeoutArg(ctx), "wait-until", "Interface", port, "external_ids:ovn-installed=true")
	if err != nil {
		t.Fatal(err)
	}
}

func setUnderlay(t *testing.T, n *Node, set func(netlink.Link) error) {
	t.Helper()
	err := n.Do(func() error {
		link, err := netlink.LinkByName("eth1")
		if err != nil {
			return err
		}
		return set(link)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCNIVersions(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	n, ctx := l.Nodes[0], t.Context()
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			n.CNIVersion = version
			p := newPod(t, n, "p")
			if _, err := p.Add(ctx); err != nil {
				t.Fatal(err)
			}
			if err := p.Check(ctx); err != nil && version != "0.3.1" {
				t.Errorf("CHECK: %v", err)
			}
			if err := n.Status(ctx); err != nil {
				t.Errorf("STATUS: %v", err)
			}
			stale, err := p.NewSandbox(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stale.Add(ctx); err != nil {
				t.Fatal(err)
			}
			if err := n.GC(ctx, []*Pod{p}); err != nil {
				t.Errorf("GC: %v", err)
			}
			if left := leases(t, n); len(left) != 1 {
				t.Errorf("leases after GC: %v, want the valid pod's alone", left)
			}
			if err := errors.Join(p.Close(ctx), stale.Close(ctx)); err != nil {
				t.Error(err)
			}
			if left := leases(t, n); len(left) != 0 {
				t.Errorf("leases after DEL: %v", left)
			}
		})
	}
}

func TestDelWithoutNetNSAndCache(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	n, ctx := l.Nodes[0], t.Context()
	p := newPod(t, n, "p")
	if _, err := p.Add(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.RemoveNetNS(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Del(ctx, WithoutCache()); err != nil {
			t.Error(err)
		}
	}
	if left := leases(t, n); len(left) != 0 {
		t.Errorf("leases after DEL: %v", left)
	}
}

func TestPodsAtOnce(t *testing.T) {
	const pods = 40
	l := Start(t, Options{Nodes: 2, PrimaryOnly: true})
	var (
		all   errgroup.Group
		mu    sync.Mutex
		addrs = map[string]string{}
	)
	began := time.Now()
	for i := range pods {
		all.Go(func() error {
			p, err := l.Nodes[i%2].NewPod(t.Context(), "default", fmt.Sprintf("p%d", i), nil)
			if err != nil {
				return err
			}
			result, err := p.Add(t.Context())
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			addr := result.IPs[0].Address.String()
			if other := addrs[addr]; other != "" {
				return fmt.Errorf("%s and %s have both %s", other, p, addr)
			}
			addrs[addr] = p.Name
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods in %v", pods, time.Since(began).Round(time.Millisecond))
	runs := slices.DeleteFunc(l.Nodes[0].Runs(), func(r Run) bool { return r.Plugin != "flannel" || r.Command != "ADD" })
	if len(runs) != pods/2 {
		t.Errorf("%d runs of flannel's ADD on node1, want %d", len(runs), pods/2)
	}
}

func TestLabsAtOnce(t *testing.T) {
	var all errgroup.Group
	for range 2 {
		all.Go(func() error {
			l, err := New(t.Context(), Options{PrimaryOnly: true})
			if err != nil {
				return err
			}
			return l.Close()
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

func TestProcessLife(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	ctx, n := t.Context(), l.Nodes[0]
	first := l.NB.Pid()
	if err := l.NB.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := l.NB.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if l.NB.Pid() == first || !l.NB.Running() {
		t.Errorf("NB has pid %d after a restart, had %d", l.NB.Pid(), first)
	}
	if _, err := l.NBCtl(ctx, "--wait=hv", "ls-add", "red"); err != nil {
		t.Errorf("NB after its restart: %v", err)
	}
	if err := n.OVSDB.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.VSCtl(ctx, "--timeout=1", "show"); err == nil {
		t.Error("a paused OVS database answered")
	}
	if err := n.OVSDB.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.VSCtl(ctx, "show"); err != nil {
		t.Error(err)
	}
	if err := n.OVNController.Restart(ctx); err != nil {
		t.Error(err)
	}
}

func TestLogsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	l := Start(t, Options{PrimaryOnly: true})
	if _, err := l.KeepLogs(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"central/nb.log", "central/ovn-northd.log", "node1/ovs-vswitchd.log"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("log %s: %v", name, err)
		}
	}
}

func TestProcessThatEndsIsToldWithItsLog(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	p := &Process{Name: "short", netns: l.central, log: filepath.Join(l.Dir, "short.log"),
		args: []string{"sh", "-c", "echo no such thing; exit 3"}, ready: accepts(l.Dir + "/none.sock")}
	_, err := l.run(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("start: %v, want exit status 3 and the log", err)
	}
}

func TestSnapshotDiff(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b Snapshot
		want string
	}{
		{"equal", Snapshot{"x", "y"}, Snapshot{"x", "y"}, ""},
		{"changed", Snapshot{"x", "y"}, Snapshot{"x", "z"}, "+ z\n- y\n"},
		{"repeated", Snapshot{"x", "x"}, Snapshot{"x"}, "- x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.a.Diff(test.b); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func newPod(t *testing.T, n *Node, name string) *Pod {
	t.Helper()
	p, err := n.NewPod(t.Context(), "default", name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ping tries for a while: flows and neighbours of the other node come when they come.
func ping(t *testing.T, p *Pod, addr string) {
	t.Helper()
	err := Eventually(t.Context(), func() error {
		_, err := p.Exec(t.Context(), "ping", "-c1", "-W1", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func leases(t *testing.T, n *Node) []string {
	t.Helper()
	files, err := listFiles("lease", n.leaseDir())
	if err != nil {
		t.Fatal(err)
	}
	return files
}
