package ovnport_test

import (
	"fmt"
	"runtime"
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

// BenchmarkHerd is many pods of one node at once, over one connection, on one database and on a raft. Compare the rates
// with that of one pod at a time: writes of pods at the same moment share a transaction.
func BenchmarkHerd(b *testing.B) {
	for _, database := range []struct {
		name  string
		start func(b *testing.B) (leader *ovndbtest.Server, endpoints []string)
	}{
		{"one", func(b *testing.B) (*ovndbtest.Server, []string) {
			s := ovndbtest.StartNB(b)
			return s, []string{s.Endpoint()}
		}},
		{"raft", func(b *testing.B) (*ovndbtest.Server, []string) {
			c := ovndbtest.StartNBCluster(b, 3)
			return c.Leader(), c.Endpoints()
		}},
	} {
		leader, endpoints := database.start(b)
		w := &world{Server: leader}
		client := connect(b, endpoints...)
		n := w.network(b, "blue", `"subnets":"10.0.0.0/8,fd01::/64"`)
		var pods atomic.Int64
		for _, atOnce := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/pods=%d", database.name, atOnce), func(b *testing.B) {
				b.SetParallelism((atOnce + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
				b.RunParallel(func(pb *testing.PB) {
					i := pods.Add(1)
					o := owner(fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i))
					for pb.Next() {
						mustRelease(b, client, o.Sandbox, mustEnsure(b, client, o, want(n, "net1"))...)
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pods/s")
			})
		}
	}
}
