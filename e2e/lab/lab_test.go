package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsnet/try"
)

// The project's own binaries take no part: the lab has to stand without them.
func TestMain(m *testing.M) {
	if os.Getenv(holdEnv) != "" {
		fmt.Fprintln(os.Stderr, holdLab())
		os.Exit(1)
	}
	Main(m, WithoutOurs())
}

func TestTwoNodes(t *testing.T) {
	defer try.F(t.Fatal)
	ctx := t.Context()
	before := worldOf(t)
	began := time.Now()
	l := try.E1(New(ctx, Options{Nodes: 2, PrimaryOnly: true}))
	defer l.Close()
	t.Logf("two nodes up in %v", time.Since(began).Round(time.Millisecond))

	t.Run("Flannel", func(t *testing.T) { testFlannel(t, l) })
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
	try.E(l.Close())
	t.Logf("down in %v", time.Since(began).Round(time.Millisecond))
	assertGone(t, before)
}

// When a sandbox's namespace is gone, so are its links in the host: the kernel takes them away some time after the name.
func TestRemoveNetNS(t *testing.T) {
	defer try.F(t.Fatal)
	l := Start(t, Options{Nodes: 1, PrimaryOnly: true})
	for range 10 {
		p := newPod(t, l.Nodes[0], "web")
		try.E1(p.Add(t.Context()))
		ends, err := p.hostEnds()
		if err != nil || len(ends) != 1 {
			t.Fatalf("host ends %q, %v, want one", ends, err)
		}
		try.E(p.RemoveNetNS())
		if out, err := p.Node.Exec(t.Context(), "ip", "-brief", "link", "show", "dev", ends[0]); err == nil {
			t.Fatalf("it is still there: %s", out)
		}
		if err := p.RemoveNetNS(); err != nil {
			t.Errorf("absent: %v", err)
		}
		try.E(p.Close(t.Context()))
	}
}

func testFlannel(t *testing.T, l *Lab) {
	defer try.F(t.Fatal)
	ctx := t.Context()
	pods := []*Pod{newPod(t, l.Nodes[0], "a"), newPod(t, l.Nodes[1], "b")}
	before := try.E1(l.Snapshot(ctx))
	var addrs []string
	for _, p := range pods {
		result := try.E1(p.Add(ctx))
		if ip := result.IPs[0].Address.IP; !p.Node.PodCIDR.Contains(ip) {
			t.Errorf("%s on %s has address %s, want one of %s", p, p.Node.Name, ip, p.Node.PodCIDR)
		} else {
			addrs = append(addrs, ip.String())
		}
	}
	ping(t, pods[0], addrs[1])
	ping(t, pods[1], addrs[0])
	during := try.E1(l.Snapshot(ctx))
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
	after := try.E1(l.Snapshot(ctx))
	if diff := before.Diff(after); diff != "" {
		t.Errorf("Add and Del left:\n%s", diff)
	}
}

func TestLogsAreKept(t *testing.T) {
	defer try.F(t.Fatal)
	dir := filepath.Join(t.TempDir(), "logs")
	l := Start(t, Options{PrimaryOnly: true})
	try.E1(l.KeepLogs(dir))
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

// TestNewRules: rules are lost that only the second dump has, whatever they do.
func TestNewRules(t *testing.T) {
	const before = "NXST_FLOW reply (xid=0x4):\n cookie=0x1, table=8, priority=50,metadata=0x4 actions=resubmit(,9)\n cookie=0x2, table=9, priority=0 actions=drop\n"
	const after = " cookie=0x3, table=45, priority=161,ip,nw_src=10.24.0.70 actions=ct(commit,nat(src=192.0.2.17))\n" +
		" cookie=0x1, table=8, priority=50,metadata=0x4 actions=conjunction(7,1/2)\n"
	if got := newRules(before, after); !slices.Equal(got, []string{"cookie=0x3, table=45, priority=161,ip,nw_src=10.24.0.70"}) {
		t.Errorf("%q", got)
	}
	if got := newRules(after, after); len(got) > 0 {
		t.Errorf("%q, want none", got)
	}
}

// TestProcessWithKnownFault: a process that ends by its known fault is started again, and by another one it is not.
func TestProcessWithKnownFault(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	for word, again := range map[string]bool{"known": true, "new": false} {
		dir := t.TempDir()
		p := &Process{Name: word, netns: l.central, log: filepath.Join(dir, "log"), fault: "known fault", args: []string{"sh", "-c",
			"cd " + dir + "; mkdir first && { echo " + word + " fault; kill -ABRT $$; }; mkdir second; exec sleep 1000"}}
		if err := p.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if again {
			if err := Eventually(t.Context(), func() error { _, err := os.Stat(filepath.Join(dir, "second")); return err }); err != nil {
				t.Error(err)
			}
		} else if err := p.Wait(t.Context()); err == nil {
			t.Error("it ended without an error")
		}
		if p.Running() != again || p.Faults() > 1 || (p.Faults() == 1) != again {
			t.Errorf("%s fault: running %t, %d faults", word, p.Running(), p.Faults())
		}
		if err := p.Kill(); err != nil || p.Running() {
			t.Errorf("%s fault: %v, running %t", word, err, p.Running())
		}
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
	defer try.F(t.Fatal)
	t.Helper()
	p := try.E1(n.NewPod(t.Context(), "default", name, nil))
	return p
}

// ping tries for a while: flows and neighbours of the other node come when they come.
func ping(t *testing.T, p *Pod, addr string) {
	defer try.F(t.Fatal)
	t.Helper()
	try.E(Eventually(t.Context(), func() error {
		_, err := p.Exec(t.Context(), "ping", "-c1", "-W1", addr)
		return err
	}))
}
