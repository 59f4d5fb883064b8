package ovnport_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// plug puts a pod's host ends into Open vSwitch, one for each interface, as an ADD does.
func (n *node) plug(t *testing.T, o ovnport.Owner, interfaces ...string) (all []ovnport.OwnedOVSPort) {
	t.Helper()
	var plugs []ovnport.OVSPort
	for _, name := range interfaces {
		end := "mn-" + o.Sandbox + "-" + name
		plugs = append(plugs, ovnport.OVSPort{HostVeth: end, PortUUID: "uuid-of-" + name, PortName: o.Namespace + "/" + o.Pod + "/" + name, MAC: "0a:58:0a:01:00:05"})
		all = append(all, ovnport.OwnedOVSPort{HostVeth: end, Namespace: o.Namespace, Pod: o.Pod, UID: o.UID, Sandbox: o.Sandbox})
	}
	if err := n.ovs.Add(timeout(t), o, plugs, anyone); err != nil {
		t.Fatal(err)
	}
	return all
}

// foreign makes interfaces that are nobody's of ours: of OVN, of the node, of another project that uses OVN's words,
// and ones that have only a part of ours.
func (n *node) foreign(t *testing.T) {
	t.Helper()
	n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "up")
	n.VSCtl("add-port", "br-int", "eth7")
	n.VSCtl("add-br", "br-ex", "--", "add-port", "br-ex", "eth8")
	for name, ids := range map[string][]string{
		"vm1":     {"iface-id=vm-1", "iface-id-ver=u-9", "attached_mac=02:00:00:00:00:01"},
		"nic-of":  {"iface-id=shop_web", "sandbox=sandbox-1", "iface-id-ver=uid-of-web-1"},
		"no-ours": {"iface-id=shop/web-1/net1", `ovn-multinet/port-uuid="k"`},
		"empty":   {"iface-id=shop/web-1/net1", `ovn-multinet/port-uuid=""`, `sandbox="sandbox-1"`},
	} {
		args := []string{"add-port", "br-int", name, "--", "set", "Interface", name}
		for _, id := range ids {
			args = append(args, "external_ids:"+id)
		}
		n.VSCtl(args...)
	}
}

func (n *node) plugged(t *testing.T) []ovnport.OwnedOVSPort {
	t.Helper()
	all, err := n.ovs.Ports(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b ovnport.OwnedOVSPort) int { return strings.Compare(a.HostVeth, b.HostVeth) })
	return all
}

// What is ours in Open vSwitch is found with what it says of its pod, among what is not, by one question.
func TestPlugged(t *testing.T) {
	n := newNode(t)
	n.foreign(t)
	n.proxy.Reset()
	if got := n.plugged(t); len(got) != 0 {
		t.Errorf("of nothing that is ours: %+v", got)
	}
	want := n.plug(t, owner("web-1", "sandbox-1"), "net1", "net2")
	nobody := owner("web-2", "sandbox-2")
	nobody.UID = "" // of a runtime that does not tell
	want = append(want, n.plug(t, nobody, "net1")...)
	before := n.DumpTables(t, "Bridge", "Port", "Interface")
	n.proxy.Reset()
	if got := n.plugged(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := n.proxy.Counts(); got.ReadOnly != 1 || got.Committed != 0 || got.Refused != 0 {
		t.Errorf("transactions %+v, want one that reads", got)
	}
	if after := n.DumpTables(t, "Bridge", "Port", "Interface"); !reflect.DeepEqual(after, before) {
		t.Errorf("a look changed rows from\n%v\nto\n%v", before, after)
	}
}

// The names that Open vSwitch has may be anybody's: one that is not a port's of ours names no pod, and is ours all the
// same.
func TestPluggedUnderOddNames(t *testing.T) {
	for name, want := range map[string]ovnport.OwnedOVSPort{
		"shop/web-1/net1": {Namespace: "shop", Pod: "web-1"},
		"shop/web-1":      {Namespace: "shop", Pod: "web-1"},
		"shop/":           {Namespace: "shop"},
		"web-1":           {},
		"":                {},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			o := owner("web-1", "sandbox-1")
			if err := n.ovs.Add(timeout(t), o, []ovnport.OVSPort{{HostVeth: "mn1", PortUUID: "k", PortName: name}}, nobody(t)); err != nil {
				t.Fatal(err)
			}
			want.HostVeth, want.UID, want.Sandbox = "mn1", o.UID, o.Sandbox
			if got := n.plugged(t); !reflect.DeepEqual(got, []ovnport.OwnedOVSPort{want}) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// What the list gives is what Unplug takes: the two read different tables.
func TestPluggedIsWhatUnplugTakes(t *testing.T) {
	n := newNode(t)
	n.foreign(t)
	before := n.DumpTables(t, "Port", "Interface")
	n.plug(t, owner("web-1", "sandbox-1"), "net1", "net2")
	stays := n.plug(t, owner("web-2", "sandbox-2"), "net1")
	n.proxy.Reset()
	if err := n.ovs.Delete(timeout(t), "sandbox-1"); err != nil {
		t.Fatal(err)
	}
	if got := n.proxy.Counts(); got.ReadOnly != 1 || got.Committed != 1 || got.Refused != 0 {
		t.Errorf("transactions %+v, want one that reads and one that writes", got)
	}
	if got := n.plugged(t); !reflect.DeepEqual(got, stays) {
		t.Errorf("left: %+v, want %+v", got, stays)
	}
	if err := n.ovs.Delete(timeout(t), "sandbox-2"); err != nil {
		t.Fatal(err)
	}
	if after := n.DumpTables(t, "Port", "Interface"); !reflect.DeepEqual(after, before) {
		t.Errorf("rows of others changed from\n%v\nto\n%v", before, after)
	}
}

// An Open vSwitch that does not answer has not said that nothing is there.
func TestPluggedWithoutAnAnswer(t *testing.T) {
	n := newNode(t)
	n.plug(t, owner("web-1", "sandbox-1"), "net1")
	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()
	over := make(chan struct{})
	n.proxy.Before(func(ovndbtest.Transact) { cancel(); <-over })
	all, err := n.ovs.Ports(ctx)
	close(over)
	if all != nil || !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "read OVS ports: ") {
		t.Errorf("got %+v, %v; want the error alone", all, err)
	}
}

// TestDeleteSome: of a sandbox that keeps its other interfaces, only the named OVS ports go; a second Add of the same names
// replaces those alone.
func TestDeleteSome(t *testing.T) {
	n := newNode(t)
	o := owner("web-1", "sandbox-1")
	n.plug(t, o, "net1", "net2")
	if err := n.ovs.Delete(timeout(t), o.Sandbox, "mn-sandbox-1-net2", "mn-sandbox-1-net9"); err != nil {
		t.Fatal(err)
	}
	has := func(want ...string) {
		t.Helper()
		var names []string
		for _, p := range n.plugged(t) {
			names = append(names, p.HostVeth)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("Open vSwitch has %q, want %q", names, want)
		}
	}
	has("mn-sandbox-1-net1")
	n.plug(t, o, "net2")
	n.plug(t, o, "net2")
	has("mn-sandbox-1-net1", "mn-sandbox-1-net2")
}
