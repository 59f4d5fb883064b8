package outside_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// TestNorthd: what ovn-northd makes of the rows. The pod's chassis answers for a distributed address, the gateway's for
// the others, and both announce theirs.
func TestNorthd(t *testing.T) {
	w := newWorld(t)
	w.ensure(t, w.pod(t, "web", "a", 7, "192.0.2.17", "2001:db8::101"), 1)
	plain := w.pod(t, "web", "b", 8, "192.0.2.18")
	plain.Distributed = false
	w.ensure(t, plain, 1)
	egress := w.pod(t, "shop", "c", 9, "192.0.2.19")
	egress.Kind = outside.Egress
	w.ensure(t, egress, 1)
	w.wantFlows(t, "ip4.src == 10.1.0.7", "(192.0.2.17", "eth.src = 0a:58:c0:00:02:11", `is_chassis_resident("web/a/net1")`,
		"(2001:db8::101", "(10.1.0.7)", "(fd01::7)", "(192.0.2.18", "(10.1.0.8)", "(192.0.2.19",
		`0a:58:c0:00:02:11 192.0.2.17 is_chassis_resident("web/a/net1")`, "192.0.2.18", "192.0.2.19")
}

// wantFlows starts ovn-northd and waits until each text is in a logical flow or an announced address of it.
func (w *world) wantFlows(t *testing.T, texts ...string) {
	t.Helper()
	southbound := ovndbtest.StartNorthd(t, w.Server)
	for deadline := time.Now().Add(nbtest.Limit); ; time.Sleep(50 * time.Millisecond) { // polls the flows
		var all strings.Builder
		for _, row := range southbound.Dump(t, "Logical_Flow") {
			all.WriteString(row["match"].(string) + " " + row["actions"].(string) + "\n")
		}
		for _, row := range southbound.Dump(t, "Port_Binding") {
			all.WriteString(strings.Join(ovndbtest.Strings(row["nat_addresses"]), "\n") + "\n")
		}
		at := slices.IndexFunc(texts, func(text string) bool { return !strings.Contains(all.String(), text) })
		if at < 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no flow has %q; NAT: %s", texts[at], w.nats(t))
		}
	}
}

// TestManyUsers: what the change of one user sends and reads does not grow with the users of other namespaces. With the
// users of one egress address it does: they are in one claim.
func TestManyUsers(t *testing.T) {
	w := newWorld(t)
	w.configure(t, nbtest.GwFull+`,"addressPools":{"public":{"addresses":"192.0.2.16/28,192.0.2.32/27,2001:db8::100/120",
		"namespaces":{"shop":2,"web":1024}}}`)
	floating, egress := w.pod(t, "shop", "a", 7, "192.0.2.17"), w.pod(t, "web", "e", 8, "192.0.2.18")
	egress.Kind = outside.Egress
	cost := func(want *outside.Wanted) (bytes int64) {
		t.Helper()
		w.remove(t, want, 1)
		w.Proxy.Reset()
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), want); err != nil {
			t.Fatal(err)
		}
		got := w.Proxy.Counts()
		if got.Committed != 1 {
			t.Errorf("transactions %+v", got)
		}
		return got.Received + got.Sent
	}
	w.ensure(t, floating, 1)
	w.ensure(t, egress, 1)
	alone, aloneEgress := cost(floating), cost(egress)
	for i := range 40 {
		other := w.pod(t, "web", fmt.Sprintf("p%d", i), 20+i)
		if other.Inside = other.Inside[:1]; i%2 == 0 {
			other.Kind, other.Fixed = outside.Egress, []netip.Addr{netip.MustParseAddr("192.0.2.18")}
		}
		w.ensure(t, other, 1)
	}
	beside, besideEgress := cost(floating), cost(egress)
	t.Logf("bytes of a user with a floating address: %d alone, %d beside 40 users", alone, beside)
	t.Logf("bytes of a user with an egress address: %d alone, %d beside 20 users of the address and 20 of others", aloneEgress, besideEgress)
	if beside > alone+64 { // the numbers of the requests have more digits
		t.Errorf("%d bytes became %d", alone, beside)
	}
}
