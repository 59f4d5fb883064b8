package ovnport_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// One iteration is an Ensure and a Release, or a takeover, of k ports of one pod, each on a network of its own.
// Compare k with 1 (the ports are one transaction) and "10k" with "empty" (its cost in the server grows little).
func BenchmarkPorts(b *testing.B) {
	for _, filled := range []struct {
		name  string
		ports int
	}{{"empty", 0}, {"10k", 10_000}} {
		w := &world{Server: ovndbtest.StartNB(b)}
		client := w.other(b)
		var wants []ovnport.Want
		for i := range 8 {
			n := w.network(b, fmt.Sprint("n", i), `"subnets":"10.0.0.0/8"`)
			if i == 0 && filled.ports > 0 {
				w.fill(b, n, 0, filled.ports)
			}
			wants = append(wants, want(n, fmt.Sprint("net", i)))
		}
		for _, k := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("add-delete/%s/k=%d", filled.name, k), func(b *testing.B) {
				o := owner("web-1", "sandbox-1")
				for b.Loop() {
					mustRelease(b, client, o.Sandbox, mustEnsure(b, client, o, wants[:k]...)...)
				}
			})
			b.Run(fmt.Sprintf("takeover/%s/k=%d", filled.name, k), func(b *testing.B) {
				o := owner("web-1", "")
				var ports []ovnport.Port
				for i := 0; b.Loop(); i++ {
					o.Sandbox = fmt.Sprint("sandbox-", i)
					ports = mustEnsure(b, client, o, wants[:k]...)
				}
				mustRelease(b, client, o.Sandbox, ports...)
			})
		}
	}
}

// BenchmarkHerd is many pods of one node at once, over one connection.
func BenchmarkHerd(b *testing.B) {
	w := &world{Server: ovndbtest.StartNB(b)}
	client := w.other(b)
	n := w.network(b, "blue", `"subnets":"10.0.0.0/8,fd01::/64"`)
	var pods atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		i := pods.Add(1)
		o := owner(fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i))
		for pb.Next() {
			mustRelease(b, client, o.Sandbox, mustEnsure(b, client, o, want(n, "net1"))...)
		}
	})
}

// BenchmarkKeyLayout compares, with 30,000 ports on one network, keys whose first 32 bits differ (spread) with keys that
// have the network's hash there and the lease at their end (shared). Each iteration does one operation on a database of
// each kind; shared/spread is how many times as long the operation takes there.
func BenchmarkKeyLayout(b *testing.B) {
	const ports = 30_000
	spread := func(a netip.Addr) string { return ovndb.AddressKey("shop/blue", a) }
	shared := func(a netip.Addr) string {
		u := uuid.MustParse(ovndb.AddressKey("shop/blue", netip.IPv4Unspecified()))
		copy(u[12:], a.AsSlice())
		return u.String()
	}
	type database struct {
		*ovndb.DB
		keyOf func(netip.Addr) string
		link  func(key string) ovsdb.Operation
	}
	open := func(keyOf func(netip.Addr) string) *database {
		w := &world{Server: ovndbtest.StartNB(b)}
		n := w.network(b, "blue", `"subnets":"10.0.0.0/8"`)
		for i := 0; i < ports; i += 1_000 { // one transaction takes too long where keys share a bucket
			w.fillWith(b, n, i, i+1_000, keyOf)
		}
		db := openNB(b, w.Endpoint())
		if err := db.WaitConnected(timeout(b)); err != nil {
			b.Fatal(err)
		}
		return &database{db, keyOf, func(key string) ovsdb.Operation {
			return ovndb.Link(nb.LogicalSwitchTable, ovndb.SwitchKey(n.ID()), "ports", key)
		}}
	}
	databases := []*database{open(spread), open(shared)}
	transact := func(db *database, ops ...ovsdb.Operation) {
		if _, err := db.Transact(context.Background(), ops); err != nil {
			b.Fatal(err)
		}
	}
	known, fresh := addr("10.200.60.7"), addr("10.1.0.7")
	for _, bench := range []struct {
		name string
		do   func(db *database)
	}{
		{"select by key", func(db *database) {
			transact(db, ovndb.Select(nb.LogicalSwitchPortTable, db.keyOf(known), "name"))
		}},
		{"insert and delete", func(db *database) {
			key := db.keyOf(fresh)
			row, err := db.Insert(&nb.LogicalSwitchPort{UUID: key, Name: "shop/web-0/net1"})
			if err != nil {
				b.Fatal(err)
			}
			transact(db, ovndb.Absent(nb.CoppTable, key), row, db.link(key))
			transact(db, ovndb.Unlink(nb.LogicalSwitchTable, "ports", key))
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var took [2]time.Duration
			for b.Loop() {
				for i, db := range databases {
					start := time.Now()
					bench.do(db)
					took[i] += time.Since(start)
				}
			}
			b.ReportMetric(float64(took[0].Microseconds())/float64(b.N), "spread-µs/op")
			b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "shared-µs/op")
			b.ReportMetric(float64(took[1])/float64(took[0]), "shared/spread")
		})
	}
}
