//go:build sriov

package scenarios

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// accepts counts the connections to TCP port 80 of a pod.
func (w *world) accepts(p *lab.Pod) *atomic.Int32 {
	count := &atomic.Int32{}
	w.Must(p.Do(func() error {
		l, err := net.Listen("tcp", ":80")
		if err != nil {
			return err
		}
		w.T.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				count.Add(1)
				c.Close()
			}
		}()
		return nil
	}))
	return count
}

// connects makes connections, one after the other.
func (w *world) connects(from *lab.Pod, to string, times int) {
	w.T.Helper()
	for range times {
		w.Must(from.Do(func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(to, "80"), 30*time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		}))
	}
}

// TestSubnetsBehind: with the kernel's datapath, two pods share the traffic to the hosts behind them, the one that is ready
// alone gets all of it, and no other pod may send for these hosts.
func TestSubnetsBehind(t *testing.T) {
	w := newWorld(t)
	w.NAD("functions", onCore(1, `"snat":false,"subnetsBehind":[{"subnet":"10.30.0.0/16","via":"10.21.0.5,10.21.0.6"},
		{"subnet":"fd2e::/64","via":"fd21::5,fd21::6"}],`))
	w.NAD("clients", onCore(2, `"snat":false,`))
	hosts := []string{"10.30.0.7", "fd2e::7"}
	var pods []*lab.Pod
	var counts []*atomic.Int32
	for i, last := range []string{"5", "6"} {
		p := w.Pod(i, "function-"+last, fmt.Sprintf(`[{"name":"functions","ips":["10.21.0.%s","fd21::%[1]s"]}]`, last))
		p.Ready = "True"
		w.Must(p.WriteManifest())
		w.AddInTheEnd(p)
		for _, host := range hosts {
			w.Exec(p, "ip", "addr", "add", host, "dev", "lo")
		}
		pods, counts = append(pods, p), append(counts, w.accepts(p))
	}
	client, other := w.Pod(1, "client", "clients"), w.Pod(1, "other", "functions")
	w.AddInTheEnd(client)
	w.AddInTheEnd(other)
	nextHops := func(want ...string) {
		t.Helper()
		w.Eventually(func() error {
			out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=nexthop", "find", "Logical_Router_Static_Route",
				`external_ids:"ovn-multinet/behind"="shop"`)
			got := strings.Fields(out)
			if slices.Sort(got); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("next hops %v (%v), want %v", got, err, want)
			}
			return nil
		})
		w.NBCtl("--wait=hv", "sync")
	}
	gained := func(to string) (n [2]int32) {
		t.Helper()
		before := [2]int32{counts[0].Load(), counts[1].Load()}
		w.connects(client, to, 40)
		w.Eventually(func() error { // a connection is there before it is counted
			n = [2]int32{counts[0].Load() - before[0], counts[1].Load() - before[1]}
			if n[0]+n[1] != 40 {
				return fmt.Errorf("of 40 connections to %s %v came to the two pods", to, n)
			}
			return nil
		})
		return n
	}
	nextHops("10.21.0.5", "10.21.0.6", "fd21::5", "fd21::6")
	for _, to := range hosts {
		w.MustReach(client, to)
		if n := gained(to); n[0] == 0 || n[1] == 0 {
			t.Errorf("of 40 connections to %s %v came to the two pods, want some to each", to, n)
		}
	}
	w.Exec(other, "ip", "addr", "add", "10.30.0.9", "dev", "lo")
	seen, err := pods[0].Capture("net1")
	w.Must(err)
	w.MustReach(other, "10.21.0.5")
	_, _ = other.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", "-I", "10.30.0.9", "10.21.0.5")
	w.MustReach(other, "10.21.0.5")
	sources, err := seen.Sources()
	w.Must(errors.Join(err, seen.Close()))
	if own := w.Links(other)["net1"].IPs()[0]; len(sources) != 1 || sources[0].String() != own {
		t.Errorf("echo requests of %v have come, want those of %s alone", sources, own)
	}
	pods[0].Ready = "False"
	w.Must(pods[0].WriteManifest())
	nextHops("10.21.0.6", "fd21::6")
	for _, to := range hosts {
		labtest.Equal(t, "connections to "+to+" with one ready pod", gained(to), [2]int32{0, 40})
	}
	w.End(append(pods, client, other)...)
	for _, name := range []string{"functions", "clients"} {
		w.Must(w.RemoveManifest(labtest.NADFile(name)))
	}
	w.AsBefore()
}
