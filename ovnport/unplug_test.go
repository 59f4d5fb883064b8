package ovnport_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
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
	if err := n.ovs.Unplug(timeout(t), sandbox); err != nil {
		t.Fatal(err)
	}
}

// costs compares the transactions that f took.
func (n *node) costs(t *testing.T, what string, want ovndbtest.Counts, f func()) {
	t.Helper()
	n.proxy.Reset()
	f()
	got := n.proxy.Counts()
	got.Received = 0
	if got != want {
		t.Errorf("%s: transactions %+v, want %+v", what, got, want)
	}
}

// A sandbox's host ends are plugged anew only when ovs-vswitchd has let go of those before. Nobody else waits for that.
func TestPlugAfterUnplug(t *testing.T) {
	n := newNode(t)
	first, other := owner("web-1", "sandbox-1"), owner("web-2", "sandbox-2")
	n.plug(t, first, "net1")
	before, err := strconv.Atoi(n.nextCfg())
	if err != nil {
		t.Fatal(err)
	}
	n.costs(t, "unplug nothing", ovndbtest.Counts{ReadOnly: 1}, func() { n.unplug(t, "sandbox-3") })
	n.unplug(t, "sandbox-1")
	if got := n.nextCfg(); got != strconv.Itoa(before+1) {
		t.Errorf("next_cfg is %s, want %d and 1: what took nothing out asks for nothing", got, before)
	}
	n.costs(t, "another sandbox", ovndbtest.Counts{Committed: 1}, func() { n.plug(t, other, "net1") })

	asked, done := make(chan struct{}, 1), make(chan struct{})
	n.proxy.Before(func(tx ovndbtest.Transact) {
		if tx.Ops[0]["op"] == "wait" && tx.Ops[0]["table"] == "Open_vSwitch" {
			asked <- struct{}{}
		}
	})
	n.costs(t, "the same sandbox, while another goes", ovndbtest.Counts{ReadOnly: 1 + 1, Committed: 1 + 1}, func() {
		go func() {
			defer close(done)
			n.plug(t, first, "net1")
		}()
		select {
		case <-asked:
		case <-done:
			t.Fatal("plugged while ovs-vswitchd had the host ends before")
		}
		if got := n.VSCtl("list-ports", "br-int"); strings.Contains(got, "sandbox-1") {
			t.Errorf("plugged already: %q", got)
		}
		n.unplug(t, "sandbox-2") // and next_cfg goes on
		n.caughtUp()
		<-done
		n.proxy.Before(nil)
	})
	n.unplug(t, "sandbox-1")
	n.caughtUp()
	n.plug(t, other, "net1")
	n.unplug(t, "sandbox-2") // which sees that the first is done with
	n.costs(t, "when it is long gone", ovndbtest.Counts{Committed: 1}, func() { n.plug(t, first, "net1") })
	n.caughtUp()
	n.costs(t, "over what is there", ovndbtest.Counts{Refused: 1, ReadOnly: 2, Committed: 2}, func() {
		n.proxy.Before(func(tx ovndbtest.Transact) {
			if tx.Ops[0]["op"] == "wait" && tx.Ops[0]["table"] == "Open_vSwitch" {
				n.caughtUp()
			}
		})
		n.plug(t, first, "net1")
		n.proxy.Before(nil)
	})
}

// An ovs-vswitchd that stands is named; a database that was made anew has nothing to wait for.
func TestPlugAfterUnplugInVain(t *testing.T) {
	n := newNode(t)
	o := owner("web-1", "sandbox-1")
	n.plug(t, o, "net1")
	n.unplug(t, "sandbox-1")
	again := func() error {
		return n.ovs.Plug(timeout(t), o, []ovnport.Plug{{HostEnd: "mn-1", PortUUID: "k", PortName: "shop/web-1/net1"}})
	}
	err := again()
	if want := "ovs-vswitchd is behind, it has not let go of the host ends that container sandbox-1 had before"; !conf.HasCode(err, conf.CodeTryAgain) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want code 11 and %q", err, want)
	}
	if got := n.plugged(t); len(got) != 0 {
		t.Errorf("plugged all the same: %+v", got)
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
	if err := again(); err != nil {
		t.Errorf("in a database that was made anew: %v", err)
	}
}
