//go:build bench

package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

const (
	idleFor  = time.Minute      // an agent does some things once a minute
	startFor = 10 * time.Second // what agents read after their start is over by then
	cluster  = "bench"          // of the agents
)

// idle is how many agents NB has, one number after the other.
var idle = []int{200, 500, 1000}

// TestAgents measures what agents cost NB while no pod comes or goes.
func TestAgents(t *testing.T) {
	p := report(t, "47-agents", "Idle agents", fmt.Sprintf(`Agents without pods, for %v, on one NB with %d ports, all but one over TLS with
client certificates. One agent is the program as it is shipped: its memory is measured. One agent connects through a proxy,
without TLS, which counts its requests and the bytes of the answers, without probes. The others run in one process: the kernel
counts the messages (segments of TCP with data) on their connections, with probes, and the bytes with those of TLS. NB probes a
connection after 90 s of silence, as the chart sets it (OVN's default is 5 s).`, idleFor, *most))
	s := &idleNB{Test: labtest.New(t, patience)}
	s.server, s.cfg = startNB(t, parse(t, portsNetwork), *most)
	controller := labtest.OpenNB(t, conf.NB{Endpoints: []string{s.server.Endpoint()}}, cluster)
	must(t, controller.Take(s.Ctx, ""))
	must(t, nbrows.NewStore(controller).TellNews(s.Ctx)) // as a controller that begins to lead
	s.proxy = ovndbtest.StartProxy(t, s.server.Endpoint())
	row := func(what, unit string, n, goal float64) *Row {
		p.Rows = append(p.Rows, Number(what, unit, []float64{n}, goal))
		return &p.Rows[len(p.Rows)-1]
	}
	row("NB's one thread in use, no agents", "%", 100*s.window(idleFor/6).share, 0)
	program := runProgram(t, s.cfg)
	s.agents = 1
	var each []float64 // what a message costs NB, in µs
	for i, n := range idle {
		s.grow(n)
		<-time.After(startFor)
		w := s.window(idleFor)
		each = append(each, 1e6*w.share*60/(w.in*float64(n)))
		goal := map[int]float64{500: 2, 1000: 4}[n]
		r := row(fmt.Sprintf("NB's one thread in use, %d agents", n), "%", 100*w.share, goal)
		if i > 0 {
			r.Bound = fmt.Sprintf("Each agent sends NB %s messages per minute, probes and answers to probes among them. Each message wakes "+
				"NB up, and NB then asks all connections for news: a message costs %s µs of CPU with %d agents, and %s µs with %d.",
				short(w.in), short(each[0]), idle[0], short(each[i]), n)
		}
		if i == 0 {
			row("requests of an agent, per minute", "", w.requests, 0)
			row("messages from an agent, with probes, per minute", "", w.in, 0)
			row("bytes from NB to an agent, without TLS and probes, per minute", "", w.answers, 0)
			row("bytes from NB to an agent, per minute", "", w.bytes, 0)
		}
	}
	row("memory of an agent", "MB", memory(t, program), 0)
}

// idleNB is an NB with agents.
type idleNB struct {
	labtest.Test
	server *ovndbtest.Server
	cfg    conf.NB
	proxy  *ovndbtest.Proxy // of the first agent in this process
	agents int
	tls    []int // sockets of this process to NB
}

// grow starts agents until there are n, and waits until all are known to NB.
func (s *idleNB) grow(n int) {
	dbs := labtest.StartAgents(s.T, s.agents, n, cluster, func(i int) conf.NB {
		if i == 1 {
			return conf.NB{Endpoints: []string{s.proxy.Endpoint()}}
		}
		return s.cfg
	})
	s.agents = n
	for _, db := range dbs {
		s.Must(db.WaitConnected(s.Ctx))
	}
	s.Eventually(func() error {
		known := 0
		for _, row := range s.server.Dump(s.T, nb.CoppTable) {
			if name, _ := row["name"].(string); strings.HasPrefix(name, "ovn-multinet node ") {
				known++
			}
		}
		// An agent that connects may have two connections for a moment.
		if s.tls = connectionsTo(s.T, s.cfg.Endpoints[0]); known != n || len(s.tls) != n-2 {
			return fmt.Errorf("NB knows %d of %d agents, and has %d connections of this process", known, n, len(s.tls))
		}
		return nil
	})
}

// window is what happened for some time: the share of NB's one thread, and of one agent per minute the counts.
type window struct{ share, requests, answers, in, bytes float64 }

func (s *idleNB) window(length time.Duration) (w window) {
	cpu := func() time.Duration { return get[time.Duration](s.T)(cpuOf(s.server.Pid())) }
	s.proxy.Reset()
	in, bytes := traffic(s.T, s.tls)
	began, used := time.Now(), cpu()
	<-time.After(length)
	minutes := time.Since(began).Minutes()
	w.share = (cpu() - used).Minutes() / minutes
	inAfter, bytesAfter := traffic(s.T, s.tls)
	counts := s.proxy.Counts()
	w.requests = float64(counts.ReadOnly+counts.Committed+counts.Refused) / minutes
	w.answers = float64(counts.Received) / minutes
	if of := minutes * float64(len(s.tls)); of > 0 {
		w.in, w.bytes = (inAfter-in)/of, (bytesAfter-bytes)/of
	}
	return w
}

// runProgram runs one agent as it is shipped, until the end of the test.
func runProgram(t testing.TB, cfg conf.NB) (pid int) {
	dir := ovndbtest.TempDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(in("manifests"), 0o755))
	cmd := exec.Command(ours(t, "ovn-multinetd"), "--node-name", "program", "--manifests", in("manifests"),
		"--socket", in("agent.sock"), "--state-dir", in("state"), "--ovs-socket", labtest.StartOVS(t).Socket,
		"--nb-endpoints", cfg.Endpoints[0], "--nb-certificate", cfg.Certificate, "--nb-private-key", cfg.PrivateKey,
		"--nb-ca-cert", cfg.CACert, "--cluster-id", cluster, "--log-level", "warn")
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the agent: %v", err)
		}
	})
	return cmd.Process.Pid
}

// connectionsTo are this process's sockets that are connected to an endpoint ssl:IP:PORT.
func connectionsTo(t testing.TB, endpoint string) (sockets []int) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "ssl:"))
	must(t, err)
	for _, file := range get[[]os.DirEntry](t)(os.ReadDir("/proc/self/fd")) {
		fd := get[int](t)(strconv.Atoi(file.Name()))
		peer, err := unix.Getpeername(fd)
		if address, ok := peer.(*unix.SockaddrInet4); err == nil && ok && strconv.Itoa(address.Port) == port {
			sockets = append(sockets, fd)
		}
	}
	return slices.Clip(sockets)
}

// traffic sums what has passed over sockets: the messages to NB, and the bytes from NB.
func traffic(t testing.TB, sockets []int) (messages, bytes float64) {
	for _, fd := range sockets {
		info := get[*unix.TCPInfo](t)(unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO))
		messages += float64(info.Data_segs_out)
		bytes += float64(info.Bytes_received)
	}
	return messages, bytes
}

// memory is what a process has in memory now, in MB.
func memory(t testing.TB, pid int) float64 {
	status := get[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))
	kb := get[float64](t)(strconv.ParseFloat(group(`VmRSS:\s*(\d+) kB`, string(status)), 64))
	return kb / 1000
}
