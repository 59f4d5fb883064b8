package ovnport_test

import (
	"fmt"
	"sync/atomic"
	"testing"

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
		var wants []ovnport.Request
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
