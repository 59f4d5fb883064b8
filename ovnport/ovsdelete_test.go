package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// caughtUp does what ovs-vswitchd does when it has done what the database asks for; there is none here.
func (n *node) caughtUp() {
	n.VSCtl("set", "Open_vSwitch", ".", "cur_cfg="+n.nextCfg())
}

func (n *node) nextCfg() string {
	return strings.TrimSpace(n.VSCtl("get", "Open_vSwitch", ".", "next_cfg"))
}

func (n *node) unplug(t *testing.T, sandbox string) {
	t.Helper()
	if err := n.ovs.Delete(timeout(t), sandbox); err != nil {
		t.Fatal(err)
	}
}

func (n *node) awaitUnplugged(t *testing.T, sandbox string) {
	t.Helper()
	if err := n.ovs.AwaitDeleted(timeout(t), sandbox); err != nil {
		t.Error(err)
	}
}

// costs compares the transactions that f took.
func (n *node) costs(t *testing.T, what string, want ovndbtest.Counts, f func()) {
	t.Helper()
	n.proxy.Reset()
	f()
	got := n.proxy.Counts()
	got.Received, got.Operations, got.Sent = 0, 0, 0
	if got != want {
		t.Errorf("%s: transactions %+v, want %+v", what, got, want)
	}
}

// An unplug is over when ovs-vswitchd has seen it. Only the sandbox that was unplugged waits for that.
func TestAwaitUnplugged(t *testing.T) {
	n := newNode(t)
	n.plug(t, owner("web-1", "sandbox-1"), "net1")
	n.plug(t, owner("web-2", "sandbox-2"), "net1")
	before, err := strconv.Atoi(n.nextCfg())
	if err != nil {
		t.Fatal(err)
	}
	n.costs(t, "unplug nothing", ovndbtest.Counts{ReadOnly: 1}, func() { n.unplug(t, "sandbox-3") })
	n.costs(t, "unplug", ovndbtest.Counts{ReadOnly: 1, Committed: 1}, func() { n.unplug(t, "sandbox-1") })
	if got := n.nextCfg(); got != strconv.Itoa(before+1) {
		t.Errorf("next_cfg is %s, want %d and 1: what took nothing out asks for nothing", got, before)
	}
	n.costs(t, "others", ovndbtest.Counts{}, func() {
		n.awaitUnplugged(t, "sandbox-2")
		n.awaitUnplugged(t, "sandbox-3")
	})

	asked, done := make(chan struct{}, 1), make(chan struct{})
	n.proxy.Before(func(tx ovndbtest.Transact) {
		if tx.Ops[0]["op"] == "wait" {
			asked <- struct{}{}
		}
	})
	go func() {
		defer close(done)
		n.awaitUnplugged(t, "sandbox-1")
	}()
	select {
	case <-asked:
	case <-done:
		t.Fatal("not waited for")
	}
	n.proxy.Before(nil)
	n.unplug(t, "sandbox-2") // and next_cfg goes on
	n.caughtUp()
	<-done

	n.plug(t, owner("web-3", "sandbox-3"), "net1")
	n.unplug(t, "sandbox-3") // and sees that the others are done with
	n.costs(t, "long gone", ovndbtest.Counts{}, func() {
		n.awaitUnplugged(t, "sandbox-1")
		n.awaitUnplugged(t, "sandbox-2")
	})
	n.caughtUp()
	n.costs(t, "just gone", ovndbtest.Counts{ReadOnly: 1}, func() { n.awaitUnplugged(t, "sandbox-3") })
}

// An ovs-vswitchd that stands is named; a database that was made anew has nothing to wait for.
func TestAwaitUnpluggedInVain(t *testing.T) {
	n := newNode(t)
	n.plug(t, owner("web-1", "sandbox-1"), "net1")
	n.unplug(t, "sandbox-1")
	if err := n.ovs.AwaitDeleted(timeout(t), "sandbox-1"); err == nil || err.Error() != "ovs-vswitchd is behind: it still has the host-side veths open" {
		t.Errorf("got %v, want to be told that ovs-vswitchd is behind", err)
	}
	root := strings.TrimSpace(n.VSCtl("get", "Open_vSwitch", ".", "_uuid"))
	bridge := strings.TrimSpace(n.VSCtl("get", "Bridge", "br-int", "_uuid"))
	n.Transact(t,
		ovndbtest.Op{"op": "delete", "table": "Open_vSwitch", "where": []any{[]any{"_uuid", "==", []any{"uuid", root}}}},
		ovndbtest.Op{"op": "insert", "table": "Open_vSwitch", "row": ovndbtest.Op{"bridges": []any{"uuid", bridge}, "external_ids": ovndbtest.Map(map[string]string{"system-id": "chassis-2"})}},
	)
	for chassis := ""; chassis != "chassis-2"; { // until the copy has it
		s, err := n.ovs.Settings(timeout(t))
		if err != nil {
			t.Fatal(err)
		}
		chassis = s.Chassis
	}
	n.awaitUnplugged(t, "sandbox-1")
}

// An OVS port that is added again has no flows yet. The copy of the database may still have the deleted row, with its
// flows: the wait goes by the new row.
func TestAwaitFlowsOfTheNewRow(t *testing.T) {
	s := ovndbtest.StartOVS(t)
	s.VSCtl("add-br", "br-int", "--", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1")
	proxy := ovndbtest.StartProxy(t, "unix:"+s.Socket)
	ovs, err := ovnport.OpenOVS(proxy.Socket, "br-int", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ovs.Close)
	o := owner("web-1", "sandbox-1")
	ports := []ovnport.OVSPort{{HostVeth: "mn1", PortUUID: "k", PortName: "shop/web-1/net1"}}
	add := func() {
		t.Helper()
		if err := ovs.Add(timeout(t), o, ports, nobody(t)); err != nil {
			t.Fatal(err)
		}
	}
	add()
	s.VSCtl("set", "Interface", "mn1", "external_ids:ovn-installed=true")
	if err := ovs.AwaitFlows(timeout(t), ports); err != nil {
		t.Fatalf("with flows: %v", err)
	}
	proxy.StopUpdates()
	add()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := ovs.AwaitFlows(ctx, ports); err == nil {
		t.Error("the wait ended by the flows of the deleted row")
	}
}

// An OVS port keeps its iface-id if the sandbox that is added may not supersede the port's sandbox.
func TestAddAsksForTheOlderPort(t *testing.T) {
	n := newNode(t)
	o := owner("web-1", "sandbox-2")
	o.UID = "another"
	n.plug(t, o, "net1")
	before := n.Dump(t, "Interface")
	late := owner("web-1", "sandbox-1")
	port := ovnport.OVSPort{HostVeth: "mn-late", PortUUID: "k", PortName: "shop/web-1/net1"}
	refusal := errors.New("it is newer")
	err := n.ovs.Add(timeout(t), late, []ovnport.OVSPort{port}, func(_ context.Context, older ovnport.Owner) error {
		if older.Sandbox != o.Sandbox || older.UID != o.UID || older.Namespace != o.Namespace || older.Pod != o.Pod {
			t.Errorf("asked about %+v", older)
		}
		return refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("got %v", err)
	}
	if after := n.Dump(t, "Interface"); !reflect.DeepEqual(after, before) {
		t.Errorf("Interface has %v, had %v", after, before)
	}
}

// Of two OVS ports with one iface-id the older one loses it, and the agent finds the older one without a copy of all
// rows: what an Add allocates does not grow with the OVS ports of other pods.
func TestAddFindsTheOlderPort(t *testing.T) {
	n := newNode(t)
	i := 0
	add := func() {
		i++
		n.plug(t, owner("web-1", fmt.Sprint("sandbox-", i)), "net1")
	}
	add()
	few := testing.AllocsPerRun(5, add)
	for pod := range 300 {
		n.plug(t, owner(fmt.Sprint("other-", pod), fmt.Sprint("other-", pod)), "net1")
	}
	many := testing.AllocsPerRun(5, add)
	if many > few+1500 { // 300 rows, each with a map of 5 pairs, would be more
		t.Errorf("an Add makes %.0f allocations beside no other OVS ports, %.0f beside 300", few, many)
	}
	named := 0
	for _, row := range n.Dump(t, "Interface") {
		if ids(row)["iface-id"] == "shop/web-1/net1" {
			named++
			if ids(row)["sandbox"] != fmt.Sprint("sandbox-", i) {
				t.Errorf("the OVS port of %s has the iface-id, not that of sandbox-%d", ids(row)["sandbox"], i)
			}
		}
	}
	if named != 1 {
		t.Errorf("%d OVS ports have the iface-id of the pod, want one", named)
	}
}
