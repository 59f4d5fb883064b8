package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// looked is an agent that looks when the test says so and does nothing else. The pods, both databases, the journal
// and the host's links are the test's.
type looked struct {
	*rig
	ovsProxy *ovndbtest.Proxy
	source   *few
	profiles []ovnport.Profile // of the ports of the pods that run
}

// few is a source with a few pods, "namespace/name": UID.
type few struct {
	*pods
	uids  map[string]string
	errs  map[string]error
	asked func(name string)             // called by each question
	here  []*netmodel.Pod               // who runs on the node
	away  error                         // why that is not known
	live  func() (*netmodel.Pod, error) // what LivePod answers; nil: as Pod
}

func (f *few) LivePod(ctx context.Context, namespace, name string) (*netmodel.Pod, error) {
	if f.live != nil {
		return f.live()
	}
	return f.pods.LivePod(ctx, namespace, name)
}

func (f *few) Pods(context.Context) ([]*netmodel.Pod, error) { return f.here, f.away }

func (f *few) Pod(_ context.Context, namespace, name, _ string) (*netmodel.Pod, error) {
	key := namespace + "/" + name
	if f.asked != nil {
		f.asked(key)
	}
	if err := f.errs[key]; err != nil {
		return nil, err
	}
	uid, found := f.uids[key]
	if !found {
		return nil, fmt.Errorf("%s: %w", key, source.ErrNotFound)
	}
	return &netmodel.Pod{Namespace: namespace, Name: name, UID: uid, Node: "node1", Labels: f.labels, Ports: f.ports,
		Mirror: "static-" + name}, nil
}

func newLooked(t *testing.T) *looked {
	t.Helper()
	l := &looked{rig: newRig(t)}
	l.source = &few{pods: l.rig.source, uids: map[string]string{"shop/web": "u-1", "shop/alive": "u-2"}, errs: map[string]error{}}
	l.ovsProxy = ovndbtest.StartProxy(t, l.ovs.Endpoint())
	l.conf.ReconcilePeriod, l.conf.OVSSocket = time.Hour, l.ovsProxy.Socket
	l.t.Cleanup(l.build(l.source))
	l.must(l.agent.nbdb.WaitConnected(t.Context()))
	_, err := l.agent.ovs.Settings(t.Context())
	l.must(err)
	_, err = l.agent.ports.Read(t.Context()) // the first look compares the port list with all ports
	l.must(err)
	l.proxy.Reset()
	return l
}

// link makes a link of the host, in a test that is in its own network.
func (l *looked) link(name string) {
	l.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	l.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
}

func (l *looked) unlink(name string) {
	l.t.Helper()
	link, err := netlink.LinkByName(name)
	l.must(err)
	l.must(netlink.LinkDel(link))
}

// owner is a container of a pod of shop on this node.
func owner(container, pod, uid string) ovnport.Owner {
	return ovnport.Owner{Namespace: "shop", Pod: pod, UID: uid, Sandbox: container, Node: "node1", Chassis: "chassis-1"}
}

// lease makes the ports of a container's interfaces, as a plan does.
func (l *looked) lease(o ovnport.Owner, interfaces ...string) {
	l.t.Helper()
	var wants []ovnport.Request
	for _, name := range interfaces {
		wants = append(wants, ovnport.Request{Interface: name, Network: l.network("blue", blue)})
	}
	_, err := l.agent.nb.Ensure(l.t.Context(), o, wants, func(context.Context, ovnport.Owner) error { return nil })
	l.must(err)
}

// plug puts a container's host ends into Open vSwitch, as a bind does.
func (l *looked) plug(o ovnport.Owner, interfaces ...string) {
	l.t.Helper()
	var plugs []ovnport.OVSPort
	for _, name := range interfaces {
		plugs = append(plugs, ovnport.OVSPort{HostVeth: agentapi.HostVeth(o.Sandbox, name), PortUUID: "k", PortName: "shop/" + o.Pod + "/" + name})
	}
	l.must(l.agent.ovs.Add(l.t.Context(), o, plugs, l.agent.supersedes(&o)))
}

// journal writes a container's entry, with its interfaces and a delegate, as the plugin does.
func (l *looked) journal(o ovnport.Owner, interfaces ...string) {
	l.t.Helper()
	a := &journal.Summary{Sandbox: agentapi.Sandbox{ContainerID: o.Sandbox, Interface: "eth0", Conflist: "cbr0", Namespace: o.Namespace, Pod: o.Pod, UID: o.UID}, Plan: &agentapi.Plan{}}
	for _, name := range interfaces {
		a.Plan.Interfaces = append(a.Plan.Interfaces, agentapi.Interface{Name: name})
	}
	a.Plan.Delegates = []agentapi.Delegate{{Name: "net9", Network: "shop/ext"}}
	l.writeAttached(a)
}

// neighbours are what a look must leave alone: a container that lives, one of another node whose pod is gone, and
// what is others' on the same switch and on the same bridge.
func (l *looked) neighbours(linked bool) {
	l.t.Helper()
	alive, far := owner("alive", "alive", "u-2"), owner("far", "long-gone", "u-3")
	far.Node = "node2"
	l.lease(alive, "net1")
	l.plug(alive, "net1")
	l.journal(alive, "net1")
	if linked {
		l.link(agentapi.HostVeth("alive", "net1"))
	}
	l.lease(far, "net1")
	l.nb.NBCtl("lsp-add", "shop/blue", "vm-1", "--", "lsp-set-addresses", "vm-1", "02:00:00:00:00:01", "--", "lsp-add", "shop/blue", "of-others", "--",
		"set", "Logical_Switch_Port", "of-others", `external_ids:"ovn-multinet/node"=node1`, "external_ids:sandbox=c1", "external_ids:pod=gone")
	l.ovs.VSCtl("--no-wait", "add-port", "br-int", "eth7", "--", "add-port", "br-int", "vm-1", "--",
		"set", "Interface", "vm-1", "external_ids:iface-id=shop/gone/net1", "external_ids:sandbox=c1", "external_ids:iface-id-ver=u-9")
}

// world is the rows of both databases and the files of the journal; without the rows' versions where others of their
// table change.
func (l *looked) world(withVersions bool) string {
	l.t.Helper()
	tables := l.nb.DumpTables(l.t, "Logical_Switch", "Logical_Switch_Port", "Copp")
	maps.Copy(tables, l.ovs.DumpTables(l.t, "Bridge", "Port", "Interface"))
	var lines []string
	for name, rows := range tables {
		for _, row := range rows {
			if !withVersions {
				delete(row, "_version")
			}
			lines = append(lines, fmt.Sprint(name, " ", row))
		}
	}
	files, err := filepath.Glob(filepath.Join(l.conf.StateDir, "*", "*"))
	l.must(err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, syscall.EISDIR) {
			l.t.Fatal(err)
		}
		lines = append(lines, f+" "+string(text))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (l *looked) unchanged(what, before string) {
	l.t.Helper()
	if after := l.world(true); after != before {
		l.t.Errorf("%s: the world changed from\n%s\nto\n%s", what, before, after)
	}
}

// look is one look. It returns who is dead and why, with a "!" where it was taken away.
func (l *looked) look(dry bool) []string {
	l.t.Helper()
	all, err := l.agent.reconciler.pass(l.t.Context(), dry)
	l.must(err)
	return said(all)
}

func said(all []*sandboxState) (words []string) {
	for _, m := range all {
		mark := ""
		if m.deleted {
			mark = "!"
		}
		if m.why != "" {
			words = append(words, mark+m.ContainerID+": "+m.why)
		}
	}
	return words
}

// later has a period pass.
func (l *looked) later() { l.passed += l.conf.ReconcilePeriod }

func (l *looked) wantSaid(what string, got []string, want ...string) {
	l.t.Helper()
	if !slices.Equal(got, want) {
		l.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// cost holds what a look asked of both databases against: writes and reads of NB, then of Open vSwitch.
func (l *looked) cost(what string, want ...int) {
	l.t.Helper()
	n, v := l.proxy.Counts(), l.ovsProxy.Counts()
	if got := []int{n.Committed, n.Refused, n.ReadOnly, v.Committed, v.Refused, v.ReadOnly}; !slices.Equal(got, want) {
		l.t.Errorf("%s: committed, refused and reading transactions of NB and Open vSwitch are %v, want %v", what, got, want)
	}
	l.proxy.Reset()
	l.ovsProxy.Reset()
}

// takenInTime has c1 looked at thrice, the last time a period later. It must be dead for that reason, "" for alive,
// and cost no more than it has.
func (l *looked) takenInTime(why string, plugged, leased bool) {
	l.t.Helper()
	var dead, gone []string
	writes := []int{0, 0, 1, 0, 0, 1}
	if why != "" {
		dead, gone = []string{"c1: " + why}, []string{"!c1: " + why}
		if leased {
			writes[0]++
			writes[2]++ // the claims of those ports
		}
		if plugged {
			writes[3]++
			writes[5]++ // whose ports those are
		}
	}
	made := l.world(true)
	l.look(true) // it learns of the ports that are new
	l.proxy.Reset()
	l.ovsProxy.Reset()
	for _, what := range []string{"seen once", "seen twice within a period"} {
		l.wantSaid(what, l.look(false), dead...)
		l.cost(what, 0, 0, 1, 0, 0, 1)
		l.unchanged(what, made)
	}
	l.later()
	l.wantSaid("dry", l.look(true), dead...)
	l.cost("dry", 0, 0, 1, 0, 0, 1)
	l.unchanged("dry", made)
	l.wantSaid("a period later", l.look(false), gone...)
	l.cost("a period later", writes...)
	if why == "" {
		l.unchanged("alive", made)
	}
}
