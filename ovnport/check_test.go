package ovnport_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// CHECK compares a port's row with what the ADD was told.
// Conformance: C-47
func TestCheck(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", `"subnets":"10.1.0.0/24,fd01::/64"`)
	p := mustEnsure(t, w.nb, owner("web-0", "c1"), want(n, "net1", "10.1.0.7", "fd01::7"))[0]
	const mac = "0a:58:0a:01:00:07"
	set := func(addresses any) {
		w.Transact(t, ovndbtest.Op{"op": "update", "table": "Logical_Switch_Port",
			"where": []any{[]any{"_uuid", "==", ovndbtest.UUID(p.UUID)}}, "row": ovndbtest.Op{"addresses": addresses}})
	}
	check := func(sandbox string) error {
		return w.nb.Check(timeout(t), sandbox, p.UUID, p.MAC.String(), p.Addresses)
	}
	for _, addresses := range []any{mac + " 10.1.0.7 fd01::7", mac + " fd01::7 10.1.0.7", ovndbtest.Set(mac+" 10.1.0.7 fd01::7", "unknown")} {
		if set(addresses); check("c1") != nil {
			t.Errorf("with the addresses %v: %v", addresses, check("c1"))
		}
	}
	wantCode(t, check("c2"), conf.CodeNotAsMade, p.UUID, "does not belong to this sandbox")
	for _, addresses := range []any{mac + " 10.1.0.8 fd01::7", mac + " 10.1.0.7", "0a:58:0a:01:00:08 10.1.0.7 fd01::7", "unknown", ovndbtest.Set[string]()} {
		set(addresses)
		wantCode(t, check("c1"), conf.CodeNotAsMade, "shop/web-0/net1", "not its own")
	}
	if err := w.nb.Check(timeout(t), "c1", "00000000-0000-8000-8000-000000000000", mac, []netip.Prefix{}); !conf.HasCode(err, conf.CodeNotAsMade) {
		t.Errorf("of a port that is not there: %v", err)
	}
	cut := w.once(t, func(tx ovndbtest.Transact) bool { return !tx.Writes }, w.proxy.Cut)
	wantCode(t, check("c1"), conf.CodeTryAgain) // nothing is found, neither good nor bad
	cut()
}

// CHECK finds the host end that is gone, is another sandbox's or port's, or has no flows.
// Conformance: C-47
func TestCheckOfAHostEnd(t *testing.T) {
	n := newNode(t)
	end := n.plug(t, owner("web-0", "c1"), "net1")[0].HostVeth
	check := func(sandbox, port, end string) error {
		return n.ovs.Check(timeout(t), sandbox, ovnport.OVSPort{HostVeth: end, PortName: port})
	}
	const port = "shop/web-0/net1"
	wantCode(t, check("c1", port, end), conf.CodeNotAsMade, end, "is not bound to its port")
	n.VSCtl("set", "Interface", end, "external_ids:ovn-installed=true")
	for begun := time.Now(); check("c1", port, end) != nil; { // until the copy has it
		if time.Since(begun) > 20*time.Second {
			t.Fatal(check("c1", port, end))
		}
	}
	wantCode(t, check("c2", port, end), conf.CodeNotAsMade, end, "is not bound to its port")
	wantCode(t, check("c1", "shop/web-1/net1", end), conf.CodeNotAsMade, end, "is not bound to its port")
	wantCode(t, check("c1", port, "mn-gone"), conf.CodeNotAsMade, "its host-side veth mn-gone is not in Open vSwitch")
}
