package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// green is a dual-stack network: each port has a claim beside its lease.
const green = `{"type":"ovn-multinet","subnets":"10.2.0.0/24,fd02::/64","mtu":1400}`

// runs attaches a container of shop/web that is whole: rows, OVS ports, links, and an entry of the journal with its
// plan.
func (l *looked) runs(container string, networks ...string) []ovnport.Port {
	l.t.Helper()
	o := owner(container, "web", "u-1")
	var wants []ovnport.Request
	a := &journal.Summary{Plan: &agentapi.Plan{}, Sandbox: agentapi.Sandbox{
		ContainerID: container, Interface: "eth0", Conflist: "cbr0", Namespace: o.Namespace, Pod: o.Pod, UID: o.UID,
	}}
	for i, network := range networks {
		wants = append(wants, ovnport.Request{Interface: fmt.Sprint("net", i+1), Network: l.network(network, l.source.nads[network].Config),
			Profiles: l.profiles})
	}
	ports, err := l.agent.nb.Ensure(l.t.Context(), o, wants, func(context.Context, ovnport.Owner) error { return nil })
	l.must(err)
	var plugs []ovnport.OVSPort
	for i, p := range ports {
		n := agentapi.Interface{Name: p.Interface, Network: "shop/" + networks[i], MAC: p.MAC.String(), MTU: 1400, Addresses: p.Addresses,
			Port: agentapi.Port{Name: p.Name, UUID: p.UUID, Claims: p.Claims}}
		for _, g := range p.Groups {
			n.Port.Groups = append(n.Port.Groups, agentapi.PortGroup(g))
		}
		a.Plan.Interfaces = append(a.Plan.Interfaces, n)
		plugs = append(plugs, ovsPortOf(container, &n))
		l.link(agentapi.HostVeth(container, p.Interface))
		l.t.Cleanup(func() { l.unlink(agentapi.HostVeth(container, p.Interface)) })
	}
	l.must(l.agent.ovs.Add(l.t.Context(), o, plugs, l.agent.supersedes(&o)))
	l.writeAttached(a)
	return ports
}

// repairs runs a reconcile pass and a repair pass, as the agent's loop does, until the copy of Open vSwitch's
// database is new enough for it.
func (l *looked) repairs() (pending bool) {
	l.t.Helper()
	l.eventually("a pass without an error", func() bool {
		all, err := l.agent.reconciler.pass(l.t.Context(), false)
		l.must(err)
		pending, err = l.agent.reconciler.repairer.pass(l.t.Context(), all)
		return err == nil
	})
	return pending
}

// lose deletes a port's row, with its claims, as somebody's hand does.
func (l *looked) lose(p ovnport.Port) {
	l.t.Helper()
	l.nb.NBCtl("lsp-del", p.Name)
	for _, claim := range p.Claims {
		l.nb.NBCtl("destroy", "Copp", claim)
	}
}

func newLosing(t *testing.T) *looked {
	l := newLooked(t)
	l.source.nads["green"] = testNAD{Config: green}
	l.putSwitch("green", green)
	return l
}

// installed writes what ovn-controller writes, which does not run here: it has installed the flows of these ports.
func (l *looked) installed(container string, is bool, ports ...ovnport.Port) {
	l.t.Helper()
	for _, p := range ports {
		veth := agentapi.HostVeth(container, p.Interface)
		if is {
			l.ovs.VSCtl("--no-wait", "set", "Interface", veth, "external_ids:ovn-installed=true")
		} else {
			l.ovs.VSCtl("--no-wait", "remove", "Interface", veth, "external_ids", "ovn-installed")
		}
	}
}

// A pass with nothing to do reads one row of NB, the node's port list. The rows of a sandbox are looked up if flows are
// missing, as they are when the row of a port is gone, and from time to time.
func TestPassReadsRowsForAReason(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLosing(t)
	ports := l.runs("c1", "blue", "green")
	leases, claims := l.rows(), l.claims()
	l.installed("c1", true, ports...)
	l.repairs() // it sees the sandbox first
	l.proxy.Reset()
	for range 3 {
		l.repairs()
	}
	if got := l.proxy.Counts(); got.ReadOnly != 3 || got.Committed+got.Refused != 0 {
		t.Errorf("three passes with nothing to do took transactions %+v of NB, want three reads", got)
	}
	l.lose(ports[1])
	l.installed("c1", false, ports[1])
	l.repairs()
	wantEqual(t, "ports", l.rows(), leases)
	wantEqual(t, "claims", l.claims(), claims)
	l.installed("c1", true, ports[1])
	l.repairs()

	l.nb.NBCtl("destroy", "Copp", ports[1].Claims[0]) // which ovn-controller does not notice
	l.repairs()
	if got := l.claims(); len(got) != len(claims)-1 {
		t.Errorf("claims %v, want one fewer until the next look", got)
	}
	l.agent.reconciler.repairer.due["c1"] = time.Now()
	l.repairs()
	wantEqual(t, "claims", l.claims(), claims)
	l.nb.NBCtl("destroy", "Copp", ports[1].Claims[0])
	l.agent.NBReplaced()
	l.repairs()
	wantEqual(t, "claims", l.claims(), claims)
}

// Rows that NB has lost of a running pod come back under the same keys; a pass that has nothing to do writes nothing.
func TestBoundaryLostRowsComeBack(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for _, c := range []struct {
		name string
		lose func(l *looked, ports []ovnport.Port)
		// writes are the committed transactions of NB and of Open vSwitch that the repair takes.
		nb, ovs int
	}{
		{"nothing", func(*looked, []ovnport.Port) {}, 0, 0},
		{"one port", func(l *looked, ports []ovnport.Port) { l.lose(ports[0]) }, 1, 0},
		{"one port, its claims stay", func(l *looked, ports []ovnport.Port) { l.nb.NBCtl("lsp-del", ports[1].Name) }, 1, 0},
		{"one claim", func(l *looked, ports []ovnport.Port) { l.nb.NBCtl("destroy", "Copp", ports[1].Claims[0]) }, 1, 0},
		{"both ports", func(l *looked, ports []ovnport.Port) { l.lose(ports[0]); l.lose(ports[1]) }, 2, 0},
		{"an OVS port", func(l *looked, ports []ovnport.Port) {
			l.ovs.VSCtl("--no-wait", "del-port", agentapi.HostVeth("c1", "net2"))
		}, 0, 1},
		{"br-int, which ovn-controller makes again", func(l *looked, ports []ovnport.Port) {
			l.ovs.VSCtl("--no-wait", "del-br", "br-int", "--", "add-br", "br-int")
		}, 0, 1},
		{"all of it", func(l *looked, ports []ovnport.Port) {
			l.lose(ports[0])
			l.lose(ports[1])
			l.ovs.VSCtl("--no-wait", "del-br", "br-int", "--", "add-br", "br-int")
		}, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLosing(t)
			ports := l.runs("c1", "blue", "green")
			leases, claims := l.rows(), l.claims()
			plugged := l.plugged()
			c.lose(l, ports)
			l.proxy.Reset()
			l.ovsProxy.Reset()
			if l.repairs() {
				t.Error("a repair that can be done now is pending")
			}
			if got := l.proxy.Counts().Committed; got != c.nb {
				t.Errorf("%d committed transactions of NB, want %d", got, c.nb)
			}
			if got := l.ovsProxy.Counts().Committed; got != c.ovs {
				t.Errorf("%d committed transactions of Open vSwitch, want %d", got, c.ovs)
			}
			for range 2 { // and stay so, without another write
				wantEqual(t, "ports", l.rows(), leases)
				wantEqual(t, "claims", l.claims(), claims)
				wantEqual(t, "OVS ports", l.plugged(), plugged)
				l.repairs()
			}
			if n, v := l.proxy.Counts().Committed, l.ovsProxy.Counts().Committed; n != c.nb || v != c.ovs {
				t.Errorf("a pass with nothing to do wrote: %d and %d transactions, want %d and %d", n, v, c.nb, c.ovs)
			}
			_, events := l.source.told()
			if told := count(events, "Normal PortRestored"); told != c.nb {
				t.Errorf("%d Events PortRestored, want %d: %q", told, c.nb, events)
			}
			if got := int(testutil.ToFloat64(l.agent.metrics.restored.WithLabelValues("nb"))); got != c.nb {
				t.Errorf("the metric counts %d restored ports, want %d", got, c.nb)
			}
		})
	}
}

// An address that has another holder meanwhile is that holder's: the pod's owner is told, once.
func TestBoundaryLostAddressIsTold(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for _, c := range []struct {
		name, network string
		take          func(p ovnport.Port) ovnport.Request
		what          string
	}{
		{"the lease", "blue", func(p ovnport.Port) ovnport.Request { return ovnport.Request{IPs: p.Addresses} }, "address 10.1.0."},
		{"a claim", "green", func(p ovnport.Port) ovnport.Request { return ovnport.Request{IPs: p.Addresses[1:]} }, "address fd02::"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLosing(t)
			ports := l.runs("c1", c.network)
			l.lose(ports[0])
			thief := owner("c2", "thief", "u-7")
			thief.Node = "node2"
			w := c.take(ports[0])
			w.Interface, w.Network = "net1", l.network(c.network, l.source.nads[c.network].Config)
			_, err := l.agent.nb.Ensure(t.Context(), thief, []ovnport.Request{w}, nil)
			l.must(err)
			before := l.rows()
			for range 3 {
				if l.repairs() {
					t.Error("an address that another pod holds is no matter of waiting")
				}
			}
			wantEqual(t, "ports", l.rows(), before)
			l.passesInVain()
			_, events := l.source.told()
			if count(events, "Warning PortLost: interface net1 is cut off from network shop/"+c.network) != 1 || !strings.Contains(events[0], c.what) {
				t.Errorf("Events %q, want one PortLost that names %s", events, c.what)
			}
			if got := strings.Count(l.log.String(), "cannot be inserted again"); got != 1 {
				t.Errorf("the log says %d times that the port is lost, want once", got)
			}
			l.repairs()
			if got := testutil.ToFloat64(l.agent.metrics.lost); got != 1 {
				t.Errorf("the metric says %v lost ports, want 1", got)
			}
			if _, again := l.source.told(); count(again, "Warning PortLost") != 1 {
				t.Errorf("after passes that learned nothing: Events %q, want one PortLost", again)
			}
			// The other holder goes: the port comes back.
			l.must(l.agent.nb.ReleaseSandbox(t.Context(), ovnport.Owner{Node: "node2", Sandbox: "c2"}))
			l.repairs()
			if got := testutil.ToFloat64(l.agent.metrics.lost); got != 0 || len(l.rows()) != 1 {
				t.Errorf("%v ports lost, rows %v, want none lost when the address is free again", got, l.rows())
			}
		})
	}
}

// passesInVain has repair passes learn nothing of the container c1: what was told of its ports counts on.
func (l *looked) passesInVain() {
	l.t.Helper()
	all, err := l.agent.reconciler.pass(l.t.Context(), false)
	l.must(err)
	over, cancel := context.WithCancel(l.t.Context())
	cancel()
	if _, err := l.agent.reconciler.repairer.pass(over, all); err == nil {
		l.t.Error("a pass without time has no error")
	}
	l.write("{}", journal.ReleaseDir, "c1@eth0")
	_, err = l.agent.reconciler.repairer.pass(l.t.Context(), all)
	l.must(err)
	l.must(os.Remove(filepath.Join(l.conf.StateDir, journal.ReleaseDir, "c1@eth0")))
	if got := testutil.ToFloat64(l.agent.metrics.lost); got != 1 {
		l.t.Errorf("the metric says %v lost ports after a pass that learned nothing, want 1", got)
	}
}

// A look that fails is repeated soon, and not after a whole period: NB may have lost rows just then.
func TestBoundaryAFailedLookIsRepeated(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLosing(t)
	ports := l.runs("c1", "blue")
	rows := l.rows()
	l.lose(ports[0])
	dir := filepath.Join(l.conf.StateDir, journal.EntryDir)
	l.must(os.Rename(dir, dir+".away"))
	l.must(os.WriteFile(dir, nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.agent.reconciler.run(ctx)
	}()
	l.eventually("a look that fails", func() bool { return strings.Contains(l.log.String(), "delete what is stale") })
	l.must(os.Remove(dir))
	l.must(os.Rename(dir+".away", dir))
	l.eventually("the row is back", func() bool { return len(l.rows()) == 1 })
	wantEqual(t, "ports", l.rows(), rows)
	cancel()
	<-done
}

// A network that NB does not have yet is waited for: the controller makes it again first.
func TestBoundaryLostNetworkIsAwaited(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLosing(t)
	l.runs("c1", "blue", "green")
	leases, claims := l.rows(), l.claims()
	l.nb.NBCtl("ls-del", "shop/blue", "--", "ls-del", "shop/green", "--", "--all", "destroy", "Copp")
	if !l.repairs() || len(l.rows()) != 0 {
		t.Errorf("rows %v, want none and a repair that is pending while the networks are missing", l.rows())
	}
	l.putSwitch("blue", blue)
	if !l.repairs() || len(l.rows()) != 1 {
		t.Errorf("rows %v, want that of blue and a repair that is pending", l.rows())
	}
	l.putSwitch("green", green)
	if l.repairs() {
		t.Error("a repair is pending although all networks are there")
	}
	wantEqual(t, "ports", l.rows(), leases)
	wantEqual(t, "claims", l.claims(), claims)
}

// Rows of an older backup: the port is an older sandbox's, at the same key or at another.
func TestBoundaryOlderBackup(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for _, c := range []struct {
		name  string
		older func(l *looked, p ovnport.Port)
		comes bool
	}{
		{"an older pod of the name", func(l *looked, p ovnport.Port) { l.insertAs("c0", "u-0", p.Addresses) }, true},
		{"an older sandbox of the pod", func(l *looked, p ovnport.Port) { l.insertAs("c0", "u-1", p.Addresses) }, true},
		{"an older pod of the name with another address", func(l *looked, p ovnport.Port) { l.insertAs("c0", "u-0", nil) }, true},
		{"a sandbox of the pod that the journal has too", func(l *looked, p ovnport.Port) {
			l.insertAs("c0", "u-1", p.Addresses)
			l.journal(owner("c0", "web", "u-1"))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLosing(t)
			ports := l.runs("c1", "blue")
			leases := l.rows()
			l.lose(ports[0])
			c.older(l, ports[0])
			other := l.rows()
			l.repairs()
			if !c.comes {
				leases = other
			}
			wantEqual(t, "ports", l.rows(), leases)
		})
	}
}

// A node that has lost the API server goes by its copy of the pods, while the pod was made again on another node:
// that pod keeps its rows. So it does when the API server does not answer.
func TestBoundaryNoPortIsTakenFromTheLivePod(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for name, live := range map[string]func() (*netmodel.Pod, error){
		"it runs on another node":        func() (*netmodel.Pod, error) { return &netmodel.Pod{Namespace: "shop", Name: "web", UID: "u-2"}, nil },
		"the pod is gone":                func() (*netmodel.Pod, error) { return nil, source.ErrNotFound },
		"the API server does not answer": func() (*netmodel.Pod, error) { return nil, errors.New("connection refused") },
	} {
		for at, addresses := range map[string]func(ovnport.Port) []netip.Prefix{
			"the same address": func(p ovnport.Port) []netip.Prefix { return p.Addresses },
			"another address":  func(ovnport.Port) []netip.Prefix { return nil },
		} {
			t.Run(name+", "+at, func(t *testing.T) {
				l := newLosing(t)
				ports := l.runs("c1", "blue")
				l.lose(ports[0])
				l.insertAs("c2", "u-2", addresses(ports[0]))
				l.source.live = live
				rows := l.rows()
				l.proxy.Reset()
				for range 2 {
					if l.repairs() {
						t.Error("a repair is pending, with nothing to wait for")
					}
				}
				wantEqual(t, "ports", l.rows(), rows)
				if n := l.proxy.Counts().Committed; n != 0 {
					t.Errorf("%d committed transactions of NB, want none", n)
				}
			})
		}
	}
}

// insertAs makes the port net1 of shop/web for an older sandbox; without addresses at another one than it had.
func (l *looked) insertAs(container, uid string, addresses []netip.Prefix) {
	l.t.Helper()
	if addresses == nil {
		addresses = []netip.Prefix{netip.MustParsePrefix("10.1.0.250/24")}
	}
	w := ovnport.Request{Interface: "net1", Network: l.network("blue", blue), IPs: addresses}
	_, err := l.agent.nb.Ensure(l.t.Context(), owner(container, "web", uid), []ovnport.Request{w}, nil)
	l.must(err)
}

// What a DEL has begun with, or has done, is not restored.
func TestBoundaryNothingIsRestoredBehindADEL(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for name, del := range map[string]func(l *looked){
		"its release is put off": func(l *looked) { l.write("{}", journal.ReleaseDir, "c1@eth0") },
		"the entry is gone": func(l *looked) {
			l.must(os.Remove(filepath.Join(l.conf.StateDir, journal.EntryDir, "c1@eth0")))
		},
		"only a delegate is left, whose DEL failed": func(l *looked) {
			l.writeAttached(&journal.Summary{FailedAttempts: 1, LastError: "busy", Plan: &agentapi.Plan{Delegates: []agentapi.Delegate{{Name: "net9", Network: "shop/ext"}}},
				Sandbox: agentapi.Sandbox{ContainerID: "c1", Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}})
		},
		"it is attached anew, to no network of OVN": func(l *looked) {
			l.writeAttached(&journal.Summary{Plan: &agentapi.Plan{},
				Sandbox: agentapi.Sandbox{ContainerID: "c1", Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			ports := l.runs("c1", "blue")
			all, err := l.agent.reconciler.pass(t.Context(), false)
			l.must(err)
			l.lose(ports[0])
			del(l) // after the list was made
			_, err = l.agent.reconciler.repairer.pass(t.Context(), all)
			l.must(err)
			if rows := l.rows(); len(rows) != 0 {
				t.Errorf("ports %v, want none", rows)
			}
		})
	}
}

// rows are the ports of pods, by name, without what changes with each write.
func (l *looked) rows() map[string]string { return l.of("Logical_Switch_Port") }

func (l *looked) claims() map[string]string { return l.of("Copp") }

func (l *looked) of(table string) map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for _, row := range l.nb.Dump(l.t, table) {
		delete(row, "_version")
		if ids, ok := row["external_ids"].(map[string]string); ok {
			delete(ids, "ovn-multinet/epoch") // a list that is made again has another one
		}
		out[row["name"].(string)] = fmt.Sprint(row)
	}
	return out
}

func (l *looked) plugged() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for _, row := range l.ovs.Dump(l.t, "Interface") {
		if ids := row["external_ids"].(map[string]string); ids["iface-id"] != "" {
			out[row["name"].(string)] = fmt.Sprint(ids)
		}
	}
	return out
}

func count(lines []string, begin string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, begin) {
			n++
		}
	}
	return n
}

func wantEqual(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got\n%v\nwant\n%v", what, got, want)
	}
}
