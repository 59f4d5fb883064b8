package outside_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// TestEnded: the transaction that deletes or changes a NAT row tells the nodes that translated by it, and no other node.
// A node that translates by itself gets its list before, and a pass that changes nothing writes nothing.
func TestEnded(t *testing.T) {
	w := newWorld(t)
	onNode := func(want *outside.Wanted, node string) {
		t.Helper()
		w.Change(t, "Logical_Switch_Port", want.PortKey, map[string]any{"external_ids": ovndbtest.Map(map[string]string{
			"ovn-multinet/network": "shop/blue", "ovn-multinet/namespace": "shop", "ovn-multinet/pod": want.User.Pod,
			"ovn-multinet/interface": "net1", "ovn-multinet/sandbox": "s1", "ovn-multinet/node": node})})
	}
	want := w.pod(t, "shop", "web-0", 7, "192.0.2.17", "2001:db8::105")
	onNode(want, "worker")
	equal(t, w.ended(t, "worker"), "none")
	w.ensure(t, want, 1)
	equal(t, w.ended(t, "worker"), "")
	w.ensure(t, want, 0)

	const pair = "shop/r1 192.0.2.17 10.1.0.7; shop/r1 2001:db8::105 fd01::7"
	want.Distributed = false // the gateway's node translates from now on
	w.ensure(t, want, 1)
	equal(t, w.ended(t, "worker"), pair)
	equal(t, w.ended(t, "n1"), "none")
	w.remove(t, want, 1)
	equal(t, w.ended(t, "n1"), pair)
	w.remove(t, want, 0)

	out := w.pod(t, "shop", "web-1", 8) // an egress address ends for one pod, and not for the other
	beside := w.pod(t, "shop", "web-2", 9)
	out.Kind, beside.Kind = outside.Egress, outside.Egress
	address := w.ensure(t, out, 1)
	w.ensure(t, beside, 1)
	w.remove(t, out, 1)
	first, _, _ := strings.Cut(strings.Trim(address, "[]"), " ")
	if got := w.ended(t, "n1"); !strings.Contains(got, first+" 10.1.0.8") || strings.Contains(got, "10.1.0.9") {
		t.Errorf("ended connections %s, want those of %s and 10.1.0.8", got, first)
	}
}

// TestEndedOnOneNode: an address passes from the gateway to its pod, on a node of the gateway that has no list yet.
func TestEndedOnOneNode(t *testing.T) {
	w := newWorld(t)
	want := w.pod(t, "shop", "web-0", 7, "192.0.2.17")
	w.Change(t, "Logical_Switch_Port", want.PortKey, map[string]any{"external_ids": ovndbtest.Map(map[string]string{
		"ovn-multinet/network": "shop/blue", "ovn-multinet/namespace": "shop", "ovn-multinet/pod": want.User.Pod,
		"ovn-multinet/interface": "net1", "ovn-multinet/sandbox": "s1", "ovn-multinet/node": "n1"})})
	want.Distributed = false
	w.ensure(t, want, 1)
	want.Distributed = true
	w.ensure(t, want, 1)
	equal(t, w.ended(t, "n1"), "shop/r1 192.0.2.17 10.1.0.7")
}

// TestBoundaryEndedIsBounded: a tenant who changes an address again and again adds no entries beyond the bound.
func TestBoundaryEndedIsBounded(t *testing.T) {
	w := newWorld(t)
	want := w.pod(t, "shop", "web-0", 7, "192.0.2.17")
	for range 3 {
		want.Distributed = false
		w.ensure(t, want, 1)
		w.remove(t, want, 1)
	}
	equal(t, w.ended(t, "n1"), "shop/r1 192.0.2.17 10.1.0.7")
	var ids []string
	for i := range 255 {
		ids = append(ids, fmt.Sprintf("ovn-multinet/ended:shop/r1 192.0.2.18 10.2.0.%d", i))
	}
	w.addEnded(t, "n1", ids)
	other := w.pod(t, "shop", "web-1", 8, "192.0.2.18")
	other.Distributed = false
	w.ensure(t, other, 1)
	w.remove(t, other, 1)
	equal(t, w.ended(t, "n1"), "shop/r1 192.0.2.17 10.1.0.7; shop/r1 192.0.2.18 10.1.0.8")
}

// TestEndedServed: the connections to an outside address, or to a forwarded port, that a Service does not have any more
// are in the list of the router. Those of the Service that has it next are not.
func TestEndedServed(t *testing.T) {
	w := newWorld(t)
	list := func() string {
		t.Helper()
		served, err := ended.ReadServed(nbtest.WithLimit(t), w.DB, "router shop/r1")
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, c := range served {
			words = append(words, fmt.Sprint(c.Protocol, " ", c.Vip, " ", c.Backend))
		}
		return strings.Join(words, "; ")
	}
	web := w.service("web", "192.0.2.17")
	w.ensure(t, web, 1)
	equal(t, list(), "")
	w.remove(t, web, 1)
	equal(t, list(), "tcp 192.0.2.17:80 invalid AddrPort")
	w.ensure(t, w.service("other", "192.0.2.17"), 1) // whose backend is the same
	equal(t, list(), "")
}
