package ovnport_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// keyLayout is an NB with many ports on one network, whose row keys are made in one way.
type keyLayout struct {
	*ovndb.DB
	server *ovndbtest.Server
	keyOf  func(netip.Addr) string
	sw     string // the key of the switch
}

// keyLayouts are an NB whose keys differ in their first 32 bits, as the product makes them (spread), and an NB whose
// keys have the hash of the network there and the lease at their end (shared).
func keyLayouts(b *testing.B, ports int) (spread, shared *keyLayout) {
	return fillLayout(b, ports, spreadKey), fillLayout(b, ports, sharedKey)
}

func spreadKey(a netip.Addr) string { return ovndb.AddressKey("shop/blue", a) }

func sharedKey(a netip.Addr) string {
	u := uuid.MustParse(spreadKey(netip.IPv4Unspecified()))
	copy(u[12:], a.AsSlice())
	return u.String()
}

func fillLayout(b *testing.B, ports int, keyOf func(netip.Addr) string) *keyLayout {
	w := &world{Server: ovndbtest.StartNB(b)}
	n := w.network(b, "blue", `"subnets":"10.0.0.0/8"`)
	for i := 0; i < ports; i += 1_000 { // one transaction for all takes too long where keys share a bucket
		w.fillWith(b, n, i, i+1_000, keyOf)
	}
	db := openNB(b, w.Endpoint())
	if err := db.WaitConnected(timeout(b)); err != nil {
		b.Fatal(err)
	}
	return &keyLayout{db, w.Server, keyOf, ovndb.SwitchKey(n.ID())}
}

func (l *keyLayout) transact(b *testing.B, ops ...ovsdb.Operation) {
	b.Helper()
	if _, err := l.DB.Transact(context.Background(), ops); err != nil {
		b.Fatal(err)
	}
}

// insert inserts a port with one address, as the product does.
func (l *keyLayout) insert(b *testing.B, name string, a netip.Addr) {
	b.Helper()
	key, text := l.keyOf(a), "0a:58:0a:01:00:07 "+a.String()
	row, err := l.Insert(&nb.LogicalSwitchPort{
		UUID: key, Name: name, Addresses: []string{text}, PortSecurity: []string{text}})
	if err != nil {
		b.Fatal(err)
	}
	l.transact(b, ovndb.Absent(nb.CoppTable, key), row, ovndb.Link(nb.LogicalSwitchTable, l.sw, "ports", key))
}

func (l *keyLayout) remove(b *testing.B, a netip.Addr) {
	b.Helper()
	l.transact(b, ovndb.Unlink(nb.LogicalSwitchTable, "ports", l.keyOf(a)))
}

// compare has each iteration measure one operation on both layouts, and reports the medians and how many times as long
// as the first layout the second one takes: the load of the machine is the same for both.
func compare(b *testing.B, spread, shared *keyLayout, measure func(*keyLayout) time.Duration) {
	var took [2][]time.Duration
	for b.Loop() {
		for i, l := range []*keyLayout{spread, shared} {
			took[i] = append(took[i], measure(l))
		}
	}
	median := func(i int) float64 {
		slices.Sort(took[i])
		return float64(took[i][len(took[i])/2].Microseconds())
	}
	b.ReportMetric(median(0), "spread-µs/op")
	b.ReportMetric(median(1), "shared-µs/op")
	b.ReportMetric(median(1)/median(0), "shared/spread")
}

func stopwatch(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// BenchmarkKeyLayout compares both layouts of row keys, with 30,000 ports on one network.
func BenchmarkKeyLayout(b *testing.B) {
	spread, shared := keyLayouts(b, 30_000)
	known, fresh := addr("10.200.60.7"), addr("10.1.0.7")
	b.Run("select by key", func(b *testing.B) {
		compare(b, spread, shared, func(l *keyLayout) time.Duration {
			return stopwatch(func() { l.transact(b, ovndb.Select(nb.LogicalSwitchPortTable, l.keyOf(known), "name")) })
		})
	})
	b.Run("insert and delete", func(b *testing.B) {
		compare(b, spread, shared, func(l *keyLayout) time.Duration {
			return stopwatch(func() {
				l.insert(b, "shop/web-0/net1", fresh)
				l.remove(b, fresh)
			})
		})
	})
}

// BenchmarkNorthd compares how long ovn-northd takes from one more port in NB to its Port_Binding, with 10,000 ports
// on one network. Measure at least 20 ports: -benchtime=20x.
func BenchmarkNorthd(b *testing.B) {
	spread, shared := keyLayouts(b, 10_000)
	southbound := map[*keyLayout]*ovndbtest.Server{}
	binding := func(l *keyLayout, name, until string) {
		b.Helper()
		southbound[l].Transact(b, ovndbtest.Op{"op": "wait", "table": "Port_Binding", "timeout": 110_000,
			"where": []any{[]any{"logical_port", "==", name}}, "columns": []string{"logical_port"},
			"until": until, "rows": []any{ovndbtest.Op{"logical_port": name}}})
	}
	for _, l := range []*keyLayout{spread, shared} {
		southbound[l] = ovndbtest.StartNorthd(b, l.server)
		binding(l, "shop/filler-9999/net1", "==")
	}
	const name = "shop/web-0/net1"
	fresh := addr("10.1.0.7")
	compare(b, spread, shared, func(l *keyLayout) time.Duration {
		took := stopwatch(func() {
			l.insert(b, name, fresh)
			binding(l, name, "==")
		})
		l.remove(b, fresh)
		binding(l, name, "!=")
		return took
	})
}
